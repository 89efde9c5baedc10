"""Runs the records on images [batch, channels, height, width]: sizes, output, native call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _native, op
from .dtype import DType
from .errors import DTypeError, OptionError, ShapeError
from .launch import call, params
from .shape import Shape, as_shape
from .storage import View, new_view

Views = Sequence[View]

_CONV2D, _CONV2D_INPUT, _CONV2D_WEIGHT = map(
    _native.op_id, ("conv2d", "conv2d_input", "conv2d_weight")
)
_MAX_POOL, _MAX_UNPOOL = map(_native.op_id, ("max_pool2d", "max_unpool2d"))
_AVG_POOL, _AVG_UNPOOL = map(_native.op_id, ("avg_pool2d", "avg_unpool2d"))
_RESIZE, _UNRESIZE = map(_native.op_id, ("resize2d", "resize2d_grad"))
_MOST = 2**31  # of strides, paddings and dilations; the kernels' own limit


def check_pair(name: str, what: str, value: Shape, least: int) -> None:
    """Raises OptionError unless both are in [least, 2**31]."""
    if len(value) != 2 or not all(least <= v <= _MOST for v in value):
        raise OptionError(name, f"a {what} of at least {least}", value)


def window_size(name: str, n: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Places of a window along an axis of n. Raises ShapeError where it does not fit at all."""
    reach = dilation * (kernel - 1) + 1
    room = n + 2 * padding
    if reach > room:
        wanted = f"at least {reach} elements for a kernel of {kernel}, dilation {dilation}"
        raise ShapeError(name, wanted, f"{n} with a padding of {padding} on both sides")
    return (room - reach) // stride + 1


def _check_floats(name: str, views: Views) -> DType:
    dtype = views[0].dtype
    if dtype not in (DType.F32, DType.F64):
        raise DTypeError(name, "f32 or f64", dtype, "to_dtype() casts")
    for v in views[1:]:
        if v.dtype is not dtype:
            raise DTypeError(name, f"operands of one dtype ({dtype})", v.dtype)
    return dtype


def _check_where(name: str, record: Any) -> tuple[int, ...]:
    """Stride, padding, dilation and groups as the kernels take them."""
    check_pair(name, "stride", record.stride, 1)
    check_pair(name, "padding", record.padding, 0)
    check_pair(name, "dilation", record.dilation, 1)
    if record.groups < 1:
        raise OptionError(name, "groups of at least 1", record.groups)
    return (*record.stride, *record.padding, *record.dilation, record.groups)


def _result_size(name: str, record: Any, size: Shape, kernel: Shape) -> Shape:
    if min(kernel) < 1:
        raise ShapeError(name, "a kernel of at least one element", list(kernel))
    where = zip(size, kernel, record.stride, record.padding, record.dilation, strict=True)
    return tuple(window_size(name, *axis) for axis in where)


def _require_images(name: str, *views: View) -> None:
    for v in views:
        if v.layout.rank != 4:
            raise ShapeError(name, "4 axes", list(v.layout.shape))


def _bias(name: str, views: Views, channels: int) -> View | None:
    if len(views) < 3:
        return None
    if views[2].layout.shape != (channels,):
        raise ShapeError(name, f"a bias of [{channels}]", list(views[2].layout.shape))
    return views[2]


def _conv2d(record: op.Conv2d, views: Views) -> View:
    x, w = views[:2]
    name = "conv2d"
    dtype, given = _check_floats(name, views), _check_where(name, record)
    _require_images(name, x, w)
    (b, c, *size), (o, per_group, *kernel) = x.layout.shape, w.layout.shape
    if c != per_group * record.groups or o % record.groups:
        wanted = f"weights of [a multiple of {record.groups}, {c} / {record.groups}, ..]"
        raise ShapeError(name, wanted, f"{list(w.layout.shape)} for {list(x.layout.shape)}")
    made = _result_size(name, record, tuple(size), tuple(kernel))
    out = new_view(dtype, (b, o, *made))
    call(_CONV2D, [out, x, w, _bias(name, views, o)], params(*given))
    return out


def _conv_transpose2d(record: op.ConvTranspose2d, views: Views) -> View:
    x, w = views[:2]
    name = "conv_transpose2d"
    dtype, given = _check_floats(name, views), _check_where(name, record)
    _require_images(name, x, w)
    (b, o, *size), (rows, per_group, *kernel) = x.layout.shape, w.layout.shape
    if o != rows or o % record.groups:
        wanted = f"weights of [{o}, ..] for {list(x.layout.shape)}, {record.groups} groups"
        raise ShapeError(name, wanted, list(w.layout.shape))
    if _result_size(name, record, record.size, tuple(kernel)) != tuple(size):
        raise ShapeError(name, f"a size that conv2d makes {size} of", list(record.size))
    channels = per_group * record.groups
    out = new_view(dtype, (b, channels, *record.size))
    call(_CONV2D_INPUT, [out, x, w, _bias(name, views, channels)], params(*given))
    return out


