"""What the training examples share: data by name, a progress line, accuracy, a curve as SVG."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from candle import DType, Tensor, nn, no_grad
from candle.datasets import DataLoader, Dataset, digits_json, fashion_mnist, mnist
from candle.functional import cross_entropy
from candle.optim import Optimizer, Schedule, cosine


def options(about: str, lr: float) -> argparse.Namespace:
    """The command line of a training example."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--data", default="synthetic", help="a folder, fashion-mnist or synthetic")
    parser.add_argument("--epochs", type=int, help="default: 3, or 10 for less than 20,000 images")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=lr, help="at its peak")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", metavar="FILE.svg", help="draw the loss curve")
    return parser.parse_args()


def load(name: str) -> tuple[Dataset, Dataset]:
    """(train, test): MNIST's idx files or digits in JSON in a folder, Debian's Fashion-MNIST, or
    ten noisy patterns that need no download."""
    if name == "synthetic":
        return synthetic(2000), synthetic(500)
    if name == "fashion-mnist":
        return fashion_mnist()
    return digits_json(name) if (Path(name) / "0.json").exists() else mnist(name)


def synthetic(count: int) -> Dataset:
    """Images u8 [count, 1, 28, 28] of ten bars that move and flicker, by their labels."""
    labels = Tensor.arange(count).rem(10)
    rows = Tensor.arange(28).reshape((1, 1, 28, 1))
    places = labels.mul(2).add(4).reshape((count, 1, 1, 1))
    bars = rows.sub(places).abs().le(1).to_dtype("f32").expand((count, 1, 28, 28))
    noise = Tensor.rand((count, 1, 28, 28))
    return Dataset(bars.mul(120.0).add(noise.mul(130.0)).to_dtype("u8"), labels.to_dtype("u8"))


def as_floats(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """A batch as the model takes it: f32 in [-1, 1], labels i64."""
    return images.to_dtype("f32").mul(2.0 / 255.0).sub(1.0), labels.to_dtype(DType.I64)


def train(
    model: nn.Module, optimizer: Optimizer, data: Dataset, epochs: int, batch: int, seed: int
) -> list[float]:
    """Trains; answers all losses. One live line on a terminal, else a line an epoch."""
    loader = DataLoader(data, batch, shuffle=True, seed=seed, drop_last=True, transform=as_floats)
    losses: list[float] = []
    live = sys.stderr.isatty()
    for epoch in range(1, epochs + 1):
        start = time.perf_counter()
        for k, (images, labels) in enumerate(loader, 1):
            loss = cross_entropy(model(images), labels)
            optimizer.backward_step(loss)
            losses.append(float(loss))
            last = k == len(loader)
            if last or (live and k % 20 == 0):
                pace = k * batch / (time.perf_counter() - start)
                text = f"epoch {epoch}/{epochs}  {k}/{len(loader)}  loss {losses[-1]:.4f}"
                head, end = ("\r", "\n" if last else "") if live else ("", "\n")
                print(f"{head}{text}  {pace:,.0f} images/s ", end=end, file=sys.stderr, flush=True)
    return losses


def accuracy(model: nn.Module, data: Dataset) -> float:
    """The share of images whose greatest logit is their label."""
    model.eval()
    right = 0
    with no_grad():
        for images, labels in DataLoader(data, 500, transform=as_floats):
            right += int(model(images).argmax(1).eq(labels).sum())
    model.train()
    return right / max(len(data), 1)


def plot(losses: list[float], path: str, width: int = 640, height: int = 320) -> None:
    """Writes the losses, averaged over runs of a hundredth, as an SVG curve."""
    run = max(len(losses) // 100, 1)
    means = [sum(losses[k : k + run]) / run for k in range(0, len(losses) - run + 1, run)]
    top, left, foot = max(means, default=1.0) or 1.0, 48, 28
    across = (width - left - 10) / max(len(means) - 1, 1)
    down = (height - foot - 10) / top
    points = " ".join(
        f"{left + k * across:.1f},{height - foot - v * down:.1f}" for k, v in enumerate(means)
    )
    texts = [
        (4, 18, f"{top:.3g}"),
        (4, height - foot, "0"),
        (left, height - 8, "step 0"),
        (width - 90, height - 8, f"{len(losses):,}"),
    ]
    Path(path).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n'
        f'<path d="M{left} 10V{height - foot}H{width - 10}" fill="none" stroke="gray"/>\n'
        f'<polyline points="{points}" fill="none" stroke="#c40" stroke-width="1.5"/>\n'
        + "".join(f'<text x="{x}" y="{y}">{text}</text>\n' for x, y, text in texts)
        + "</svg>\n",
        encoding="utf-8",
    )


def run(
    model: nn.Module, optimizer: Callable[[Schedule], Optimizer], given: argparse.Namespace
) -> float:
    """Trains and tests a model as the command line says; answers the accuracy.

    The learning rate rises for a twentieth of the steps, then falls to 0.
    """
    data, tests = load(given.data)
    epochs = (3 if len(data) >= 20_000 else 10) if given.epochs is None else given.epochs
    print(model)
    steps = epochs * (len(data) // given.batch)
    rate = cosine(given.lr, steps, warmup=steps // 20)
    losses = train(model, optimizer(rate), data, epochs, given.batch, given.seed)
    share = accuracy(model, tests)
    print(f"accuracy {share:.2%} of {len(tests):,} images")
    if given.plot:
        plot(losses, given.plot)
    return share
