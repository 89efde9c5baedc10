"""THE OP SET: one frozen record per operation, by family. This page is all of it.

Every record has the same `inputs` (tensors, opaque here); parameters are fields of their own. A
record says what was asked, not how: `eager.py` runs it, `autograd.py` differentiates it, `compile/`
reads it. Sizes and dtypes are checked where a record is run.

    elementwise  Unary ReluGrad Binary Compare Where Cast
    reduce       Reduce CumSum
    rows         Softmax LayerNorm RmsNorm TopK Sort
    products     MatMul Linear LinearGrad Attention Nearest
    losses       CrossEntropy CrossEntropyGrad
    images       Conv2d ConvTranspose2d Conv2dWeight MaxPool2d MaxUnpool2d AvgPool2d
                 AvgUnpool2d Resize2d Unresize2d
    movement     Reshape Permute Expand Slice Contiguous Cat Pad
    indices      Take IndexAdd Gather ScatterAdd Rope
    weights      Pack
    control      Checkpoint
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn, TypeVar, dataclass_transform

from .dtype import DType
from .shape import Shape

Inputs = tuple[Any, ...]
T = TypeVar("T")


class Record:
    """Base of all records: fields by name and place, never changed, compared by identity."""

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name}: records are frozen")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name}: records are frozen")

    def __repr__(self) -> str:
        return describe(self)


@dataclass_transform(frozen_default=True, eq_default=False)
def record(cls: type[T]) -> type[T]:
    """Makes a frozen, slotted record of an annotated class.

    As `dataclass(frozen=True, slots=True, eq=False)`, but a third of its time for each record made
    and a tenth for each class: fields are written through their slots.
    """
    names = tuple(cls.__annotations__)
    kept = {k: v for k, v in vars(cls).items() if k in ("__doc__", "__module__", "__qualname__")}
    made: Any = type(cls.__name__, (Record,), {**kept, "__slots__": names, "__match_args__": names})
    scope = {f"_set_{n}": getattr(made, n).__set__ for n in names}
    scope |= {f"_default_{n}": vars(cls)[n] for n in names if n in vars(cls)}
    taken = ", ".join(f"{n}=_default_{n}" if f"_default_{n}" in scope else n for n in names)
    stored = "; ".join(f"_set_{n}(self, {n})" for n in names)
    exec(f"def __init__(self, {taken}): {stored}", scope)
    made.__init__ = scope["__init__"]
    return made  # type: ignore[no-any-return]


class UnaryKind(Enum):
    """Functions of one element; the value is the row's name in `native/kernels/ops.def`."""

    NEG = "neg"
    ABS = "abs"
    SIGN = "sign"
    SQR = "sqr"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    RECIP = "recip"
    EXP = "exp"
    LOG = "log"
    SIN = "sin"
    COS = "cos"
    TANH = "tanh"
    ERF = "erf"
    SIGMOID = "sigmoid"
    RELU = "relu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SILU = "silu"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"

    __hash__ = object.__hash__  # Enum's is a Python call, and these are keys on the hot path


class BinaryKind(Enum):
    """Functions of two elements."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    FLOOR_DIV = "floor_div"
    REM = "rem"
    POW = "pow"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"

    __hash__ = object.__hash__


class CompareKind(Enum):
    """Relations of two elements; the result is bool."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"

    __hash__ = object.__hash__


class ReduceKind(Enum):
    """Functions of all elements along some axes."""

    SUM = "sum"
    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    ARGMAX = "argmax"
    ARGMIN = "argmin"
    VAR = "var"

    __hash__ = object.__hash__


PLACES = (ReduceKind.ARGMAX, ReduceKind.ARGMIN)  # these give an index
OF_FLOATS = (ReduceKind.MEAN, ReduceKind.VAR)  # these take no integers
OF_NOTHING = (ReduceKind.SUM, *OF_FLOATS)  # these have a value over an empty axis


class Reduction(Enum):
    """What a loss makes of its rows; the value is the kernels'."""

    NONE = 0
    SUM = 1
    MEAN = 2


class Resampling(Enum):
    """How Resize2d reads between elements; the value is the kernels'."""

    NEAREST = 0
    LINEAR = 1  # between the centres of elements
    CORNERS = 2  # between the corners of the image


class Activation(Enum):
    """Applied by `Linear` to its result; the value is `enum cdl_activation`."""

    NONE = 0
    RELU = 1
    GELU = 2
    GELU_TANH = 3
    SILU = 4

    __hash__ = object.__hash__


ACTIVATION_KIND = {
    Activation.RELU: UnaryKind.RELU,
    Activation.GELU: UnaryKind.GELU,
    Activation.GELU_TANH: UnaryKind.GELU_TANH,
    Activation.SILU: UnaryKind.SILU,
}


# -- elementwise -----------------------------------------------------------------------------------


@record
class Unary:
    """kind(x), same shape and dtype."""

    inputs: Inputs
    kind: UnaryKind


@record
class ReluGrad:
    """inputs (g, x) of one shape: g where x > 0, else 0."""

    inputs: Inputs


