"""Passes: each takes a graph and gives it back changed; a test can run any of them alone."""

from __future__ import annotations

from collections.abc import Callable

from ..graph import Graph
from .blocked import block_images
from .common import share_common
from .dead import remove_dead
from .epilogue import absorb_epilogues
from .fold import fold_constants
from .linear import absorb_activations, pack_weights
from .norms import fold_norms
from .outputs import separate_outputs
from .padding import fold_padding

Pass = Callable[[Graph], Graph]

# in this order
PASSES: tuple[Pass, ...] = (
    remove_dead,
    share_common,
    fold_constants,
    share_common,
    fold_norms,
    fold_padding,
    block_images,
    absorb_epilogues,
    pack_weights,
    absorb_activations,
    separate_outputs,
    remove_dead,
)
