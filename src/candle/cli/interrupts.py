"""Ctrl-C and SIGTERM: both unwind as exceptions do, so that nothing half-made stays behind."""

from __future__ import annotations

import _thread
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

from . import exits

AGAIN_AFTER = 0.02  # seconds


def install() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt, and SIGTERM SystemExit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _unraisable


def leave() -> None:
    """All is done or unwound: another Ctrl-C ends the process at once and without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(exits.TERMINATED)


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """An interrupt that came while an object was being freed is not lost: it comes again."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        _thread.start_new_thread(_interrupt_again, ())
    else:
        sys.__unraisablehook__(lost)


def _interrupt_again() -> None:
    time.sleep(AGAIN_AFTER)
    _thread.interrupt_main()
