"""Gradients: a straight line fitted to points by gradient descent."""

from __future__ import annotations

from candle import Tensor, Var, manual_seed, no_grad, randn

manual_seed(1)
x = randn((200,))
y = x * 3.0 - 0.5 + randn((200,)) * 0.1  # what is to be found again

slope, offset = Var([0.0]), Var([0.0])
for step in range(1, 101):
    error = x * slope + offset - y
    loss = error.sqr().mean()
    loss.backward()
    for parameter in (slope, offset):
        gradient = parameter.grad()
        assert isinstance(gradient, Tensor)
        with no_grad():
            parameter.set(parameter - gradient * 0.1)
        parameter.zero_grad()
    if step in (1, 10, 100):
        print(f"step {step:3}: loss {loss.to_scalar():.4f}")

print(f"y = {slope.to_scalar():.2f} x + {offset.to_scalar():.2f}")
assert abs(float(slope) - 3.0) < 0.05 and abs(float(offset) + 0.5) < 0.05
