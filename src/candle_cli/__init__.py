"""Where the program `candle` starts: Ctrl-C ends it quietly, even while modules load."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # as `typing` has it, whose import would leave time for a Ctrl-C
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Runs the program; until its own handler stands, nothing is there to be unwound."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)
    _occupy_standard_files()
    from candle.cli.main import main as run

    run()


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def _occupy_standard_files() -> None:
    """A closed stdin, stdout or stderr gets no other file's bytes: its number is taken."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
