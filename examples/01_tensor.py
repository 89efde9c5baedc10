"""Tensors: create, compute, look at, and share memory with NumPy-like buffers."""

from __future__ import annotations

from array import array

from candle import DType, Tensor, manual_seed, randn

a = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
print(a.shape, a.dtype, a.op)  # a leaf: nothing made it

row_means = a.mean(1, keepdim=True)  # shapes broadcast as in NumPy
print((a - row_means).to_vec())
print((a @ a.t()).to_vec())

view = a[:, ::2]  # a view: other strides, the same memory
print(view.shape, view.strides, view.to_vec())

numbers = array("f", range(6))
shared = Tensor.from_buffer(numbers, DType.F32, (2, 3))  # no copy of the array
print(shared.sum_all().to_scalar(), shared.argmax(1).to_vec())

manual_seed(0)
x = randn((1000,))
print(f"mean {x.mean().to_scalar():.3f}, variance {x.var().to_scalar():.3f}")
