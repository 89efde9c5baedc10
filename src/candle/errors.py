"""The exception tree. Every error raised on purpose is one of these.

    CandleError                     op, expected, got: what failed, what it wanted, what it saw
    ├── ShapeError                  (ValueError)    sizes that do not fit together
    ├── DTypeError                  (TypeError)     an element type the operation does not take
    ├── DeviceError                 (ValueError)    an unknown or absent device
    ├── RangeError                  (IndexError)    an index outside its axis
    ├── GradientError               (RuntimeError)  backward cannot go on
    ├── AnomalyError                (FloatingPointError)  anomaly mode found a NaN or an infinity
    ├── NativeError                 (RuntimeError)  the C library refused, or cannot be loaded
    ├── FormatError                 (ValueError)    malformed bytes in a file
    │   ├── SafetensorsError
    │   ├── GgufError
    │   ├── TokenizerError
    │   ├── TemplateError
    │   └── PackageError
    ├── NameNotFoundError           (LookupError)   a model, package or knowledge base is not here
    ├── RequirementError            (RuntimeError)  this machine lacks what a package needs
    ├── StoreError                  (RuntimeError)  a store or knowledge base is damaged or in use
    │   └── LockedError             another process is the writer
    ├── ContextLengthError          (ValueError)    a prompt is longer than the context
    └── OptionError                 (ValueError)    an argument outside what is allowed

The second base lets callers catch the builtin they expect.
"""

from __future__ import annotations


class CandleError(Exception):
    """Base of all errors; the three fields are kept for programs, the text is for people."""

    def __init__(self, op: str, expected: object = "", got: object = "", hint: str = "") -> None:
        self.op = op
        self.expected = expected
        self.got = got
        self.hint = hint
        text = f"{op}: expected {_text(expected)}" if _is_said(expected) else f"{op}"
        if _is_said(got):
            text += f", got {_text(got)}"
        if hint:
            text += f" ({hint})"
        super().__init__(text)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.op, self.expected, self.got, self.hint)


def _is_said(value: object) -> bool:
    """Whether a field holds something; an array is asked nothing."""
    return not isinstance(value, str) or value != ""


def _text(value: object) -> str:
    """A field for people; its type where it has no text, as an integer of 5000 digits has none."""
    try:
        return str(value)
    except Exception:
        return type(value).__name__


class ShapeError(CandleError, ValueError):
    """Sizes that do not fit together."""


class DTypeError(CandleError, TypeError):
    """An element type that the operation does not take."""


class DeviceError(CandleError, ValueError):
    """An unknown or absent device."""


class RangeError(CandleError, IndexError):
    """An index outside its axis."""


class GradientError(CandleError, RuntimeError):
    """Backward cannot go on: no rule, a freed graph, or a saved input that changed."""


class AnomalyError(CandleError, FloatingPointError):
    """Anomaly mode found the operation that made the first NaN or infinity."""


class TraceError(CandleError, RuntimeError):
    """A function cannot be compiled as it is written; `hint` says what to change."""


class NativeError(CandleError, RuntimeError):
    """The C library refused a call, or cannot be loaded."""


class FormatError(CandleError, ValueError):
    """Malformed bytes in a file."""


class SafetensorsError(FormatError):
    """Not a valid safetensors file."""


class GgufError(FormatError):
    """Not a valid GGUF file."""


class TorchFileError(FormatError):
    """Not a PyTorch checkpoint that is data alone."""


class TokenizerError(FormatError):
    """A tokenizer that cannot be built from what the file holds."""


class TemplateError(FormatError):
    """A chat template that is malformed, or that reaches out of its sandbox."""


class PackageError(FormatError):
    """Not a valid `.candle` package."""


class NameNotFoundError(CandleError, LookupError):
    """A model, package or knowledge base that is not on this machine."""


class RequirementError(CandleError, RuntimeError):
    """This machine lacks what a package needs."""


class StoreError(CandleError, RuntimeError):
    """A store or a knowledge base is damaged or in use."""


class LockedError(StoreError):
    """Another process is the writer."""


class ContextLengthError(CandleError, ValueError):
    """A prompt is longer than the context; `expected` and `got` hold both lengths."""


class OptionError(CandleError, ValueError):
    """An argument outside what is allowed."""
