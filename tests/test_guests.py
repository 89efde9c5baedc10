"""NumPy and buffers: shared memory both ways, lifetimes, what is refused."""

from __future__ import annotations

import array
import gc
import sys
from typing import Any

import numpy as np
import pytest

from candle import DType, Tensor, Var
from candle.errors import DTypeError, OptionError, ShapeError

NAMES = ["float32", "float64", "float16", "int64", "int32", "uint32", "uint8", "bool"]
WITH_BUFFERS = pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 688 is of Python 3.12")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3), (2, 0)])
def test_there_and_back_without_a_copy(name: str, shape: Any) -> None:
    source = np.ones(shape, name)
    x = Tensor.from_numpy(source)
    back = x.numpy()
    assert (back.dtype, back.shape) == (source.dtype, source.shape)
    assert np.shares_memory(source, back) or source.size == 0
    np.testing.assert_array_equal(back, source)


def test_a_change_shows_on_both_sides() -> None:
    source = np.zeros((2, 3), np.float32)
    x = Tensor.from_numpy(source)
    source[1, 2] = 5
    assert x.to_vec() == [[0, 0, 0], [0, 0, 5]]
    x.numpy()[0, 0] = 7
    assert source[0, 0] == 7


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::-1],
        lambda a: a[:, ::-2],
        lambda a: a.T,
        lambda a: a[1:, 1:, None],
        lambda a: np.broadcast_to(a[0], (5, 4)),
        lambda a: np.flip(a),
        lambda a: np.asfortranarray(a),
        lambda a: a[:0],
    ],
)
def test_any_strides_of_whole_elements(view: Any) -> None:
    """pytorch#92680 (T34): negative strides are no reason to refuse."""
    source = view(np.arange(12, dtype=np.float32).reshape(3, 4))
    x = Tensor.from_numpy(source)
    assert x.to_vec() == source.tolist()
    np.testing.assert_array_equal(x.numpy(), source)
    np.testing.assert_array_equal(x.add(1.0).numpy(), source + 1)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[::-1, ::2],
        lambda x: x[1].expand((5, 4)),
        lambda x: x[:, 1:3],
        lambda x: x[2, 3],
    ],
)
def test_views_show_as_views_in_numpy(view: Any) -> None:
    x = Tensor.arange(12, dtype="f32").reshape((3, 4))
    seen = view(x)
    assert seen.numpy().tolist() == seen.to_vec()
    assert np.shares_memory(seen.numpy(), x.numpy())


def test_read_only_stays_so() -> None:
    source = np.zeros(3, np.float32)
    source.flags.writeable = False
    x = Tensor.from_numpy(source)
    assert not x.numpy().flags.writeable
    assert not Tensor.from_buffer(b"12345678", "i64", (1,)).numpy().flags.writeable
    assert x.add(1.0).numpy().flags.writeable
    with pytest.raises(TypeError):
        x.buffer()[0] = 1


def test_repeated_elements_are_read_only_in_numpy() -> None:
    """pytorch#17935 (T37): to write one would write all."""
    assert not Tensor.ones((1, 3)).expand((4, 3)).numpy().flags.writeable
    assert Tensor.ones((1, 3)).expand((1, 3)).numpy().flags.writeable


def test_memory_lives_as_long_as_anyone_looks() -> None:
    view = Tensor.from_numpy(np.full(100_000, 3, np.float32))[::2].numpy()
    other = Tensor.full((100_000,), 4.0).numpy()
    buffer = Tensor.full((100_000,), 5.0).buffer().cast("f")
    gc.collect()
    junk = [Tensor.full((100_000,), 9.0) for _ in range(8)]
    assert (view == 3).all()
    assert (other == 4).all()
    assert set(buffer.tolist()) == {5.0}
    del junk


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (np.zeros(3, ">f4"), DTypeError),
        (np.zeros(3, np.complex64), DTypeError),
        (np.zeros(3, np.int16), DTypeError),
        (np.zeros(3, "U3"), DTypeError),
        (np.zeros(3, object), DTypeError),
        (np.zeros(3, [("a", "f4"), ("b", "u1")])["a"], ShapeError),
        (np.frombuffer(bytes(17), np.uint8)[1:].view(np.float32), OptionError),
        ([1.0, 2.0], DTypeError),
        (np.zeros((1,) * 9, np.float32), ShapeError),
    ],
)
def test_what_cannot_be_shared_is_refused(source: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Tensor.from_numpy(source)


def test_bf16_and_blocks_have_no_counterpart() -> None:
    for x in (Tensor([1.0], "bf16"), Tensor.from_buffer(bytes(34), "q8_0", (1, 32))):
        with pytest.raises(DTypeError, match="to_dtype"):
            x.numpy()


def test_numpy_functions_take_tensors() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).t()
    np.testing.assert_array_equal(np.asarray(x), [[1, 3], [2, 4]])
    assert np.asarray(x).shape == (2, 2)
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.array(x).base is None
    assert np.asarray(Tensor.zeros((0, 3))).shape == (0, 3)
    assert np.asarray(Tensor(2.5)).shape == ()


