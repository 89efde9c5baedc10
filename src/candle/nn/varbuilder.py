"""VarBuilder: where the parameters of a model come from, new ones or those of a file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..arguments import as_flag, require, require_function
from ..dtype import DType
from ..errors import DTypeError, OptionError, ShapeError
from ..generator import Generator
from ..shape import as_shape
from ..tensor import Tensor, Var, require_tensors
from ..weights import Weights, save_safetensors
from .init import Init


def builder(vb: VarBuilder | None) -> VarBuilder:
    """The builder that a layer is given, or a new one. Raises OptionError for anything else."""
    if vb is None:
        return VarBuilder()
    require("VarBuilder", "a VarBuilder", VarBuilder, vb)
    return vb


class VarBuilder:
    """Makes parameters by name: `vb.pp("encoder", 3).get((4, 8), "weight", init.zeros)`.

    Without a source they are new Vars, drawn from `generator` (the default one); with one they are
    read from it, and a missing name or another shape is an error. `trainable=False` makes plain
    tensors. Asking for a name twice answers the same Var: so weights are tied.
    """

    def __init__(
        self,
        source: Weights | None = None,
        *,
        generator: Generator | None = None,
        dtype: DType | str = DType.F32,
        trainable: bool = True,
    ) -> None:
        require("VarBuilder", "Weights", (Weights, type(None)), source)
        require("VarBuilder", "a Generator", (Generator, type(None)), generator)
        self.source = source
        self.generator = generator
        self.dtype = DType.of(dtype)
        if not self.dtype.is_float:
            raise DTypeError("VarBuilder", "a float dtype", self.dtype)
        self.trainable = as_flag("VarBuilder", trainable)
        self.prefix = ""
        self.made: dict[str, Tensor] = {}  # full name to parameter, shared by all that pp() makes

    @staticmethod
    def open(path: str | os.PathLike[str], *, trainable: bool = True) -> VarBuilder:
        """Parameters of a safetensors file or folder, or a GGUF file, as f32. Raises FormatError.

        The file stays open with the builder's `source`; parameters are copies.
        """
        return VarBuilder(Weights.open(path), trainable=trainable)

    def pp(self, *names: str | int) -> VarBuilder:
        """The builder below these names: `vb.pp("layer", 3)` has the prefix "layer.3."."""
        below = VarBuilder.__new__(VarBuilder)
        vars(below).update(vars(self))
        below.prefix = self.prefix + "".join(f"{n}." for n in names)
        return below

    def frozen(self) -> VarBuilder:
        """The same builder, making plain tensors: for running statistics and the like."""
        below = self.pp()
        below.trainable = False
        return below

    def get(self, shape: int | Sequence[int], name: str, init: Init | None = None) -> Tensor:
        """The parameter of that name and shape.

        Raises OptionError where it is new and there is no `init`, FormatError where the source
        lacks it, and ShapeError for another shape.
        """
        full, sizes = self._full(name), as_shape("VarBuilder.get", shape)
        found = self.made.get(full)
        if found is None:
            found = self.made[full] = self._make(full, sizes, init)
        if found.shape != sizes:
            raise ShapeError(f"parameter {full}", list(sizes), list(found.shape))
        return found

    def _full(self, name: str) -> str:
        require("VarBuilder", "a name of text", str, name)
        return self.prefix + name

    def _make(self, full: str, shape: tuple[int, ...], init: Init | None) -> Tensor:
        if self.source is not None:
            value = self.source.get(full, shape)
        elif init is not None:
            require_function("VarBuilder.get", init, "an initialiser")
            value = init(shape, self.generator)
            require_tensors(f"initialiser of {full}", value)
        else:
            raise OptionError(f"parameter {full}", "an initialiser, or a file to read it from")
        value = value.to_dtype(self.dtype)
        return Var(value) if self.trainable else value

    def __contains__(self, name: str) -> bool:
        """Whether a parameter of that name can be had without an initialiser."""
        full = self._full(name)
        return full in self.made or (self.source is not None and full in self.source)

    def variables(self) -> list[Var]:
        """All trainable parameters made so far, for an optimiser."""
        return [v for v in self.made.values() if isinstance(v, Var)]

    def save_safetensors(self, path: str | os.PathLike[str]) -> None:
        """Writes all parameters made so far, whole or not at all."""
        save_safetensors(path, self.made)
