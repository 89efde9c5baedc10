"""A multi-layer perceptron on images of 28 x 28: layers in a row, dropout, AdamW, a schedule.

python examples/mlp_classifier.py --data fashion-mnist --epochs 3
"""

from __future__ import annotations

import training

from candle import Tensor, manual_seed, nn
from candle.optim import AdamW


def flatten(images: Tensor) -> Tensor:
    """[b, 1, 28, 28] to [b, 784]."""
    return images.flatten_from(1)


def main() -> None:
    given = training.options(__doc__ or "", lr=0.001)
    manual_seed(given.seed)
    model = nn.Sequential(
        flatten,
        nn.Linear.new(28 * 28, 256),
        Tensor.relu,
        nn.Dropout(0.1),
        nn.Linear.new(256, 128),
        Tensor.relu,
        nn.Linear.new(128, 10),
    )
    training.run(model, lambda rate: AdamW(model.parameters(), rate), given)


if __name__ == "__main__":
    main()