def _conv2d_weight(record: op.Conv2dWeight, views: Views) -> View:
    x, g = views
    name = "conv2d_weight"
    dtype, given = _check_floats(name, views), _check_where(name, record)
    _require_images(name, x, g)
    (b, c, *size), (b2, o, *made) = x.layout.shape, g.layout.shape
    if b != b2 or c % record.groups or o % record.groups:
        wanted = f"one batch, and channels in {record.groups} groups"
        raise ShapeError(name, wanted, [list(x.layout.shape), list(g.layout.shape)])
    if _result_size(name, record, tuple(size), record.kernel) != tuple(made):
        raise ShapeError(name, f"a kernel that makes {made} of {size}", list(record.kernel))
    out = new_view(dtype, (o, c // record.groups, *record.kernel))
    call(_CONV2D_WEIGHT, [out, x, g], params(*given))
    return out


# -- pooling ---------------------------------------------------------------------------------------


def _pool_size(name: str, record: Any, size: Shape, dilation: Shape = (1, 1)) -> Shape:
    """Windows along both axes; one that `ceil` adds must begin in the image or its first margin."""
    check_pair(name, "kernel", record.kernel, 1)
    check_pair(name, "stride", record.stride, 1)
    check_pair(name, "padding", record.padding, 0)
    check_pair(name, "dilation", dilation, 1)
    made = []
    for n, k, s, p, d in zip(
        size, record.kernel, record.stride, record.padding, dilation, strict=True
    ):
        if 2 * p > d * (k - 1) + 1:
            raise OptionError(name, "a padding of at most half the window", (p, k, d))
        count = window_size(name, n, k, s, p, d)
        more = (n + 2 * p - d * (k - 1) - 1) % s
        made.append(count + (record.ceil and more != 0 and count * s < n + p))
    return tuple(made)


def _max_pool2d(record: op.MaxPool2d, views: Views) -> View:
    x, values = views
    name = "max_pool2d"
    dtype = _check_floats(name, views)
    _require_images(name, x)
    if values.layout.shape != x.layout.shape:
        raise ShapeError(name, f"values of {list(x.layout.shape)}", list(values.layout.shape))
    made = _pool_size(name, record, x.layout.shape[2:], record.dilation)
    out = new_view(dtype, (*x.layout.shape[:2], *made))
    given = (*record.kernel, *record.stride, *record.padding, *record.dilation)
    call(_MAX_POOL, [out, x, values], params(*given))
    return out


def _max_unpool2d(record: op.MaxUnpool2d, views: Views) -> View:
    x, g = views
    name = "max_unpool2d"
    dtype = _check_floats(name, views)
    _require_images(name, x, g)
    made = _pool_size(name, record, x.layout.shape[2:], record.dilation)
    _require_windows(name, (*x.layout.shape[:2], *made), g)
    out = new_view(dtype, x.layout.shape)
    given = (*record.kernel, *record.stride, *record.padding, *record.dilation)
    call(_MAX_UNPOOL, [out, x, g], params(*given))
    return out


def _require_windows(name: str, wanted: Shape, g: View) -> None:
    if g.layout.shape != wanted:
        raise ShapeError(name, f"one element a window, {list(wanted)}", list(g.layout.shape))


def _avg_pool2d(record: op.AvgPool2d, views: Views) -> View:
    (x,) = views
    name = "avg_pool2d"
    dtype = _check_floats(name, views)
    _require_images(name, x)
    made = _pool_size(name, record, x.layout.shape[2:])
    out = new_view(dtype, (*x.layout.shape[:2], *made))
    given = (*record.kernel, *record.stride, *record.padding, int(record.count_padding))
    call(_AVG_POOL, [out, x], params(*given))
    return out


def _avg_unpool2d(record: op.AvgUnpool2d, views: Views) -> View:
    (g,) = views
    name = "avg_unpool2d"
    dtype = _check_floats(name, views)
    _require_images(name, g)
    made = _pool_size(name, record, record.size)
    _require_windows(name, (*g.layout.shape[:2], *made), g)
    out = new_view(dtype, (*g.layout.shape[:2], *record.size))
    given = (*record.kernel, *record.stride, *record.padding, int(record.count_padding))
    call(_AVG_UNPOOL, [out, g], params(*given))
    return out


def _resized(name: str, record: Any, x: View, image: Shape, other: Shape) -> View:
    """Room for images of `record.size`; the two sizes are those of the image and of the other."""
    dtype = _check_floats(name, (x,))
    if len(record.size) != 2 or min(record.size) < 0:
        raise OptionError(name, "two sizes of 0 or more", record.size)
    if 0 in [n for n, m in zip(image, other, strict=True) if m]:
        raise ShapeError(name, "images with elements", list(image))
    return new_view(dtype, as_shape(name, (*x.layout.shape[:2], *record.size)))


def _resize2d(record: op.Resize2d, views: Views) -> View:
    (x,) = views
    _require_images("resize2d", x)
    out = _resized("resize2d", record, x, x.layout.shape[2:], record.size)
    call(_RESIZE, [out, x], params(record.how.value))
    return out


def _unresize2d(record: op.Unresize2d, views: Views) -> View:
    (g,) = views
    _require_images("unresize2d", g)
    out = _resized("unresize2d", record, g, record.size, g.layout.shape[2:])
    call(_UNRESIZE, [out, g], params(record.how.value))
    return out


RUNNERS: dict[type, Callable[[Any, Views], Any]] = {
    op.Conv2d: _conv2d,
    op.ConvTranspose2d: _conv_transpose2d,
    op.Conv2dWeight: _conv2d_weight,
    op.MaxPool2d: _max_pool2d,
    op.MaxUnpool2d: _max_unpool2d,
    op.AvgPool2d: _avg_pool2d,
    op.AvgUnpool2d: _avg_unpool2d,
    op.Resize2d: _resize2d,
    op.Unresize2d: _unresize2d,
}
