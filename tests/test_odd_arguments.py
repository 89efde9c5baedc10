"""A sweep: odd values in each place of each public call of the engine.

A call answers something, or raises an error of ours; what Python raises by itself for values of the
wrong kind (TypeError, AttributeError, OverflowError, ...) would say nothing of the operation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import candle
from candle import Device, DType, Generator, Tensor, Var, datasets, nn, optim, testing
from candle import functional as F
from candle.device import DeviceKind
from candle.errors import CandleError
from candle.op import Activation
from candle.weights import Weights


class Anything:
    """What can be called with anything, and gives what nobody asked for."""

    def __init__(self, *args: object, **more: object) -> None:
        pass


ODD: dict[str, Any] = {
    "text": "x",
    "bytes": b"",
    "None": None,
    "-1": -1,
    "2**70": 2**70,
    "10**400": 10**400,
    "1.5": 1.5,
    "nan": math.nan,
    "inf": math.inf,
    "list": [1],
    "empty list": [],
    "list of texts": ["x"],
    "list of lists": [[1, 2]],
    "dict": {},
    "object": object(),
    "complex": 1j,
    "bool": True,
    "np.float32": np.float32(0.5),
    "np.int64": np.int64(3),
    "array": np.arange(6.0).reshape(2, 3),
    "tensor": Tensor([[1, 2, 3], [0, 1, 2]]),
    "scalar tensor": Tensor(2.5),
    "surrogate": "\ud800",
    "NUL": "a\0b",
    "function": lambda *args, **more: "x",
    "class": Anything,
}

X = Tensor([[0.5, -1.0, 2.0], [1.5, 0.0, -0.5]])
V = Tensor([0.5, -1.0, 2.0])
I = Tensor([0, 1])  # noqa: E741
M = Tensor.ones((4, 3, 6, 6))
K = Tensor.ones((3, 3, 2, 2))
R = Tensor.ones((2, 3, 8))
Q = Tensor.ones((1, 2, 2, 4))
BIAS = Tensor.ones(3)


class Case:
    """A call that is right, and how to make it: each of its arguments is replaced in turn."""

    def __init__(self, call: Callable[..., object], *args: Any, **more: Any) -> None:
        self.call, self.args, self.more = call, args, more

    def with_odd(self, value: Any) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
        for k in range(len(self.args)):
            yield f"#{k}", (*self.args[:k], value, *self.args[k + 1 :]), self.more
        for name in self.more:
            yield name, self.args, {**self.more, name: value}


def method(name: str, *args: Any, on: Tensor = X, **more: Any) -> Case:
    return Case(lambda *a, **m: getattr(on, name)(*a, **m), *args, **more)


def then(make: Callable[..., Any], *given: Any) -> Callable[..., object]:
    """What is made is used too: an option that is only kept would be refused by nobody."""

    def call(*args: Any, **more: Any) -> object:
        made = make(*args, **more)
        return repr(made), made(*given)

    return call


BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_div",
    "rem",
    "pow",
    "maximum",
    "minimum",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
]
ALONE = [
    "abs",
    "buffer",
    "ceil",
    "contiguous",
    "copy",
    "cos",
    "dequantize",
    "detach",
    "erf",
    "exp",
    "floor",
    "grad",
    "is_contiguous",
    "item",
    "log",
    "neg",
    "numpy",
    "ones_like",
    "recip",
    "relu",
    "retain_grad",
    "rsqrt",
    "round",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sqr",
    "sqrt",
    "sum_all",
    "t",
    "tanh",
    "to_scalar",
    "to_vec",
    "zero_grad",
    "zeros_like",
]

TENSOR: dict[str, Case] = {
    **{name: method(name, X) for name in BINARY},
    "__add__": Case(lambda v: X + v, X),
    "__rsub__": Case(lambda v: v - X, 1.0),
    "__eq__": Case(lambda v: v == X, X),
    "__getitem__": Case(lambda v: X[v], 0),
    "__getitem__ of parts": Case(lambda a, b: X[a, b], 0, slice(None)),
    "slice": Case(lambda a, b, c: X[a:b:c], 0, 1, 1),
    "i": method("i", 0, 0),
    "Tensor": Case(Tensor, [1.0], dtype="f32"),
    "new": Case(Tensor.new, [1.0], dtype="f32"),
    "Var": Case(Var, [1.0], dtype="f32"),
    "set": Case(lambda v: Var(X).set(v), X),
    "full": Case(Tensor.full, (2,), 1.0, dtype="f32"),
    "full of ints": Case(Tensor.full, (2,), 1, dtype="u8"),
    "zeros": Case(Tensor.zeros, (2,), dtype="f32"),
    "ones": Case(Tensor.ones, (2,), dtype="f32"),
    "arange": Case(Tensor.arange, 0, 3, step=1, dtype="f32"),
    "rand": Case(Tensor.rand, (2,), source=Generator(1)),
    "randn": Case(Tensor.randn, (2,), source=Generator(1)),
    "from_buffer": Case(Tensor.from_buffer, bytes(8), "f32", (1,), offset=0),
    "from_numpy": Case(Tensor.from_numpy, np.ones(2)),
    "from_dlpack": Case(Tensor.from_dlpack, np.ones(2)),
    "of_view": Case(Tensor.of_view, X.data),
    "apply": method("apply", candle.op.Contiguous((X,))),
    "dim": method("dim", 0),
    "gelu": method("gelu", tanh=True),
    "where_cond": method("where_cond", X, X, on=X.gt(0.0)),
    "where_cond of numbers": method("where_cond", 1.0, 0.0, on=X.gt(0.0)),
    "to_dtype": method("to_dtype", "f64"),
    "to_device": method("to_device", "cpu"),
    "sum": method("sum", 0, keepdim=True),
    "mean": method("mean", 0, keepdim=True),
    "max": method("max", 0, keepdim=True),
    "min": method("min", 0, keepdim=True),
    "argmax": method("argmax", 0, keepdim=True),
    "argmin": method("argmin", 0, keepdim=True),
    "var": method("var", 0, keepdim=True, correction=1),
    "cumsum": method("cumsum", 0),
    "topk": method("topk", 1),
    "sort": method("sort", 0, descending=True),
    "softmax": method("softmax", 0, log=True),
    "matmul": method("matmul", X.t()),
    "reshape": method("reshape", (3, 2)),
    "reshape to parts": Case(lambda n, m: X.reshape((n, m)), 3, 2),
    "flatten_from": method("flatten_from", 0),
    "permute": method("permute", (1, 0)),
    "transpose": method("transpose", 0, 1),
    "unsqueeze": method("unsqueeze", 0),
    "squeeze": method("squeeze", 0, on=X.unsqueeze(0)),
    "expand": method("expand", (2, 3)),
    "narrow": method("narrow", 0, 0, 1),
    "flip": method("flip", 0),
    "chunk": method("chunk", 2, axis=0),
    "cat": Case(Tensor.cat, [X, X], axis=0),
    "stack": Case(Tensor.stack, [X, X], axis=0),
    "index_select": method("index_select", I, axis=0),
    "index_select of columns": method("index_select", I, axis=1),
    "gather": method("gather", Tensor([[0, 1, 0]]), axis=0),
    "index_add": method("index_add", I, X, axis=0),
    "scatter_add": method("scatter_add", Tensor([[0, 1, 0]]), Tensor.ones((1, 3)), axis=0),
    "new_indices": method("new_indices", [0, 1]),
    "new_range": method("new_range", 0, 2, 1),
    "backward": Case(lambda g, *flags: Var(X).mul(2.0).backward(g, *flags), X, False, False),
}

FUNCTIONAL: dict[str, Case] = {
    "softmax": Case(F.softmax, X, axis=0),
    "log_softmax": Case(F.log_softmax, X, axis=0),
    "logsumexp": Case(F.logsumexp, X, axis=0, keepdim=False),
    "layer_norm": Case(F.layer_norm, X, V, V, epsilon=1e-5),
    "rms_norm": Case(F.rms_norm, X, V, epsilon=1e-5),
    "linear": Case(F.linear, X, X, Tensor.ones(2), activation=Activation.RELU, exact=True),
    "attention": Case(
        F.attention,
        *(Q, Q, Q, Tensor([1], "i32")),
        **{"scale": 0.5, "causal": True, "position": 0, "window": 1, "softcap": 1.0},
    ),
    "attention of vars": Case(
        lambda v, **more: F.attention(Var(Q), v, v, **more).sum().backward(),
        Q,
        **{"scale": 0.5, "causal": True, "position": 0, "window": 1, "softcap": 1.0},
    ),
    "rope": Case(
        F.rope,
        *(Q, Tensor([0, 1], "i32")),
        **{"base": 10.0, "width": 2, "neox": True, "factors": Tensor([1.0]), "scale": 1.0},
    ),
    "embedding": Case(F.embedding, X, I),
    "nearest": Case(F.nearest, X, X, 1, mask=Tensor([1, 1], "u8")),
    "pack": Case(F.pack, X),
    "normalize": Case(F.normalize, X, epsilon=1e-6),
    "mse": Case(F.mse, X, X, reduction="sum"),
    "bce_with_logits": Case(F.bce_with_logits, X, X, weight=V, pos_weight=V, reduction="sum"),
    "contrastive": Case(F.contrastive, X, X, temperature=0.1),
    "cross_entropy": Case(
        F.cross_entropy,
        *(X, I),
        **{"weight": V, "ignore_index": 1, "label_smoothing": 0.1, "reduction": "sum"},
    ),
    "nll_loss": Case(F.nll_loss, X, I, weight=V, ignore_index=1, reduction="sum"),
    "pad": Case(F.pad, X, [(1, 1)], mode="constant", value=1.0),
    "pad of parts": Case(lambda a, b, m: F.pad(X, [(a, b)], m), 1, 1, "reflect"),
    "upsample_nearest2d": Case(F.upsample_nearest2d, M, size=4),
    "upsample_nearest2d by a scale": Case(F.upsample_nearest2d, M, scale=(2, 2)),
    "upsample_bilinear2d": Case(F.upsample_bilinear2d, M, size=4, align_corners=True),
    "conv1d": Case(
        F.conv1d, R, Tensor.ones((3, 3, 2)), BIAS, stride=1, padding=0, dilation=1, groups=1
    ),
    "conv2d": Case(F.conv2d, M, K, BIAS, stride=1, padding=0, dilation=1, groups=1),
    "conv2d of halves": Case(
        lambda bias: F.conv2d(M.to_dtype("f16"), K.to_dtype("f16"), bias), BIAS.to_dtype("f16")
    ),
    "cross_entropy of halves": Case(
        lambda weight: F.cross_entropy(X.to_dtype("f16"), I, weight=weight), V
    ),
    "conv_transpose1d": Case(
        F.conv_transpose1d,
        *(R, Tensor.ones((3, 3, 2)), BIAS),
        **{"stride": 2, "padding": 0, "output_padding": 1, "dilation": 1, "groups": 1},
    ),
    "conv_transpose2d": Case(
        F.conv_transpose2d,
        *(M, K, BIAS),
        **{"stride": 2, "padding": 0, "output_padding": 1, "dilation": 1, "groups": 1},
    ),
    "max_pool2d": Case(F.max_pool2d, M, 2, stride=2, padding=0, dilation=1, ceil_mode=True),
    "avg_pool2d": Case(
        F.avg_pool2d, M, 2, stride=2, padding=0, ceil_mode=True, count_include_pad=True
    ),
}

VB = nn.VarBuilder()


def builder(**more: Any) -> object:
    vb = nn.VarBuilder(**more)
    return "w" in vb, vb.get((2, 2), "w", nn.init.zeros)


def drawn(make: Callable[..., Any]) -> Callable[..., object]:
    return lambda *args, **more: make(*args, **more)((3, 4), Generator(1))


def norm2d(*args: Any, **more: Any) -> object:
    layer = nn.BatchNorm2d(*args, **more)
    return repr(layer), layer(M), layer.eval()(M)


NN: dict[str, Case] = {
    "Linear": Case(
        then(nn.Linear, X), X, bias=Tensor.ones(2), activation=Activation.RELU, exact=True
    ),
    "Linear.new": Case(then(nn.Linear.new, X), 3, 2, None, bias=True, activation=Activation.RELU),
    "Linear.forward": Case(nn.Linear(X), X),
    "Conv1d": Case(
        then(nn.Conv1d, R),
        *(Tensor.ones((3, 3, 2)), BIAS),
        **{"stride": 1, "padding": 0, "dilation": 1, "groups": 1},
    ),
    "Conv1d.new": Case(then(nn.Conv1d.new, R), 3, 3, 2, None, bias=True, groups=1, stride=1),
    "Conv1d.forward": Case(nn.Conv1d(Tensor.ones((3, 3, 2))), R),
    "Conv2d": Case(then(nn.Conv2d, M), K, BIAS, stride=1, padding=0, dilation=1, groups=1),
    "Conv2d.new": Case(then(nn.Conv2d.new, M), 3, 3, 2, None, bias=True, groups=1, stride=1),
    "Conv2d.forward": Case(nn.Conv2d(K), M),
    "ConvTranspose2d": Case(
        then(nn.ConvTranspose2d, M), K, BIAS, output_padding=0, stride=1, padding=0, groups=1
    ),
    "ConvTranspose2d.new": Case(
        then(nn.ConvTranspose2d.new, M), 3, 3, 2, None, bias=True, groups=1, output_padding=0
    ),
    "ConvTranspose2d.forward": Case(nn.ConvTranspose2d(K), M),
    "MaxPool2d": Case(then(nn.MaxPool2d, M), 2, stride=2, padding=0, ceil_mode=True),
    "MaxPool2d.forward": Case(nn.MaxPool2d(2), M),
    "AvgPool2d": Case(then(nn.AvgPool2d, M), 2, stride=2, padding=0, count_include_pad=True),
    "AvgPool2d.forward": Case(nn.AvgPool2d(2), M),
    "Dropout": Case(then(nn.Dropout, X), 0.5, generator=Generator(1)),
    "Dropout.forward": Case(nn.Dropout(0.5), X),
    "Embedding": Case(then(nn.Embedding, I), X),
    "Embedding.new": Case(then(nn.Embedding.new, I), 4, 2, None),
    "Embedding.forward": Case(nn.Embedding(X), I),
    "LayerNorm": Case(then(nn.LayerNorm, X), V, V, epsilon=1e-5),
    "LayerNorm.new": Case(then(nn.LayerNorm.new, X), 3, None, epsilon=1e-5),
    "LayerNorm.forward": Case(nn.LayerNorm(V, V), X),
    "RmsNorm": Case(then(nn.RmsNorm, X), V, epsilon=1e-5),
    "RmsNorm.new": Case(then(nn.RmsNorm.new, X), 3, None, epsilon=1e-5),
    "RmsNorm.forward": Case(nn.RmsNorm(V), X),
    "GroupNorm": Case(then(nn.GroupNorm, M), 3, V, V, epsilon=1e-5),
    "GroupNorm.new": Case(then(nn.GroupNorm.new, M), 3, 3, None, epsilon=1e-5),
    "GroupNorm.forward": Case(nn.GroupNorm(3, V, V), M),
    "BatchNorm2d": Case(norm2d, V, V, V, V, epsilon=1e-5, momentum=0.1),
    "BatchNorm2d.new": Case(then(nn.BatchNorm2d.new, M), 3, None, epsilon=1e-5, momentum=0.1),
    "BatchNorm2d.forward": Case(lambda x: nn.BatchNorm2d.new(3)(x), M),
    "Sequential": Case(then(nn.Sequential, X), Tensor.relu, nn.Linear(X)),
    "Sequential.append": Case(lambda f: nn.Sequential().append(f), Tensor.relu),
    "Sequential.getitem": Case(lambda k: nn.Sequential(Tensor.relu)[k], 0),
    "Module.train": Case(lambda mode: nn.Linear(X).train(mode), True),
    "Module.named_parameters": Case(lambda p: [*nn.Linear(X).named_parameters(p)], "a."),
    "Module.named_buffers": Case(lambda p: [*nn.Linear(X).named_buffers(p)], "a."),
    "Module.load_state_dict": Case(
        lambda state, strict: nn.Linear(X).load_state_dict(state, strict), {"weight": X}, True
    ),
    "Module.load_state_dict of": Case(lambda w: nn.Linear(X).load_state_dict({"weight": w}), X),
    "VarBuilder": Case(builder, source=None, generator=Generator(1), dtype="f32", trainable=True),
    "VarBuilder.get": Case(lambda *a: nn.VarBuilder().get(*a), (2,), "w", nn.init.zeros),
    "VarBuilder.pp": Case(lambda n: VB.pp(n).prefix, "a"),
    "VarBuilder.contains": Case(lambda n: n in VB, "a"),
    "init.constant": Case(drawn(nn.init.constant), 1.0),
    "init.uniform": Case(drawn(nn.init.uniform), 0.0, 1.0),
    "init.normal": Case(drawn(nn.init.normal), 0.0, 1.0),
    "init.fans": Case(nn.init.fans, (2, 3)),
    "init.by_fan_in": Case(drawn(nn.init.by_fan_in), 3),
    "init.kaiming_uniform": Case(drawn(nn.init.kaiming_uniform), 1.0, fan="in"),
    "init.kaiming_normal": Case(drawn(nn.init.kaiming_normal), 1.0, fan="in"),
    "init.xavier_uniform": Case(drawn(nn.init.xavier_uniform), 1.0),
    "init.xavier_normal": Case(drawn(nn.init.xavier_normal), 1.0),
    "init.zeros": Case(lambda shape, source: nn.init.zeros(shape, source), (2,), None),
}


def trained(make: Callable[..., optim.Optimizer]) -> Callable[..., object]:
    def call(given: Any = None, **more: Any) -> object:
        v = Var(X)
        made = make([v] if given is None else given, **more)
        made.backward_step(v.sqr().sum())
        return repr(made)

    return call


def graded() -> Var:
    v = Var(X)
    v.sqr().sum().backward()
    return v


def scheduled(make: Callable[..., optim.Schedule]) -> Callable[..., object]:
    def call(*args: Any, **more: Any) -> object:
        rate = make(*args, **more)
        return [rate(k) for k in (0, 1, 5)]

    return call


def scaled(**more: Any) -> object:
    v, scaler = Var(X), optim.GradScaler(**more)
    optimizer = optim.SGD([v], lr=0.1)
    scaler.scale_loss(v.sqr().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return repr(scaler)


OPTIM: dict[str, Case] = {
    "SGD": Case(
        trained(optim.SGD),
        **{"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1, "nesterov": False},
    ),
    "SGD.variables": Case(optim.SGD, [Var(X)]),
    "Adam": Case(trained(optim.Adam), lr=0.1, betas=(0.9, 0.99), epsilon=1e-8, weight_decay=0.1),
    "Adam.betas": Case(lambda a, b: trained(optim.Adam)(betas=(a, b)), 0.9, 0.99),
    "AdamW": Case(trained(optim.AdamW), lr=0.1, betas=(0.9, 0.99), epsilon=1e-8, weight_decay=0.1),
    "Optimizer": Case(optim.Optimizer, [Var(X)], 0.1),
    "Optimizer.lr gives": Case(lambda v: trained(optim.SGD)(lr=lambda _: v), 0.1),
    "Optimizer.backward_step": Case(lambda x: optim.SGD([Var(X)]).backward_step(x), graded().sum()),
    "Optimizer.load_state_dict": Case(
        lambda state: optim.SGD([Var(X)]).load_state_dict(state), {"steps": Tensor(1)}
    ),
    "Optimizer.load_state_dict of": Case(
        lambda v: optim.SGD([Var(X)]).load_state_dict({"steps": v}), Tensor(1)
    ),
    "clip_grad_norm": Case(optim.clip_grad_norm, [graded()], 1.0),
    "clip_grad_value": Case(optim.clip_grad_value, [graded()], 1.0),
    "GradScaler": Case(scaled, scale=2.0, patience=1),
    "GradScaler.scale_loss": Case(lambda x: optim.GradScaler().scale_loss(x), X),
    "GradScaler.step": Case(lambda o: optim.GradScaler().step(o), optim.SGD([Var(X)])),
    "GradScaler.unscale_grads": Case(
        lambda o: optim.GradScaler().unscale_grads(o), optim.SGD([Var(X)])
    ),
    "cosine": Case(scheduled(optim.cosine), 0.1, 4, warmup=2, end=0.01),
    "linear": Case(scheduled(optim.linear), 0.1, 4, warmup=2, end=0.01),
    "step_decay": Case(scheduled(optim.step_decay), 0.1, 2, factor=0.5),
    "exponential": Case(scheduled(optim.exponential), 0.1, 0.5),
}

DATA = datasets.Dataset(X, I)
DATASETS: dict[str, Case] = {
    "Dataset": Case(datasets.Dataset, X, I),
    "Dataset.getitem": Case(lambda rows: DATA[rows], slice(1)),
    "Dataset.take": Case(lambda rows: DATA.take(rows), I),
    "DataLoader": Case(
        lambda *args, **more: list(datasets.DataLoader(*args, **more)),
        *(DATA, 2),
        shuffle=True,
        seed=1,
        drop_last=False,
        transform=lambda *batch: batch,
    ),
    "mnist": Case(datasets.mnist, "nowhere"),
    "fashion_mnist": Case(datasets.fashion_mnist, "nowhere"),
    "read_idx": Case(datasets.read_idx, "nowhere"),
}


def named(name: Any, value: Any) -> dict[Any, Any]:
    """A dictionary; an odd value that cannot be a key is none of ours."""
    return {name: value} if isinstance(name, Hashable) else {}


def random_state(value: Any) -> None:
    Generator(1).restore(value)


PLAIN: dict[str, Case] = {
    "Generator": Case(Generator, 1),
    "Generator.manual_seed": Case(lambda seed: Generator(1).manual_seed(seed), 1),
    "Generator.restore": Case(random_state, (1, 2)),
    "Generator.draw": Case(lambda name, shape: Generator(1).draw(name, shape), "uniform", (2,)),
    "manual_seed": Case(candle.manual_seed, 1),
    "rand": Case(candle.rand, (2,), generator=Generator(1)),
    "randn": Case(candle.randn, (2,), generator=Generator(1)),
    "set_threads": Case(candle.set_threads, 2),
    "Device.of": Case(Device.of, "cpu"),
    "Device.cuda": Case(lambda n: Device.cuda(n).require(), 0),
    "to_device of one made": Case(lambda kind, n: X.to_device(Device(kind, n)), DeviceKind.CPU, 0),
    "DType.of": Case(DType.of, "f32"),
    "checkpoint": Case(candle.checkpoint, Tensor.relu, X, generators=(Generator(1),)),
    "gradcheck": Case(
        testing.gradcheck, Tensor.sin, X.to_dtype("f64"), order=1, epsilon=1e-5, tolerance=1e-3
    ),
    "assert_close": Case(testing.assert_close, X, X, rtol=1e-5, atol=1e-5),
    "compile": Case(lambda fn, of: candle.compile(fn, X, dynamic=of), Tensor.relu, {}),
    "compile of": Case(lambda of: candle.compile(Tensor.relu, X, dynamic={0: of}), {}),
    "compile along": Case(lambda n: candle.compile(Tensor.relu, X, dynamic={0: {0: n}}), "n"),
    "compiled": Case(candle.compile(Tensor.relu, X), X),
    "static": Case(candle.static, 1),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """Calls that read and write files."""
    folder: Path = tmp_path_factory.mktemp("odd")
    kept, csv = folder / "kept.safetensors", folder / "rows.csv"
    candle.save_safetensors(kept, {"weight": X})
    csv.write_text("a,b\n1,x\n")
    plan = candle.compile(Tensor.relu, X)
    plan.save(folder / "kept.plan")
    for k in range(10):
        (folder / f"{k}.json").write_text(json.dumps({"data": [0.5] * 784 * 2}))
    weights, fresh, layer = Weights.open(kept), folder / "new.safetensors", nn.Linear(X)
    return {
        "save_safetensors": Case(candle.save_safetensors, fresh, {"a": X}, metadata={"k": "v"}),
        "save_safetensors of": Case(lambda t: candle.save_safetensors(fresh, {"a": t}), X),
        "save_safetensors named": Case(lambda n: candle.save_safetensors(fresh, named(n, X)), "a"),
        "save_safetensors told": Case(
            lambda k, v: candle.save_safetensors(fresh, {"a": X}, named(k, v)), "k", "v"
        ),
        "load_safetensors": Case(candle.load_safetensors, kept),
        "Compiled.save": Case(plan.save, folder / "relu.plan"),
        "load_plan": Case(candle.load_plan, folder / "kept.plan"),
        "Weights": Case(lambda *a: list(Weights(*a)), weights.source, "a."),
        "Weights.open": Case(Weights.open, kept),
        "Weights.open_gguf": Case(Weights.open_gguf, folder / "none.gguf"),
        "Weights.get": Case(weights.get, "weight", (2, 3)),
        "Weights.find": Case(weights.find, "weight", (2, 3)),
        "Weights.pp": Case(lambda n: list(weights.pp(n)), "a"),
        "Weights.contains": Case(lambda n: n in weights, "a"),
        "VarBuilder.open": Case(nn.VarBuilder.open, kept, trainable=True),
        "VarBuilder.save": Case(nn.VarBuilder().save_safetensors, fresh),
        "Module.load_safetensors": Case(layer.load_safetensors, kept, strict=True),
        "Module.save_safetensors": Case(layer.save_safetensors, fresh, metadata={"k": "v"}),
        "Linear.load": Case(nn.Linear.load, weights, 3, 2, activation=Activation.RELU),
        "Embedding.load": Case(nn.Embedding.load, weights, 2, 3),
        "LayerNorm.load": Case(nn.LayerNorm.load, weights, 3, 1e-5),
        "RmsNorm.load": Case(nn.RmsNorm.load, weights, 3, 1e-5),
        "read_csv": Case(datasets.read_csv, csv, types={"a": "i64"}, delimiter=","),
        "read_csv of": Case(lambda kind: datasets.read_csv(csv, {"a": kind}), "i64"),
        "digits_json": Case(datasets.digits_json, folder, tests_per_digit=1),
    }


SPOKEN = (CandleError, MemoryError, ZeroDivisionError, OSError, AssertionError)
GROUPS = {
    "tensor": TENSOR,
    "functional": FUNCTIONAL,
    "nn": NN,
    "optim": OPTIM,
    "datasets": DATASETS,
    "plain": PLAIN,
}
CASES = {f"{g}: {name}": case for g, cases in GROUPS.items() for name, case in cases.items()}


ABSENT = (  # of what is not on this machine
    "datasets: mnist",
    "datasets: fashion_mnist",
    "datasets: read_idx",
    "plain: Device.cuda",
)


def public(where: Any) -> set[str]:
    """Names of what can be called."""
    return {n for n in dir(where) if not n.startswith("_") and callable(getattr(where, n))}


PUBLIC = {
    "tensor": public(Tensor),
    "functional": {n for n in public(F) if getattr(F, n).__module__ == F.__name__},
    "nn": {n for n in nn.__all__ if callable(getattr(nn, n))},
    "optim": set(optim.__all__),
    "datasets": set(datasets.__all__),
    "plain": set(candle.__all__) | {"gradcheck", "assert_close"},
}
# without arguments, or enumerations and errors, or in another group, or where files are read
WITHOUT = {
    *ALONE,
    *("require_activation", "Module", "Schedule", "digits_json", "read_csv"),
    *(n for n in candle.__all__ if not callable(getattr(candle, n)) or n.endswith("Error")),
    *("Activation", "DType", "Device", "Tensor", "Var", "Weights", "load_safetensors", "load_plan"),
    *("detect_anomaly", "no_grad", "save_safetensors", "threads"),
}


@pytest.fixture(autouse=True)
def as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)  # a path such as "x" is written to
    threads = candle.threads()
    yield
    candle.set_threads(threads)
    candle.manual_seed(0)


def sweep(name: str, case: Case) -> list[str]:
    """What a call raises that is no error of ours, a line each."""
    found = []
    for odd, value in ODD.items():
        for place, args, more in case.with_odd(value):
            try:
                case.call(*args, **more)
            except SPOKEN as error:
                assert str(error)
            except NotImplementedError:
                pass  # of a base class that says so
            except Exception as error:
                found.append(f"{name}({place} = {odd}): {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("name", CASES)
def test_an_odd_value_is_taken_or_refused_in_words(name: str) -> None:
    assert not sweep(name, CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_call_is_right_without_odd_values(name: str) -> None:
    """Else all would be refused for another reason."""
    case = CASES[name]
    if name not in ABSENT:
        case.call(*case.args, **case.more)


@pytest.mark.parametrize("group", PUBLIC)
def test_every_public_call_is_swept(group: str) -> None:
    called = {name.partition(" ")[0] for name in GROUPS[group]}
    assert sorted(PUBLIC[group] - called - WITHOUT) == []


def test_an_odd_value_is_refused_where_files_are_read(files: dict[str, Case]) -> None:
    assert not [line for name, case in files.items() for line in sweep(name, case)]
