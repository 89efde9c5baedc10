"""Several Python threads at once, and the pool: right results, the same bits always."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import candle
from candle import Tensor, Var
from candle import functional as F
from candle.errors import OptionError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def pool() -> Iterator[None]:
    """The number of threads as it was."""
    before = candle.threads()
    yield
    candle.set_threads(before)


def big(rng: np.random.Generator, *shape: int) -> Tensor:
    return Tensor.from_numpy(rng.standard_normal(shape, np.float32))


def results(rng: np.random.Generator) -> dict[str, Tensor]:
    """One large result of each family that runs on the pool."""
    x, y = big(rng, 300, 700), big(rng, 300, 700)
    w, b = big(rng, 500, 700), big(rng, 500)
    q, k = big(rng, 2, 130, 8, 64), big(rng, 2, 190, 4, 64)
    v = Var(x)
    F.linear(v, w, b, candle.Activation.GELU).sqr().sum().backward()
    grad = v.grad()
    assert grad is not None
    return {
        "add": x.add(y),
        "broadcast": x.mul(y[0]),
        "exp of a view": x.t().exp(),
        "compare": x.gt(y),
        "where": x.gt(y).where_cond(x, y),
        "cast": x.to_dtype("bf16"),
        "sum": x.sum(),
        "sum of rows": x.sum(1),
        "sum of columns": x.sum(0),
        "var": x.var(),
        "argmax": x.argmax(),
        "softmax": F.softmax(x),
        "layer_norm": F.layer_norm(x, y[0], y[1]),
        "topk": x.topk(7)[1],
        "matmul": x.matmul(y.t()),
        "vector": x.matmul(y[0]),
        "linear": F.linear(x, w, b),
        "linear packed": F.linear(x, F.pack(w), b),
        "attention": F.attention(q, k, k, causal=True, position=60),
        "nearest": F.nearest(x[:9], w, 5)[0],
        "take": w.index_select(Tensor([7, 499] * 500)),
        "cat": Tensor.cat([x, y], 1),
        "rope": F.rope(q, Tensor.arange(130, dtype="i32")),
        "normal": Tensor.randn((100_000,), candle.Generator(3)),
        "gradient": grad,
    }


def bits(made: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: bytes(x.contiguous().buffer()) for name, x in made.items()}


def test_any_number_of_threads_gives_the_same_bits() -> None:
    """DESIGN.md, one order of summation: results never depend on how work was cut."""
    candle.set_threads(1)
    want = bits(results(np.random.default_rng(5)))
    for count in (2, 3, 8):
        candle.set_threads(count)
        got = bits(results(np.random.default_rng(5)))
        assert [name for name in want if got[name] != want[name]] == []


def test_batch_mates_do_not_matter(rng: np.random.Generator) -> None:
    """R23: a row's result has the same bits alone and among others."""
    x, w = big(rng, 40, 96), big(rng, 70, 96)
    one, nil = big(rng, 96), big(rng, 96)
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda t: F.linear(t, w),
        lambda t: F.linear(t, F.pack(w)),
        lambda t: t.matmul(w.t()),
        lambda t: F.layer_norm(t, one, nil),
        F.softmax,
        lambda t: t.sum(1),
        lambda t: t.gelu(),
    ]
    for function in functions:
        whole = function(x)
        for start, length in ((0, 1), (17, 1), (3, 2), (5, 30), (39, 1)):
            part = function(x.narrow(0, start, length))
            assert part.buffer() == whole.narrow(0, start, length).contiguous().buffer()


