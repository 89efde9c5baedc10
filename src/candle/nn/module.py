"""Module: what all layers share. Parameters are found by looking, there is no registry."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from ..arguments import as_flag, require
from ..dtype import DType
from ..errors import FormatError, OptionError, ShapeError
from ..shape import stored_bytes
from ..tensor import Tensor, Var, require_tensors
from ..weights import load_safetensors, save_safetensors

Slot = tuple[str, Tensor, Callable[[Tensor], None]]  # dotted name, tensor, how to put another there


class Module:
    """A layer: tensors and other modules as attributes, and `forward`.

    What stands in lists, tuples and dictionaries is found too, named by its place or key. A `Var`
    is trainable, another tensor is not; those that `buffers` names are state and no parameters.
    """

    forward: Callable[..., Any]  # each layer says its shapes
    training: bool = True
    buffers: tuple[str, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    # -- what is inside ----------------------------------------------------------------------------

    def children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of each direct child; a list's items are named by their place."""
        for name, value, _ in _members("", vars(self)):
            if isinstance(value, Module):
                yield name, value

    def modules(self) -> Iterator[Module]:
        """This module and all below it."""
        yield self
        for _, child in self.children():
            yield from child.modules()

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of this module and all below it, frozen ones too, no buffers."""
        return ((name, value) for name, value, _ in self._slots(prefix, state=False))

    def parameters(self) -> list[Var]:
        """What an optimiser takes: each trainable parameter, once."""
        found = {id(v): v for _, v in self.named_parameters() if isinstance(v, Var)}
        return list(found.values())

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of state that is not trained, such as running means."""
        own = {name for name, _ in self.named_parameters(prefix)}
        return ((n, value) for n, value, _ in self._slots(prefix) if n not in own)

    def _slots(self, prefix: str = "", state: bool = True) -> Iterator[Slot]:
        """All tensors with their names and places, buffers among them where `state`."""
        require("parameters", "a prefix of text", str, prefix)
        for name, value, put in _members("", vars(self)):
            if isinstance(value, Tensor) and (state or name not in self.buffers):
                yield prefix + name, value, put
        for name, child in self.children():
            yield from child._slots(f"{prefix}{name}.", state)

    # -- modes -------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Switches this module and all below it to training (dropout acts, statistics move)."""
        on = as_flag("train", mode)
        for module in self.modules():
            module.training = on
        return self

    def eval(self) -> Self:
        """Switches this module and all below it to inference."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forgets the gradients of all parameters."""
        for _, value in self.named_parameters():
            value.zero_grad()

    def freeze(self) -> None:
        """Readies weights for inference: each layer packs what it multiplies by, once."""
        for _, child in self.children():
            child.freeze()

    # -- state -------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Name to tensor of all parameters and buffers; the tensors themselves, not copies."""
        return {name: value for name, value, _ in self._slots()}

    def load_state_dict(self, state: Mapping[str, Tensor], strict: bool = True) -> None:
        """Takes the values of a state dict; float dtypes are converted to those of the module.

        Raises FormatError that lists all missing and unexpected names and all wrong shapes, before
        anything is changed. `strict=False` permits missing and unexpected names only.
        """
        require("load_state_dict", "tensors by name", Mapping, state)
        strict = as_flag("load_state_dict", strict)
        slots = list(self._slots())
        problems = _shape_problems(slots, state)
        if strict:
            names = {name for name, _, _ in slots}
            problems += [f"missing: {name}" for name, _, _ in slots if name not in state]
            problems += [f"unexpected: {name}" for name in state if name not in names]
        if problems:
            what, kind = "load_state_dict", type(self).__name__
            told = "\n  ".join([f"{len(problems)} problems:", *problems])
            raise FormatError(what, f"the names and shapes of {kind}", told)
        for name, value, put in slots:
            if name in state:
                _take(value, state[name], put)

    def save_safetensors(
        self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Writes the state dict to a safetensors file, whole or not at all."""
        save_safetensors(path, self.state_dict(), metadata)

    def load_safetensors(self, path: str | os.PathLike[str], strict: bool = True) -> None:
        """Takes the values of a safetensors file or folder; raises as `load_state_dict`."""
        self.load_state_dict(load_safetensors(path), strict)

    # -- print -------------------------------------------------------------------------------------

    def describe(self) -> str:
        """The sizes that a line of `print(model)` shows; each layer says its own."""
        own = ((n, v) for n, v, _ in _members("", vars(self)) if isinstance(v, Tensor))
        return ", ".join(f"{name} {list(value.shape)}" for name, value in own)

    def lines(self, name: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
        """(indented text, parameters) of this module and each below it."""
        label = f"{name}: " if name else ""
        text = f"{'  ' * depth}{label}{type(self).__name__}({self.describe()})"
        yield text, sum(v.count for v in _once(self))
        for child_name, child in self.children():
            yield from child.lines(child_name, depth + 1)

    def __repr__(self) -> str:
        rows = list(self.lines())
        left = max(len(text) for text, _ in rows)
        right = max(len(f"{count:,}") for _, count in rows)
        body = [f"{text:<{left}}  {count:>{right},}".rstrip() for text, count in rows]
        return "\n".join([*body, _total(self)])


def require_rank(name: str, rank: int, *tensors: Tensor) -> None:
    """What layers are made of. Raises DTypeError, and ShapeError for other than so many axes."""
    require_tensors(name, *tensors)
    for x in tensors:
        if x.rank != rank:
            raise ShapeError(name, f"parameters of {rank} axes", list(x.shape))


def _members(prefix: str, values: Any) -> Iterator[Slot | tuple[str, Any, Any]]:
    """(name, tensor or module, setter) of what a dictionary or list holds, containers opened."""
    pairs = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in pairs:
        name = f"{prefix}{key}"
        if isinstance(value, Tensor | Module):
            yield name, value, _setter(name, values, key)
        elif isinstance(value, dict | list | tuple):
            yield from _members(f"{name}.", value)


def _setter(name: str, values: Any, key: Any) -> Callable[[Tensor], None]:
    def put(value: Tensor) -> None:
        if isinstance(values, tuple):
            raise OptionError("load_state_dict", "a place that can be changed", f"tuple at {name}")
        values[key] = value

    return put


def _once(module: Module) -> list[Tensor]:
    """Each parameter of a module once, however many names it has."""
    return list({id(v): v for _, v in module.named_parameters()}.values())


def _total(module: Module) -> str:
    found = _once(module)
    count = sum(v.count for v in found)
    trained = sum(v.count for v in found if isinstance(v, Var))
    size = sum(stored_bytes(v.dtype, v.shape) for v in found)
    note = "" if trained == count else f", {trained:,} trainable"
    return f"{count:,} parameters{note}, {size:,} bytes"


def _shape_problems(slots: list[Slot], state: Mapping[str, Tensor]) -> list[str]:
    """What does not fit, one line each."""
    found = []
    for name, value, _ in slots:
        if name not in state:
            continue
        given: object = state[name]
        if not isinstance(given, Tensor):
            found.append(f"kind of {name}: Tensor wanted, got {type(given).__name__}")
        elif given.shape != value.shape:
            found.append(f"shape of {name}: {list(value.shape)} wanted, got {list(given.shape)}")
        elif given.dtype is not value.dtype and not _converts(given.dtype, value.dtype):
            found.append(f"dtype of {name}: {value.dtype} wanted, got {given.dtype}")
    return found


def _converts(given: DType, wanted: DType) -> bool:
    return (given.is_float or given.is_block) and wanted.is_float


def _take(value: Tensor, given: Tensor, put: Callable[[Tensor], None]) -> None:
    fresh = given.detach().to_dtype(value.dtype)
    if isinstance(value, Var):
        value.set(fresh)
    else:
        put(fresh)