@record
class Binary:
    """kind(a, b) of one dtype, broadcast as NumPy does."""

    inputs: Inputs
    kind: BinaryKind


@record
class Compare:
    """kind(a, b) of one dtype, broadcast; bool."""

    inputs: Inputs
    kind: CompareKind


@record
class Where:
    """inputs (condition, a, b), broadcast: a where the condition holds, else b."""

    inputs: Inputs


@record
class Cast:
    """x as another dtype; block types are dequantised."""

    inputs: Inputs
    dtype: DType


# -- reduce ----------------------------------------------------------------------------------------


@record
class Reduce:
    """kind over `axes` (sorted), which go, or stay with length 1 where `keepdim`."""

    inputs: Inputs
    kind: ReduceKind
    axes: Shape
    keepdim: bool = False
    correction: int = 0


@record
class CumSum:
    """Running sums along `axis`; integers sum to i64."""

    inputs: Inputs
    axis: int


# -- rows: over the last axis ----------------------------------------------------------------------


@record
class Softmax:
    """exp(x - max) over its sum along the last axis; its logarithm where `log`."""

    inputs: Inputs
    log: bool = False


@record
class LayerNorm:
    """inputs (x, weight, bias); Ba et al. 2016 over the last axis."""

    inputs: Inputs
    epsilon: float


@record
class RmsNorm:
    """inputs (x, weight); Zhang and Sennrich 2019 over the last axis."""

    inputs: Inputs
    epsilon: float


@record
class TopK:
    """The k greatest of the last axis, descending: two outputs, values and indices (i64)."""

    inputs: Inputs
    k: int


@record
class Sort:
    """The last axis in order, stable: two outputs, values and indices (i64)."""

    inputs: Inputs
    descending: bool = False


# -- products --------------------------------------------------------------------------------------


@record
class MatMul:
    """[.., m, k] @ [.., k, n] with equal batch axes."""

    inputs: Inputs


@record
class Linear:
    """inputs (x [.., k], w [n, k]) or with bias [n]: activation(x @ w.T + bias).

    `exact`: block weights are dequantised and x is not quantised.
    """

    inputs: Inputs
    activation: Activation = Activation.NONE
    exact: bool = False


@record
class LinearGrad:
    """inputs (g [.., n], x [.., k], w [n, k]), f32: those of the gradients of x, w and bias that
    are asked for, in this order."""

    inputs: Inputs
    of_x: bool
    of_w: bool
    of_bias: bool


@record
class Attention:
    """inputs (q [b,t,h,d], k [b,s,g,d], v [b,s,g,d]) or with lengths i32 [b].

    softmax(q k^T * scale) v by head, h a multiple of g. `causal`: query i sees keys up to
    position + i; `window`: only the last so many keys; `softcap`: c * tanh(score / c).
    """

    inputs: Inputs
    scale: float
    causal: bool = False
    position: int = 0
    window: int = 0
    softcap: float = 0.0


@record
class Nearest:
    """inputs (queries [m,d], vectors [n,d]) or with mask u8 [n]: two outputs, scores and rows."""

    inputs: Inputs
    k: int


# -- losses ----------------------------------------------------------------------------------------


@record
class CrossEntropy:
    """inputs (logits [n,c], targets i64 [n]) or with weight [c]: [n], or [] where reduced.

    -log softmax(logits)[target], a share `smoothing` of it spread over all classes. Rows with the
    target `ignored` count for nothing; a mean over no rows is 0.
    """

    inputs: Inputs
    reduction: Reduction
    ignored: int
    smoothing: float


@record
class CrossEntropyGrad:
    """inputs (logits, targets, g) or with weight: the gradient of the logits."""

    inputs: Inputs
    reduction: Reduction
    ignored: int
    smoothing: float


# -- images: [batch, channels, height, width]; pairs are (of y, of x) ------------------------------


@record
class Conv2d:
    """inputs (x [b,c,h,w], w [o,c/groups,kh,kw]) or with bias [o]: cross-correlation."""

    inputs: Inputs
    stride: Shape
    padding: Shape
    dilation: Shape
    groups: int


@record
class ConvTranspose2d:
    """inputs (x [b,o,p,q], w [o,c/groups,kh,kw]) or with bias [c]: [b,c,*size].

    The adjoint of Conv2d in its input: what Conv2d makes [b,o,p,q] of.
    """

    inputs: Inputs
    stride: Shape
    padding: Shape
    dilation: Shape
    groups: int
    size: Shape


@record
class Conv2dWeight:
    """inputs (x [b,c,h,w], g [b,o,p,q]): [o,c/groups,*kernel], the adjoint of Conv2d in w."""

    inputs: Inputs
    stride: Shape
    padding: Shape
    dilation: Shape
    groups: int
    kernel: Shape


@record
class MaxPool2d:
    """inputs (x, values) of one shape: values where x is greatest in each window.

    With (x, x) it is max pooling. The first of equals is taken, and a NaN before all else.
    """

    inputs: Inputs
    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    ceil: bool