def run_together(count: int, work: Callable[[int], None]) -> None:
    """Runs work(0), work(1), ... on threads of their own; raises the first error."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def guarded(n: int) -> None:
        try:
            barrier.wait()
            work(n)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    if errors:
        raise errors[0]


def test_python_threads_compute_at_once() -> None:
    candle.set_threads(4)
    want = bits(results(np.random.default_rng(5)))

    def work(_: int) -> None:
        for _ in range(3):
            assert bits(results(np.random.default_rng(5))) == want

    run_together(6, work)


def test_layouts_and_scalars_are_made_by_many_threads_at_once() -> None:
    """What is shared and made on first use: the first users may be several."""

    def work(n: int) -> None:
        for k in range(200):
            shape = (k + 1, 7)
            x = Tensor.full(shape, 1.0).mul(2.0 + k / 7)
            assert x.t().contiguous().sum(0).to_vec() == pytest.approx(
                [7 * (2.0 + k / 7)] * (k + 1)
            )

    run_together(8, work)


def test_draws_of_many_threads_never_repeat() -> None:
    generator, made = candle.Generator(1), []

    def work(_: int) -> None:
        made.extend(Tensor.rand((64,), generator).to_vec() for _ in range(50))

    run_together(8, work)
    whole = Tensor.rand((8 * 50 * 64,), candle.Generator(1)).to_vec()
    parts = {tuple(whole[k : k + 64]) for k in range(0, len(whole), 64)}
    assert {tuple(m) for m in made} == parts


def test_threads_may_change_the_pool_while_others_compute(rng: np.random.Generator) -> None:
    x = big(rng, 256, 256)
    want = bytes(x.matmul(x).buffer())

    def work(n: int) -> None:
        for k in range(40):
            if n == 0:
                candle.set_threads(1 + k % 4)
            else:
                assert bytes(x.matmul(x).buffer()) == want

    run_together(4, work)


def test_threads_that_come_and_go_leave_no_memory(rng: np.random.Generator) -> None:
    """Scratch memory belongs to a thread and goes with it."""
    resource = pytest.importorskip("resource")
    x, w = big(rng, 300, 700), big(rng, 500, 700)
    size = Path("/proc/self/statm")
    if not size.exists():
        pytest.skip("memory is read from /proc")

    def resident() -> int:
        return int(size.read_text().split()[1]) * resource.getpagesize() >> 20

    def burst(count: int) -> None:
        for _ in range(count):
            worker = threading.Thread(target=lambda: (F.linear(x, w), F.softmax(x)))
            worker.start()
            worker.join()

    burst(20)
    before = resident()
    burst(300)
    assert resident() - before < 40


FORKS = """
import os, threading, candle
from candle import Tensor, functional as F
a, w = Tensor.rand((200, 300)), Tensor.rand((150, 300))
want = F.linear(a, w).buffer()
stop = threading.Event()

def work():
    while not stop.is_set():
        assert F.linear(a, w).buffer() == want
        Tensor.randn((10,))

def change():
    while not stop.wait(0.003):
        candle.set_threads(1 + candle.threads() % 4)

workers = [threading.Thread(target=work) for _ in range(4)] + [threading.Thread(target=change)]
for t in workers:
    t.start()
codes = []
for _ in range(30):
    child = os.fork()
    if child == 0:
        candle.manual_seed(1)
        same = F.linear(a, w).buffer() == want and len(Tensor.randn((10,)).to_vec()) == 10
        os._exit(0 if same else 3)
    codes.append(os.waitpid(child, 0)[1])
stop.set()
for t in workers:
    t.join()
assert codes == [0] * 30, codes
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_forked_while_others_compute_computes_too() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    subprocess.run(command, env=environment, check=True, timeout=120)


@pytest.mark.parametrize(("given", "want"), [("1", "1"), ("3", "3"), ("256", "256")])
def test_the_environment_sets_the_number_of_threads(given: str, want: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CANDLE_NUM_THREADS": given}
    command = [sys.executable, "-c", "import candle; print(candle.threads())"]
    assert subprocess.check_output(command, env=environment, text=True).strip() == want


@pytest.mark.parametrize("count", [0, -1, 257, 1.5, "2"])
def test_the_number_of_threads_is_checked(count: object) -> None:
    with pytest.raises(OptionError):
        candle.set_threads(count)  # type: ignore[arg-type]
