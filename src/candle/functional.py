"""Functions of tensors: the records that are not methods, and what is composed of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from . import losses, op
from .arguments import as_flag, as_float, as_int, as_list, one_of, require
from .dtype import DType
from .errors import DTypeError, OptionError, RangeError, ShapeError
from .op import Activation, Reduction
from .shape import Shape, as_ints
from .tensor import Tensor, require_tensors

_run = Tensor.apply  # of no tensor too: it says which operation wants one


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x - max) / sum along an axis, f32 or better inside. A row of all -inf gives NaN."""
    require_tensors("softmax", x)
    return x.softmax(axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of softmax, without overflow."""
    require_tensors("log_softmax", x)
    return x.softmax(axis, log=True)


def logsumexp(x: Tensor, axis: int = -1, keepdim: bool = False) -> Tensor:
    """log of the sum of exponentials along an axis, without overflow; -inf for a row of -inf."""
    require_tensors("logsumexp", x)

    keeps = as_flag("logsumexp", keepdim)

    def run(x: Tensor) -> Tensor:
        top = x.max(axis, keepdim=True).detach()
        top = top.abs().eq(math.inf).where_cond(0.0, top)
        return x.sub(top).exp().sum(axis, keepdim=True).log().add(top)

    total = _in_single(run, x)
    return total if keeps else total.squeeze(axis)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + epsilon) * weight + bias over the last axis (Ba et al. 2016)."""
    return _run(x, op.LayerNorm((x, weight, bias), epsilon))


def rms_norm(x: Tensor, weight: Tensor, epsilon: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis (Zhang and Sennrich 2019)."""
    return _run(x, op.RmsNorm((x, weight), epsilon))


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: Activation = Activation.NONE,
    exact: bool = False,
) -> Tensor:
    """activation(x @ weight.T + bias): x [.., k], weight [n, k], bias [n], result [.., n].

    The weight may be of a block type: then x is quantised to int8 by blocks of 32, unless `exact`.
    """
    if activation.__class__ is not Activation:
        require_activation("linear", activation)
    inputs = (x, weight) if bias is None else (x, weight, bias)
    return _run(x, op.Linear(inputs, activation, as_flag("linear", exact)))


def require_activation(name: str, activation: Activation) -> None:
    """Raises OptionError, with all there are, unless it is one."""
    require(name, f"an Activation ({', '.join(Activation.__members__)})", Activation, activation)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Tensor | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    position: int = 0,
    window: int = 0,
    softcap: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention: q [b,t,h,d], k and v [b,s,g,d], h a multiple of g.

    `lengths` (i32 [b]): valid keys of each row. `causal`: query i sees keys up to position + i;
    `window`: only the last so many of them (0: all). A query that sees no key gives zeros.
    """
    require_tensors("attention", q)
    inputs = (q, k, v) if lengths is None else (q, k, v, lengths)
    if q.rank != 4:
        raise ShapeError("attention", "q of [b,t,h,d]", list(q.shape))
    used = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    return _run(
        q, op.Attention(inputs, used, as_flag("attention", causal), position, window, softcap)
    )


def rope(
    x: Tensor,
    positions: Tensor,
    *,
    base: float = 10000.0,
    width: int | None = None,
    neox: bool = True,
    factors: Tensor | None = None,
    scale: float = 1.0,
) -> Tensor:
    """Rotary position embedding of x [.., t, h, d] at positions i32 [t] (Su et al. 2021)."""
    require_tensors("rope", x)
    if x.rank == 0:
        raise ShapeError("rope", "x of [.., t, h, d]", list(x.shape))
    inputs = (x, positions) if factors is None else (x, positions, factors)
    used = x.shape[-1] if width is None else as_int("rope", width)
    return _run(x, op.Rope(inputs, used, base, as_flag("rope", neox), scale))


def embedding(table: Tensor, indices: Tensor) -> Tensor:
    """Rows of table [n, d] at integer indices of any shape; block rows are dequantised."""
    return _run(table, op.Take((table, indices)))


def nearest(
    queries: Tensor, vectors: Tensor, k: int, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Exact top-k by dot product: (scores f32 [m, k], rows i64 [m, k]), descending, ties by row.

    queries [m, d] and vectors [n, d] are f32; `mask` u8 [n] leaves out rows with 0. Where fewer
    than k rows match, the rest is score -inf and row -1.
    """
    inputs = (queries, vectors) if mask is None else (queries, vectors, mask)
    scores, rows = _run(queries, op.Nearest(inputs, as_int("nearest", k)))
    return scores, rows


def pack(weight: Tensor) -> Tensor:
    """A [n, k] weight in the layout that the f32 product reads; for inference."""
    require_tensors("pack", weight)
    if weight.dtype is DType.F32X16:
        return weight
    if not weight.dtype.is_float:
        raise DTypeError("pack", "a float dtype", weight.dtype)
    return _run(weight, op.Pack((weight,)))


def normalize(x: Tensor, epsilon: float = 1e-12) -> Tensor:
    """Rows scaled to length 1; a row shorter than epsilon is divided by epsilon instead.

    Half precision is scaled in f32, which holds epsilon. Squares do not overflow: a row is divided
    by its greatest element first.
    """
    require_tensors("normalize", x)
    epsilon = as_float("normalize", epsilon, "an epsilon")

    def run(x: Tensor) -> Tensor:
        if not x.shape or not x.shape[-1]:
            raise ShapeError("normalize", "rows with elements", list(x.shape))
        top = x.detach().abs().max(-1, keepdim=True).maximum(epsilon)
        scaled = x.div(top)
        length = scaled.sqr().sum(-1, keepdim=True).sqrt()
        return scaled.div(length.maximum(top.recip().mul(epsilon)))

    return _in_single(run, x)


def mse(x: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """Mean squared error. Raises ShapeError unless the shapes are equal: losses never broadcast.

    `reduction`: mean, sum or none (an error each element).
    """
    _same_shape("mse", x, target)
    kind = _reduction("mse", reduction)
    return _in_single(lambda x, target: _reduced(x.sub(target).sqr(), kind), x, target)


def bce_with_logits(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Mean binary cross-entropy of sigmoid(logits), without overflow; targets are in [0, 1].

    `weight` scales elements, `pos_weight` the share of positive ones; both broadcast to the logits.
    `reduction`: mean, sum or none. Raises ShapeError unless logits and target have one shape.
    """
    _same_shape("bce_with_logits", logits, target)
    kind = _reduction("bce_with_logits", reduction)
    _require_given("bce_with_logits", weight, pos_weight)
    return _in_single(
        lambda *given: _reduced(_bce(*given), kind), logits, target, weight, pos_weight
    )


def _bce(
    logits: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None
) -> Tensor:
    # log(1 + exp(-x)); maximum, not relu: its slope at 0 is a half
    softplus = logits.neg().maximum(0.0).add(logits.abs().neg().exp().add(1.0).log())
    slope = target.neg().add(1.0)
    if pos_weight is not None:
        softplus = softplus.mul(target.mul(pos_weight.sub(1.0)).add(1.0))
    loss = logits.mul(slope).add(softplus)
    return loss if weight is None else loss.mul(weight)


def contrastive(x: Tensor, target: Tensor, temperature: float = 0.05) -> Tensor:
    """Each row of x [n, d] is to be nearest, by cosine, to its row of target [n, d] among all n.

    The mean cross-entropy of cosines / temperature (van den Oord et al. 2018). Raises ShapeError
    unless both are of one shape, OptionError for a temperature of 0 or less.
    """
    _same_shape("contrastive", x, target)
    if x.rank != 2 or not x.shape[0]:
        raise ShapeError("contrastive", "[n, d] with rows", list(x.shape))
    temperature = as_float("contrastive", temperature, "a temperature")
    if not temperature > 0:
        raise OptionError("contrastive", "a temperature above 0", temperature)

    def run(x: Tensor, target: Tensor) -> Tensor:
        rows, others = normalize(x), normalize(target)
        scores = rows.matmul(others.t()).mul(1.0 / temperature)
        own = rows.mul(others).sum(-1).mul(1.0 / temperature)
        return logsumexp(scores, -1).sub(own).mean()

    return _in_single(run, x, target)


def _same_shape(name: str, x: Tensor, target: Tensor) -> None:
    """Losses never broadcast: (n, 1) against (n,) would be n times n differences."""
    require_tensors(name, x, target)
    if x.shape == target.shape:
        return
    hint = ""
    if x.shape == (*target.shape, 1):
        hint = "squeeze(-1) the first, or unsqueeze(-1) the target"
    elif target.shape == (*x.shape, 1):
        hint = "squeeze(-1) the target"
    raise ShapeError(name, f"a target of {list(x.shape)}", list(target.shape), hint)


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """-log softmax(logits)[target] of each row: logits [n,c] or [n,c,..], integer targets [n,..].

    `weight` [c] multiplies the classes; a mean divides by the weights of the rows that count, and
    is 0 (not NaN) where every target is ignored. `reduction`: mean, sum or none. Raises RangeError
    (an IndexError) that names row and value for a target that is no class.
    """
    kind, ignored = _reduction("cross_entropy", reduction), as_int("cross_entropy", ignore_index)
    _require_given("cross_entropy", weight)
    smoothing = as_float("cross_entropy", label_smoothing, "a label_smoothing")
    logits, rows, shape = _class_rows("cross_entropy", logits, targets)

    def run(logits: Tensor, weight: Tensor | None) -> Tensor:
        inputs = (logits, rows) if weight is None else (logits, rows, weight)
        return _run(logits, op.CrossEntropy(inputs, kind, ignored, smoothing))

    made = _in_single(run, logits, weight)
    return made.reshape(shape) if kind is Reduction.NONE else made


def nll_loss(
    log_probs: Tensor,
    targets: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-log_probs[target] of each row, of what `log_softmax` gives: [n,c] or [n,c,..].

    All else is as with `cross_entropy`, which is this after log_softmax, but quicker.
    """
    kind, ignored = _reduction("nll_loss", reduction), as_int("nll_loss", ignore_index)
    log_probs, rows, shape = _class_rows("nll_loss", log_probs, targets)
    classes = log_probs.shape[1]
    _require_given("nll_loss", weight)
    if weight is not None and weight.shape != (classes,):
        raise ShapeError("nll_loss", f"a weight of [{classes}]", list(weight.shape))
    counts = rows.ne(ignored)
    places = counts.where_cond(rows, 0)

    def run(log_probs: Tensor, weight: Tensor | None) -> Tensor:
        try:
            own = log_probs.gather(places.unsqueeze(1), 1).squeeze(1).neg()
        except RangeError as error:
            raise losses.stray("nll_loss", classes, rows.data, ignored) from error
        shares = counts.to_dtype(own.dtype)
        if weight is not None:
            shares = shares.mul(weight.index_select(places))
        found = counts.where_cond(own.mul(shares), 0.0)
        if kind is not Reduction.MEAN:
            return _reduced(found, kind)
        total = shares.sum()
        return total.eq(0.0).where_cond(0.0, found.sum().div(total))

    made = _in_single(run, log_probs, weight)
    return made.reshape(shape) if kind is Reduction.NONE else made


def _class_rows(name: str, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Shape]:
    """Scores [n,c] or [n,c,..] and targets [n,..] as rows: [m,c], i64 [m] and the shape [n,..]."""
    require_tensors(name, scores, targets)
    if scores.rank < 2 or targets.shape != (scores.shape[0], *scores.shape[2:]):
        wanted = f"one target a row of {list(scores.shape)}"
        raise ShapeError(name, wanted, list(targets.shape))
    if targets.dtype.is_float:
        raise DTypeError(name, "integer targets", targets.dtype)
    rows = targets.to_dtype(DType.I64).reshape((targets.count,))
    if scores.rank > 2:
        moved = scores.permute((0, *range(2, scores.rank), 1))
        scores = moved.reshape((targets.count, scores.shape[1]))
    return scores, rows, targets.shape


def _reduced(loss: Tensor, kind: Reduction) -> Tensor:
    """What a loss makes of its elements."""
    if kind is Reduction.NONE:
        return loss
    return loss.sum() if kind is Reduction.SUM else loss.mean()


_REDUCTIONS = {"none": Reduction.NONE, "sum": Reduction.SUM, "mean": Reduction.MEAN}


def _reduction(name: str, text: str) -> Reduction:
    return one_of(name, "reduction", text, _REDUCTIONS)


# -- margins ---------------------------------------------------------------------------------------


_MODES = {mode: mode for mode in ("constant", "replicate", "reflect")}


def pad(
    x: Tensor,
    margins: Sequence[Sequence[int]],
    mode: str = "constant",
    value: float = 0.0,
) -> Tensor:
    """x with margins: a pair (before, after) for each of its last axes, in their order.

    `mode`: constant (of `value`), replicate (the edge again) or reflect (as in a mirror that stands
    on the edge; margins are shorter than the axis). Raises OptionError.
    """
    require_tensors("pad", x)
    pairs = [as_ints("pad", pair) for pair in as_list("pad", margins, "a pair for each axis")]
    if len(pairs) > x.rank or any(len(p) != 2 or min(p) < 0 for p in pairs):
        wanted = f"pairs of 0 or more for at most {x.rank} axes"
        raise OptionError("pad", wanted, [list(p) for p in pairs])
    whole = [(0, 0)] * (x.rank - len(pairs)) + pairs
    how = one_of("pad", "mode", mode, _MODES)
    if how == "constant":
        before, after = (tuple(p[side] for p in whole) for side in range(2))
        return _run(x, op.Pad((x,), before, after, value))
    for axis, pair in enumerate(whole):
        if any(pair):
            x = _beside_itself(how, x, axis, *pair)
    return x


def _beside_itself(mode: str, x: Tensor, axis: int, before: int, after: int) -> Tensor:
    """x between margins of its own elements along one axis."""
    n = x.shape[axis]
    if max(before, after) > (n - 1 if mode == "reflect" else 0 if n == 0 else 2**62):
        wanted = f"an axis longer than its margins of {before} and {after} ({mode})"
        raise ShapeError("pad", wanted, n)

    def margin(edge: int, inner: int, count: int) -> Tensor:
        if mode == "reflect":
            return x.narrow(axis, inner, count).flip(axis)
        return x.narrow(axis, edge, 1).expand((*x.shape[:axis], count, *x.shape[axis + 1 :]))

    left = [margin(0, 1, before)] if before else []
    right = [margin(n - 1, n - 1 - after, after)] if after else []
    return Tensor.cat([*left, x, *right], axis)


# -- images ----------------------------------------------------------------------------------------


def upsample_nearest2d(
    x: Tensor, size: int | Sequence[int] | None = None, *, scale: int | Sequence[int] | None = None
) -> Tensor:
    """Images x [b,c,h,w] of another `size`, or `scale` times as large: element floor(i h / p) at i.

    Exactly so, where others round the quotient first. Smaller sizes are legal. Raises OptionError.
    """
    return _resize("upsample_nearest2d", x, size, scale, op.Resampling.NEAREST)


def upsample_bilinear2d(
    x: Tensor,
    size: int | Sequence[int] | None = None,
    *,
    scale: int | Sequence[int] | None = None,
    align_corners: bool = False,
) -> Tensor:
    """Images x [b,c,h,w] of another `size` (or `scale` times as large), mixed of their neighbours.

    Centres of elements lie where those of the whole image do; with `align_corners` the outermost
    elements stay where they are. Smaller sizes are legal, and not smoothed. Raises OptionError.
    """
    how = (
        op.Resampling.CORNERS
        if as_flag("upsample_bilinear2d", align_corners)
        else op.Resampling.LINEAR
    )
    return _resize("upsample_bilinear2d", x, size, scale, how)


def _resize(
    name: str,
    x: Tensor,
    size: int | Sequence[int] | None,
    scale: int | Sequence[int] | None,
    how: op.Resampling,
) -> Tensor:
    require_tensors(name, x)
    if (size is None) == (scale is None):
        raise OptionError(name, "either a size or a scale", {"size": size, "scale": scale})
    if x.rank != 4:
        raise ShapeError(name, "x of [b,c,h,w]", list(x.shape))
    if scale is not None:
        wanted = tuple(n * k for n, k in zip(x.shape[2:], _pair("scale", scale), strict=True))
    else:
        wanted = _pair("size", size if size is not None else 0)
    return _in_single(lambda x: _run(x, op.Resize2d((x,), wanted, how)), x)


def _pair(name: str, value: int | Sequence[int]) -> Shape:
    """One number for both axes, or one for each: (of y, of x)."""
    found = as_ints(name, value)
    if len(found) not in (1, 2):
        raise OptionError(name, "a number or a pair", value)
    return found * 2 if len(found) == 1 else found


def _require_given(name: str, *values: Tensor | None) -> None:
    """Raises DTypeError unless those that are given are tensors."""
    require_tensors(name, *(v for v in values if v is not None))


def _in_single(function: Callable[..., Tensor], x: Tensor, *others: Tensor | None) -> Tensor:
    """Half precision through f32: the sums are kept there, and the result is rounded once."""
    if x.dtype not in (DType.F16, DType.BF16):
        return function(x, *others)
    wide = [t if t is None else t.to_dtype(DType.F32) for t in (x, *others)]
    return function(*wide).to_dtype(x.dtype)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of x [b,c,h,w] with weight [o,c/groups,kh,kw], plus bias [o]: [b,o,p,q].

    p = (h + 2 padding - dilation (kh - 1) - 1) // stride + 1. Raises ShapeError for sizes that do
    not fit, OptionError for a stride or dilation below 1.
    """
    require_tensors("conv2d", x, weight)
    _require_given("conv2d", bias)
    where = (_pair("stride", stride), _pair("padding", padding), _pair("dilation", dilation))
    parts = as_int("conv2d", groups, "an integer of groups")

    def run(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        inputs = (x, weight) if bias is None else (x, weight, bias)
        return _run(x, op.Conv2d(inputs, *where, parts))

    return _in_single(run, x, weight, bias)


def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """The adjoint of conv2d in its input: x [b,o,p,q], weight [o,c/groups,kh,kw], bias [c].

    h = (p - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1, where output_padding is
    below the stride: it chooses among the sizes that conv2d makes p of.
    """
    require_tensors("conv_transpose2d", x, weight)
    _require_given("conv_transpose2d", bias)
    where = (_pair("stride", stride), _pair("padding", padding), _pair("dilation", dilation))
    more = _pair("output_padding", output_padding)
    parts = as_int("conv_transpose2d", groups, "an integer of groups")
    if x.rank != 4 or weight.rank != 4:
        raise ShapeError("conv_transpose2d", "4 axes", [list(x.shape), list(weight.shape)])
    if not all(0 <= m < s for m, s in zip(more, where[0], strict=True)):
        raise OptionError("conv_transpose2d", f"an output_padding below {where[0]}", more)
    size = tuple(
        (x.shape[2 + i] - 1) * s - 2 * p + d * (weight.shape[2 + i] - 1) + more[i] + 1
        for i, (s, p, d) in enumerate(zip(*where, strict=True))
    )
    if min(size) < 0:
        raise ShapeError("conv_transpose2d", "a size of 0 or more", list(size))

    def run(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        inputs = (x, weight) if bias is None else (x, weight, bias)
        return _run(x, op.ConvTranspose2d(inputs, *where, parts, size))

    return _in_single(run, x, weight, bias)


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """conv2d along one axis: x [b,c,n], weight [o,c/groups,k], bias [o]."""
    _require_rows("conv1d", x, weight)
    made = conv2d(
        x.unsqueeze(2),
        weight.unsqueeze(2),
        bias,
        stride=(1, stride),
        padding=(0, padding),
        dilation=(1, dilation),
        groups=groups,
    )
    return made.squeeze(2)


def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: int = 1,
    padding: int = 0,
    output_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """conv_transpose2d along one axis: x [b,o,n], weight [o,c/groups,k], bias [c]."""
    _require_rows("conv_transpose1d", x, weight)
    made = conv_transpose2d(
        x.unsqueeze(2),
        weight.unsqueeze(2),
        bias,
        stride=(1, stride),
        padding=(0, padding),
        output_padding=(0, output_padding),
        dilation=(1, dilation),
        groups=groups,
    )
    return made.squeeze(2)


def _require_rows(name: str, x: Tensor, weight: Tensor) -> None:
    require_tensors(name, x, weight)
    if x.rank != 3 or weight.rank != 3:
        raise ShapeError(name, "3 axes", [list(x.shape), list(weight.shape)])


def max_pool2d(
    x: Tensor,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The greatest of each window of x [b,c,h,w]; the stride is the kernel's size by default.

    The gradient goes to the first of equals; a NaN wins. Padding never wins, and may be at most
    half of the window as dilated. Raises ShapeError for a window that does not fit.
    """
    require_tensors("max_pool2d", x)
    size = _pair("kernel", kernel)
    step = size if stride is None else _pair("stride", stride)
    margin, apart = _pair("padding", padding), _pair("dilation", dilation)
    ceil = as_flag("max_pool2d", ceil_mode)
    return _in_single(lambda x: _run(x, op.MaxPool2d((x, x), size, step, margin, apart, ceil)), x)


def avg_pool2d(
    x: Tensor,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of x [b,c,h,w]; `count_include_pad`: margins count as zeros."""
    require_tensors("avg_pool2d", x)
    size = _pair("kernel", kernel)
    step = size if stride is None else _pair("stride", stride)
    margin = _pair("padding", padding)
    ceil, whole = as_flag("avg_pool2d", ceil_mode), as_flag("avg_pool2d", count_include_pad)
    return _in_single(lambda x: _run(x, op.AvgPool2d((x,), size, step, margin, ceil, whole)), x)
