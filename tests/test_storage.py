"""Storage: the pool, what keeps memory alive, layouts, threads and forks."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candle import DType, Tensor, Var, functional, storage
from candle._native import Layout, layout
from candle.errors import ShapeError
from candle.storage import Storage, View, empty_pool, new_view, pooled

ROOT = Path(__file__).resolve().parents[1]


def test_a_freed_block_is_handed_out_again() -> None:
    first = Storage(5000)
    address = first.address
    del first
    assert Storage(5050).address == address  # of the same size class


def test_memory_is_aligned_to_64() -> None:
    assert all(Storage(n).address % 64 == 0 for n in (1, 63, 65, 1000, 12345))


@given(st.integers(0, 1 << 40))
def test_at_most_an_eighth_of_a_block_is_waste(nbytes: int) -> None:
    size = storage._block_size(nbytes)
    assert size >= max(nbytes, 1)
    assert size % 64 == 0
    assert size <= max(64, nbytes + max(nbytes // 8, 64))


def test_the_pool_counts_its_bytes_and_can_be_emptied() -> None:
    empty_pool()
    assert pooled() == 0
    blocks = [Storage(1000) for _ in range(10)]
    size = storage._block_size(1000)
    del blocks
    assert pooled() == 10 * size
    assert empty_pool() == 10 * size
    assert pooled() == 0


def test_the_pool_has_a_limit_a_size_and_in_all() -> None:
    empty_pool()
    blocks = [Storage(storage.CLASS_BYTES // 4) for _ in range(6)]
    blocks += [Storage(2 * storage.CLASS_BYTES)]
    del blocks
    assert pooled() == storage.CLASS_BYTES
    blocks = [Storage(storage.CLASS_BYTES // 2 + n) for n in range(0, 1 << 26, 1 << 23)]
    del blocks
    assert pooled() > storage.POOL_BYTES
    Storage(storage.CHECK_BYTES + 12345)  # of a size that the pool does not have
    assert 0 < pooled() <= storage.POOL_BYTES
    empty_pool()


def test_memory_of_a_storage_in_a_cycle_is_freed() -> None:
    """Its weak reference is garbage too, so nothing puts it into the pool."""
    empty_pool()
    cycle: list[object] = [Tensor.zeros((1 << 20,))]
    cycle.append(cycle)
    freed = weakref.ref(cycle[0].data.storage)
    del cycle
    gc.collect()
    assert freed() is None
    assert pooled() < 1 << 20


INTERRUPTS = """
import random, signal, sys
from candle import Tensor, Var
strays = []
sys.unraisablehook = strays.append
a = Var(Tensor.ones((8, 8)))
caught = 0
for _ in range(200):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3))
        for _ in range(100_000):
            a.add(a).mul(2.0)
    except KeyboardInterrupt:
        caught += 1
print(caught, len(strays))
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer here")
def test_an_interrupt_is_never_swallowed_where_memory_is_freed() -> None:
    """3 of 57 tries of Ctrl-C went under in a `__del__`, and the loop ran on."""
    code = "import signal\nsignal.signal(signal.SIGALRM, signal.default_int_handler)" + INTERRUPTS
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("200 0\n", "")


def test_no_memory_empties_the_pool_before_it_raises() -> None:
    blocks = [Storage(1 << 20)]
    del blocks
    assert pooled() > 0
    with pytest.raises(MemoryError, match="no memory for"):
        Storage(1 << 60)
    assert pooled() == 0


def test_views_keep_their_storage_alive() -> None:
    x = Tensor.full((1000,), 7.0)
    view = x[::3]
    del x
    gc.collect()
    junk = [Tensor.full((1000,), 1.0) for _ in range(20)]
    assert set(view.to_vec()) == {7.0}
    del junk


def test_layouts_are_shared_and_survive_a_clearing() -> None:
    """A view holds its layout itself: the cache may forget it."""
    kept = new_view(DType.F32, (3, 5))
    assert new_view(DType.F32, (3, 5)).layout is kept.layout
    for n in range(layout._SHARED_MOST + 10):
        Layout.of(DType.U8, (n, 1))
    gc.collect()
    assert len(layout._shared) <= layout._SHARED_MOST
    assert Tensor.of_view(kept).mul(0.0).shape == (3, 5)
    made = functional.linear(Tensor.ones((2, 4)), Tensor.ones((3, 4)))  # with an absent bias
    assert made.to_vec() == [[4.0] * 3] * 2


def test_a_view_tells_where_it_lies() -> None:
    x = Tensor.arange(12).reshape((3, 4))[1:, 2]
    assert (x.data.offset, x.strides, x.dtype) == (6 * 8, (4,), DType.I64)
    assert isinstance(x.data, View)
    with pytest.raises(ShapeError):
        x.data.bytes()


def test_a_change_is_numbered() -> None:
    v = Var([1.0])
    before = storage.changes()
    v.set(Tensor([2.0]))
    assert v.data.storage.changed == storage.changes() == before + 1


def test_threads_share_the_pool() -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for k in range(300):
                n = 1 + (seed * 37 + k * 11) % 300
                x = Tensor.full((n,), float(seed))
                y = x.add(1.0)
                assert y.to_vec() == [seed + 1.0] * n
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert errors == []


FORK = """
import os, sys
import candle
from candle import Tensor
from candle.testing import assert_close
candle.set_threads(4)
a = Tensor.rand((300, 300))
want = a.matmul(a)                      # the pool is running
candle.randn((10,))
child = os.fork()
if child == 0:
    try:
        got = a.matmul(a)
        same = got.buffer() == want.buffer() and candle.threads() == 4
        candle.set_threads(2)
        same = same and a.matmul(a).buffer() == want.buffer()
        candle.randn((10,))
        v = candle.Var(a)
        v.matmul(v).sum().backward()
        os._exit(0 if same else 3)
    except BaseException:
        os._exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert a.matmul(a).buffer() == want.buffer()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_computes() -> None:
    """A child of fork has no workers: it starts its own, and gets the same bits."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    subprocess.run(command, env=environment, check=True, timeout=120)


def test_nothing_is_said_when_the_interpreter_ends() -> None:
    """Storages that live to the end are freed, or not, in silence."""
    code = "import candle; x = candle.Tensor([1.0]); y = [x.add(1.0) for _ in range(10)]"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_collector_may_clear_a_tensor_of_a_list_in_a_cycle() -> None:
    """A memoryview that cffi still exported could not be cleared: the interpreter crashed."""
    code = """
import gc, sys
from candle import Tensor
def run(stray):
    rows = Tensor([0, 4, 1, stray, 9], "i64")
    try:
        Tensor.zeros((5, 5)).index_select(rows)
    except IndexError as error:
        cycle = [sys._getframe(), error]
        cycle.append(cycle)
run(-4); run(5); gc.collect(); print("collected")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "collected\n", "")