@record
class MaxUnpool2d:
    """inputs (x, g): g added, in zeros of x's shape, where x is greatest in each window."""

    inputs: Inputs
    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    ceil: bool


@record
class AvgPool2d:
    """The mean of each window of x; `count_padding`: margins count as zeros."""

    inputs: Inputs
    kernel: Shape
    stride: Shape
    padding: Shape
    ceil: bool
    count_padding: bool


@record
class AvgUnpool2d:
    """The adjoint of AvgPool2d: g spread evenly over each window of an image of `size`."""

    inputs: Inputs
    kernel: Shape
    stride: Shape
    padding: Shape
    ceil: bool
    count_padding: bool
    size: Shape


@record
class Resize2d:
    """x [b,c,h,w] at another size of its images: [b,c,*size]."""

    inputs: Inputs
    size: Shape
    how: Resampling


@record
class Unresize2d:
    """The adjoint of Resize2d: g [b,c,p,q] spread over images of `size`."""

    inputs: Inputs
    size: Shape
    how: Resampling


# -- movement: views, but for Contiguous, Cat and Pad ----------------------------------------------


@record
class Reshape:
    """The same elements in row-major order under another shape; a view where strides allow."""

    inputs: Inputs
    shape: Shape


@record
class Permute:
    """Axes in another order."""

    inputs: Inputs
    axes: Shape


@record
class Expand:
    """Axes of length 1 repeated, new axes in front."""

    inputs: Inputs
    shape: Shape


@record
class Slice:
    """x[start, start + step, ...] of `length` elements along one axis; the step may be negative."""

    inputs: Inputs
    axis: int
    start: int
    length: int
    step: int = 1


@record
class Contiguous:
    """A copy in row-major order."""

    inputs: Inputs


@record
class Cat:
    """All inputs one after another along `axis`."""

    inputs: Inputs
    axis: int


@record
class Pad:
    """x with `before` and `after` it, on each axis, so many elements of `value`."""

    inputs: Inputs
    before: Shape
    after: Shape
    value: float = 0.0


# -- indices ---------------------------------------------------------------------------------------


@record
class Take:
    """inputs (table [n, ..], indices [..]): rows of the table; block rows are dequantised."""

    inputs: Inputs


@record
class IndexAdd:
    """inputs (x [n, ..], src [t, ..], indices [t]): x with the rows of src added at indices."""

    inputs: Inputs


@record
class Gather:
    """inputs (x, indices): elements of x along `axis`, as NumPy's take_along_axis."""

    inputs: Inputs
    axis: int


@record
class ScatterAdd:
    """inputs (x, src, indices): x with src added at indices along `axis`."""

    inputs: Inputs
    axis: int


@record
class Rope:
    """inputs (x [.., t, h, d], positions i32 [t]) or with factors f32 [width/2]; Su et al. 2021.

    `neox`: pairs (j, j + width/2); else pairs (2j, 2j + 1). `scale` multiplies the frequencies.
    """

    inputs: Inputs
    width: int
    base: float
    neox: bool
    scale: float = 1.0


# -- weights ---------------------------------------------------------------------------------------


@record
class Pack:
    """A [n, k] weight in panels of 16 rows (`f32x16`), as the f32 product reads it."""

    inputs: Inputs


# -- control ---------------------------------------------------------------------------------------


@record
class Checkpoint:
    """What `function(*inputs)` made, without a graph: backward calls it again, to have one."""

    inputs: Inputs
    function: Any
    made: Any  # a view


RECORDS: tuple[type, ...] = (
    Unary, ReluGrad, Binary, Compare, Where, Cast, Reduce, CumSum, Softmax, LayerNorm, RmsNorm,
    TopK, Sort, MatMul, Linear, LinearGrad, Attention, Nearest, CrossEntropy, CrossEntropyGrad,
    Conv2d, ConvTranspose2d, Conv2dWeight, MaxPool2d, MaxUnpool2d, AvgPool2d, AvgUnpool2d, Resize2d,
    Unresize2d, Reshape, Permute, Expand, Slice, Contiguous, Cat, Pad, Take, IndexAdd, Gather,
    ScatterAdd, Rope, Pack, Checkpoint,
)  # fmt: skip

# Why these have no gradient: their results are positions or choices, or they serve inference only.
NOT_DIFFERENTIABLE: dict[type, str] = {
    Compare: "the result is bool",
    Nearest: "a search",
    Pack: "an inference layout",
    LinearGrad: "with create_graph, linear takes a path that has one",
    CrossEntropyGrad: "with create_graph, cross_entropy takes a path that has one",
}


def describe(made: Any) -> str:
    """A record on one line: its family, parameters, and the shapes of its inputs."""
    shapes = [str(list(x.shape)) for x in made.inputs]
    fields = [f"{n}={getattr(made, n)}" for n in made.__match_args__ if n != "inputs"]
    return f"{type(made).__name__}({', '.join(shapes + fields)})"
