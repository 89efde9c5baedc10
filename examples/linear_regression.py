"""A straight line, fitted: data, a model, an optimiser, ten lines of training."""

from __future__ import annotations

from candle import manual_seed, nn, randn
from candle.functional import mse
from candle.optim import SGD

manual_seed(1)
x = randn((200, 1))
y = x * 3.0 - 0.5 + randn((200, 1)) * 0.1  # what is to be found again

model = nn.Linear.new(1, 1)
optimizer = SGD(model.parameters(), lr=0.1)
print(model)

for step in range(1, 101):
    loss = mse(model(x), y)
    optimizer.backward_step(loss)
    if step in (1, 10, 100):
        print(f"step {step:3}: loss {loss.to_scalar():.4f}")

slope, offset = (float(v) for v in model.parameters())
print(f"y = {slope:.2f} x + {offset:.2f}")
assert abs(slope - 3.0) < 0.05 and abs(offset + 0.5) < 0.05
