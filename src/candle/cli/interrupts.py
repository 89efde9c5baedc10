"""Ctrl-C, SIGTERM and SIGHUP unwind as exceptions do, so that nothing half-made stays behind."""

from __future__ import annotations

import _thread
import signal
import sys
import time
from types import FrameType

from . import exits

SAME_WISH = 1.0  # seconds in which a repetition does not disturb what the first one unwinds
AGAIN_AFTER = 0.02  # seconds
CODES: dict[signal.Signals, int] = {
    getattr(signal, name): code
    for name, code in (
        ("SIGINT", exits.INTERRUPTED),
        ("SIGTERM", exits.TERMINATED),
        ("SIGHUP", exits.HUNG_UP),
    )
    if hasattr(signal, name)
}

_last = -SAME_WISH


def install() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt, and the others SystemExit.

    What the parent had ignored (`nohup`, a shell's `&`) stays so.
    """
    for number in CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _unwind)
    sys.unraisablehook = _unraisable


def leave() -> None:
    """All is done or unwound: another signal ends the process at once and without a word."""
    for number in CODES:
        if signal.getsignal(number) is _unwind:
            signal.signal(number, signal.SIG_DFL)


def _unwind(number: int, frame: FrameType | None) -> None:
    global _last
    now = time.monotonic()
    if now - _last < SAME_WISH:
        return
    _last = now
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(CODES[signal.Signals(number)])


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """A signal that came while an object was being freed is not lost: it comes again."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        _thread.start_new_thread(_come_again, (signal.SIGINT,))
    elif isinstance(lost.exc_value, SystemExit):
        number = next(n for n, code in CODES.items() if code == lost.exc_value.code)
        _thread.start_new_thread(_come_again, (number,))
    else:
        sys.__unraisablehook__(lost)


def _come_again(number: signal.Signals) -> None:
    global _last
    time.sleep(AGAIN_AFTER)
    _last = -SAME_WISH
    _thread.interrupt_main(number)