@pytest.mark.parametrize("name", NAMES)
def test_dlpack_shares_memory_both_ways(name: str) -> None:
    x = Tensor.from_numpy(np.ones((2, 3), name)).t()
    seen = np.from_dlpack(x)
    assert np.shares_memory(seen, x.numpy())
    assert seen.tolist() == x.to_vec()
    back = Tensor.from_dlpack(np.arange(6, dtype=np.float32)[::-2])
    assert back.to_vec() == [5.0, 3.0, 1.0]
    assert Tensor.from_dlpack(x).data.address == x.data.address


def test_dlpack_has_numpy_s_dtypes() -> None:
    with pytest.raises(DTypeError):
        np.from_dlpack(Tensor([1.0], "bf16"))
    with pytest.raises(DTypeError):
        Tensor.from_dlpack(np.zeros(3, np.complex64))


# -- buffers ---------------------------------------------------------------------------------------


def test_from_buffer_takes_anything_contiguous() -> None:
    values = array.array("f", [1.0, 2.0, 3.0, 4.0])
    x = Tensor.from_buffer(values, "f32", (2, 2))
    values[3] = 9.0
    assert x.to_vec() == [[1.0, 2.0], [3.0, 9.0]]
    assert Tensor.from_buffer(values, "f32", (2,), offset=8).to_vec() == [3.0, 9.0]
    assert Tensor.from_buffer(memoryview(values), "f32", ()).to_vec() == 1.0
    assert Tensor.from_buffer(b"", "f32", (0, 7)).to_vec() == []


def test_a_buffer_in_use_cannot_be_resized() -> None:
    data = bytearray(16)
    x = Tensor.from_buffer(data, "f32", (4,))
    with pytest.raises(BufferError):
        data.extend(b"more")
    del x
    data.extend(b"more")


BEYOND = [((5,), 0), ((4,), 1), ((1,), 16), ((1,), -4), ((2**60,), 0)]


@pytest.mark.parametrize(("shape", "offset"), BEYOND)
def test_from_buffer_never_looks_beyond(shape: Any, offset: int) -> None:
    with pytest.raises(ShapeError, match="bytes"):
        Tensor.from_buffer(bytes(16), "f32", shape, offset)


def test_odd_addresses_are_copied() -> None:
    """Safetensors promises no alignment; the kernels want it."""
    data = bytearray(17)
    data[1:] = array.array("f", [1.0, 2.0, 3.0, 4.0]).tobytes()
    x = Tensor.from_buffer(data, "f32", (4,), offset=1)
    assert x.data.address % 4 == 0
    assert x.to_vec() == [1.0, 2.0, 3.0, 4.0]
    rows = Tensor.from_buffer(bytes(35), "q8_0", (1, 32), offset=1)
    assert rows.data.address % 2 == 0


def test_strided_tensors_have_no_flat_buffer() -> None:
    with pytest.raises(ShapeError, match="contiguous"):
        Tensor.ones((2, 3)).t().buffer()


def test_variables_own_their_memory() -> None:
    source = np.zeros(3, np.float32)
    v = Var(Tensor.from_numpy(source))
    v.set(Tensor([1.0, 2.0, 3.0]))
    assert source.tolist() == [0, 0, 0]
    with pytest.raises(DTypeError):
        Var([1, 2])


@WITH_BUFFERS
@pytest.mark.parametrize("dtype", [d for d in DType if not d.is_block and d is not DType.BF16])
def test_memoryview_has_format_and_shape(dtype: DType) -> None:
    x = Tensor([[0, 1, 1], [1, 0, 1]], dtype)
    view = memoryview(x)
    assert (view.shape, view.itemsize) == ((2, 3), dtype.size)
    assert view.tolist() == x.to_vec()
    assert memoryview(Tensor(1.0)).shape == ()


@WITH_BUFFERS
def test_memoryview_refuses_what_has_none() -> None:
    for x in (Tensor.ones((2, 3)).t(), Tensor([1.0], "bf16"), Tensor.zeros((0,))):
        with pytest.raises(BufferError):
            memoryview(x)
