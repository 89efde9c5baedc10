"""Datasets of tensors with as many rows each, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..arguments import as_flag, as_int, require, require_function
from ..errors import OptionError, ShapeError
from ..generator import Generator
from ..tensor import Tensor, require_tensors

Batch = tuple[Tensor, ...]


class Dataset:
    """Tensors that share their first axis: `Dataset(images, labels)`. Raises ShapeError."""

    def __init__(self, *tensors: Tensor) -> None:
        require_tensors("Dataset", *tensors)
        if not tensors or any(t.rank == 0 for t in tensors):
            raise ShapeError("Dataset", "tensors with rows", [list(t.shape) for t in tensors])
        if len({t.shape[0] for t in tensors}) != 1:
            raise ShapeError("Dataset", "as many rows each", [t.shape[0] for t in tensors])
        self.tensors = tensors

    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    def __getitem__(self, rows: slice) -> Dataset:
        """Some rows, as views: `data[:1000]`."""
        return Dataset(*(t[rows] for t in self.tensors))

    def take(self, rows: Tensor) -> Batch:
        """The rows at indices i64 [n], copied."""
        require_tensors("Dataset.take", rows)
        return tuple(t.index_select(rows, 0) for t in self.tensors)


class DataLoader:
    """Batches of a dataset, each pass anew: `for images, labels in DataLoader(data, 64): ...`.

    `shuffle` draws another order each pass from `generator` (a new one of `seed`); the same seed
    gives the same passes. `drop_last` leaves out a last batch that is not full. `transform` is
    applied to the tensors of each batch: so images stay u8 until they are needed.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        transform: Callable[..., Batch] | None = None,
    ) -> None:
        require("DataLoader", "a Dataset", Dataset, dataset)
        self.batch_size = as_int("DataLoader", batch_size, "an integer of rows a batch")
        if self.batch_size < 1:
            raise OptionError("DataLoader", "batch_size >= 1", batch_size)
        if transform is not None:
            require_function("DataLoader", transform)
        self.dataset = dataset
        self.shuffle = as_flag("DataLoader", shuffle)
        self.generator = Generator(seed)
        self.drop_last = as_flag("DataLoader", drop_last)
        self.transform = transform

    def __len__(self) -> int:
        """Batches of one pass."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def __iter__(self) -> Iterator[Batch]:
        order = self._order()
        for k in range(len(self)):
            start = k * self.batch_size
            rows = order.narrow(0, start, min(self.batch_size, len(self.dataset) - start))
            batch = self.dataset.take(rows)
            yield self.transform(*batch) if self.transform else batch

    def _order(self) -> Tensor:
        """The rows of a pass, i64."""
        count = len(self.dataset)
        if not self.shuffle:
            return Tensor.arange(count)
        draws: list[float] = Tensor.rand((count,), self.generator).to_vec()
        return Tensor(sorted(range(count), key=draws.__getitem__), "i64")
