"""LeNet-5 on images of 28 x 28 (LeCun et al. 1998): no padding, 16 x 4 x 4 features.

python examples/lenet.py --data FOLDER_WITH_MNIST --plot loss.svg
"""

from __future__ import annotations

import training

from candle import Tensor, manual_seed, nn
from candle.optim import AdamW


class LeNet(nn.Module):
    """Images [b, 1, 28, 28] to logits [b, 10]."""

    def __init__(self, vb: nn.VarBuilder) -> None:
        self.conv1 = nn.Conv2d.new(1, 6, 5, vb.pp("conv1"))
        self.conv2 = nn.Conv2d.new(6, 16, 5, vb.pp("conv2"))
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear.new(16 * 4 * 4, 120, vb.pp("fc1"))
        self.fc2 = nn.Linear.new(120, 84, vb.pp("fc2"))
        self.fc3 = nn.Linear.new(84, 10, vb.pp("fc3"))

    def forward(self, x: Tensor) -> Tensor:
        """Two convolutions with pooling, three matrices."""
        x = self.pool(self.conv1(x).relu())
        x = self.pool(self.conv2(x).relu())
        x = self.fc1(x.flatten_from(1)).relu()
        return self.fc3(self.fc2(x).relu())


def main() -> None:
    given = training.options(__doc__ or "", lr=0.005)
    manual_seed(given.seed)
    model = LeNet(nn.VarBuilder())
    training.run(model, lambda rate: AdamW(model.parameters(), rate), given)


if __name__ == "__main__":
    main()
