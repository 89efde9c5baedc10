"""The cases of operations on images; `cases` joins them to the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from candle import functional as F
from candle import op
from support import images
from support.case import Case, distinct, uniform

# name: x, weight, and what is not the default
_CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 5, 6), (4, 3, 3, 2), {}),
    "padded": ((2, 2, 4, 5), (3, 2, 3, 3), {"padding": (1, 2)}),
    "strided": ((1, 2, 7, 8), (3, 2, 3, 3), {"stride": (2, 3), "padding": (1, 1)}),
    "dilated": ((1, 2, 7, 6), (2, 2, 3, 2), {"dilation": (2, 3), "padding": (2, 0)}),
    "grouped": ((2, 4, 4, 4), (6, 2, 2, 2), {"groups": 2}),
    "depthwise": ((1, 3, 5, 5), (3, 1, 3, 3), {"groups": 3, "padding": (1, 1), "stride": (2, 1)}),
    "of nothing": ((0, 2, 4, 4), (3, 2, 2, 2), {}),
}


def _convolutions() -> Iterator[Case]:
    for name, (x, w, given) in _CONVOLUTIONS.items():
        yield Case(
            f"conv2d {name}",
            op.Conv2d,
            lambda x, w, bias, given=given: F.conv2d(x, w, bias, **given),
            lambda x, w, bias, given=given: images.conv2d(x, w, bias, **given),
            uniform(x, w, w[:1]),
            factor=16.0,
        )
        where = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)} | given
        axes = zip(x[2:], w[2:], where["stride"], where["padding"], where["dilation"], strict=True)
        made = (x[0], w[0], *(images.conv_size(*axis) for axis in axes))
        more = tuple(
            (x[2 + i] + 2 * where["padding"][i] - where["dilation"][i] * (w[2 + i] - 1) - 1)
            % where["stride"][i]
            for i in range(2)
        )
        yield Case(
            f"conv_transpose2d {name}",
            op.ConvTranspose2d,
            lambda g, w, b, more=more, given=given: F.conv_transpose2d(
                g, w, b, output_padding=more, **given
            ),
            lambda g, w, b, size=x[2:], given=given: images.conv2d_input(g, w, size, b, **given),
            uniform(made, w, (x[1],)),
            factor=16.0,
        )
        fields = (where["stride"], where["padding"], where["dilation"], given.get("groups", 1))
        yield Case(
            f"conv2d_weight {name}",
            op.Conv2dWeight,
            lambda x, g, fields=fields, kernel=w[2:]: x.apply(
                op.Conv2dWeight((x, g), *fields, kernel)
            ),
            lambda x, g, given=given, kernel=w[2:]: images.conv2d_weight(x, g, kernel, **given),
            uniform(x, made),
            dtypes=("f32", "f64"),
            factor=32.0,
        )
    yield Case(
        "conv1d",
        op.Conv2d,
        lambda x, w: F.conv1d(x, w, stride=2, padding=1),
        lambda x, w: images.conv2d(x[:, :, None], w[:, :, None], None, (1, 2), (0, 1))[:, :, 0],
        uniform((2, 3, 9), (4, 3, 3)),
        factor=16.0,
    )
    yield Case(
        "conv_transpose1d",
        op.ConvTranspose2d,
        lambda x, w: F.conv_transpose1d(x, w, stride=2, output_padding=1),
        lambda x, w: images.conv2d_input(x[:, :, None], w[:, :, None], (1, 10), None, (1, 2))[
            :, :, 0
        ],
        uniform((2, 3, 4), (3, 2, 3)),
        factor=16.0,
    )


# name: x, kernel, stride, padding, dilation, ceil
_POOLS: dict[str, tuple[Any, ...]] = {
    "pairs": ((2, 3, 6, 8), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "odd": ((2, 2, 7, 5), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "overlapping": ((1, 2, 6, 7), (3, 2), (1, 1), (1, 1), (1, 1), False),
    "dilated": ((1, 2, 7, 8), (3, 2), (2, 1), (2, 1), (2, 3), False),
    "ceil": ((1, 2, 6, 7), (3, 2), (2, 3), (1, 0), (1, 1), True),
    "of nothing": ((2, 0, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1), False),
}


def _pools() -> Iterator[Case]:
    for name, (x, kernel, stride, padding, dilation, ceil) in _POOLS.items():
        where, apart = (kernel, stride, padding), (*x[:2],)
        made = tuple(
            images.pool_size(
                x[2 + i], kernel[i], stride[i], padding[i], dilation[i] if dilation else 1, ceil
            )
            for i in range(2)
        )
        full = (*where, dilation, ceil)
        yield Case(
            f"max_pool2d {name}",
            op.MaxPool2d,
            lambda x, full=full: F.max_pool2d(x, *full),
            lambda x, full=full: images.max_pool2d(x, *full),
            distinct(x),
            order=2,
        )
        yield Case(
            f"max_unpool2d {name}",
            op.MaxUnpool2d,
            lambda x, g, full=full: x.detach().apply(op.MaxUnpool2d((x.detach(), g), *full)),
            lambda x, g, full=full: images.adjoint(
                lambda v: images.max_pool2d(x, *full, values=v), x.shape, g
            ),
            distinct(x, (*apart, *made)),
            dtypes=("f32", "f64"),
            order=0,
        )
        if dilation != (1, 1):
            continue
        for counted in (True, False):
            fields = (*where, ceil, counted)
            yield Case(
                f"avg_pool2d {name}{'' if counted else ' without margins'}",
                op.AvgPool2d,
                lambda x, fields=fields: F.avg_pool2d(x, *fields),
                lambda x, fields=fields: images.avg_pool2d(x, *fields),
                uniform(x),
            )
            yield Case(
                f"avg_unpool2d {name}{'' if counted else ' without margins'}",
                op.AvgUnpool2d,
                lambda g, fields=fields, size=x[2:]: g.apply(op.AvgUnpool2d((g,), *fields, size)),
                lambda g, fields=fields, x=x: images.adjoint(
                    lambda v: images.avg_pool2d(v, *fields), x, g
                ),
                uniform((*apart, *made)),
                dtypes=("f32", "f64"),
            )


# x, and its other size
_RESIZES = (
    ((2, 3, 4, 5), (8, 10)),
    ((1, 2, 5, 7), (3, 2)),
    ((2, 1, 1, 3), (4, 1)),
    ((0, 2, 3, 3), (6, 6)),
)


def _resizes() -> Iterator[Case]:
    for x, size in _RESIZES:
        for how in op.Resampling:
            word = how.name.lower()
            run = {
                "nearest": F.upsample_nearest2d,
                "linear": F.upsample_bilinear2d,
                "corners": lambda x, size: F.upsample_bilinear2d(x, size, align_corners=True),
            }[word]
            yield Case(
                f"resize2d {word} {x} to {size}",
                op.Resize2d,
                lambda x, run=run, size=size: run(x, size),
                lambda x, size=size, word=word: images.resize2d(x, size, word),
                uniform(x),
            )
            yield Case(
                f"unresize2d {word} {size} to {x}",
                op.Unresize2d,
                lambda g, size=x[2:], how=how: g.apply(op.Unresize2d((g,), size, how)),
                lambda g, size=x[2:], word=word: images.unresize2d(g, size, word),
                uniform((*x[:2], *size)),
                dtypes=("f32", "f64"),
                factor=16.0,
            )


CASES: tuple[Case, ...] = (*_convolutions(), *_pools(), *_resizes())
