"""GradScaler: a scaled loss keeps small half-precision gradients from becoming zero."""

from __future__ import annotations

import math

from ..arguments import as_float, as_int, require
from ..autograd import no_grad
from ..dtype import DType
from ..errors import GradientError, OptionError
from ..tensor import Tensor, require_tensors
from .base import Optimizer


class GradScaler:
    """`scale_loss(loss).backward()`, `step(optimizer)`, `update()`: for training in f16.

    A step with an infinite or NaN gradient is skipped and the scale halved; after `patience` clean
    ones it is doubled. Either way the gradients are left unscaled. Raises OptionError unless the
    scale is above 0.
    """

    def __init__(self, scale: float = 65536.0, patience: int = 10) -> None:
        self.scale = as_float("GradScaler", scale, "a scale")
        self.patience = as_int("GradScaler", patience, "an integer of patience")
        if not 0.0 < self.scale < math.inf:
            raise OptionError("GradScaler", "a finite scale above 0", scale)
        if self.patience < 1:
            raise OptionError("GradScaler", "patience of 1 or more", patience)
        self.clean = 0  # steps since the scale was last changed
        self._finite: dict[int, bool] = {}  # optimiser -> whether its gradients are, once unscaled

    def scale_loss(self, loss: Tensor) -> Tensor:
        """The loss times the scale, in f32 or better."""
        require_tensors("scale_loss", loss)
        wide = loss if loss.dtype is DType.F64 else loss.to_dtype(DType.F32)
        return wide.mul(self.scale)

    def unscale_grads(self, optimizer: Optimizer) -> bool:
        """Divides the gradients by the scale, before clipping, say; whether all are finite.

        Those of half precision become f32, which holds them. Raises GradientError if they already
        were unscaled since the last `update`.
        """
        require("unscale_grads", "an optimizer", Optimizer, optimizer)
        if id(optimizer) in self._finite:
            raise GradientError("unscale_grads", "scaled gradients", "unscaled ones", "update()")
        finite = True
        with no_grad():
            for v in optimizer.variables:
                grad = v.grad()
                if grad is None:
                    continue
                wide = grad if grad.dtype is DType.F64 else grad.to_dtype(DType.F32)
                v._grad = wide.div(self.scale)
                finite = finite and _is_finite(wide)
        self._finite[id(optimizer)] = finite
        return finite

    def step(self, optimizer: Optimizer) -> bool:
        """A step of the optimiser where its gradients are finite; whether it was taken."""
        require("step", "an optimizer", Optimizer, optimizer)
        if id(optimizer) not in self._finite:
            self.unscale_grads(optimizer)
        finite = self._finite[id(optimizer)]
        if finite:
            optimizer.step()
        return finite

    def update(self) -> None:
        """The scale of the next step. Raises GradientError where there was none to learn from."""
        if not self._finite:
            raise GradientError("update", "step() or unscale_grads() before it", "neither")
        if not all(self._finite.values()):
            self.scale, self.clean = self.scale / 2.0, 0
        elif self.clean + 1 < self.patience:
            self.clean += 1
        else:
            self.scale, self.clean = min(self.scale * 2.0, 2.0**127), 0
        self._finite.clear()

    def __repr__(self) -> str:
        return f"GradScaler({self.scale:g}, {self.clean} clean steps)"


def _is_finite(x: Tensor) -> bool:
    """Whether all elements are: the greatest of |x| is NaN or infinite where one is."""
    return not x.count or math.isfinite(float(x.abs().max()))
