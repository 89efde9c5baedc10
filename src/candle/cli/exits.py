"""Exit codes, and how an exception becomes one.

0    done
1    failed: the message on stderr says at what
2    wrong usage: an unknown option, or a value that is not allowed
3    a model, package, knowledge base or file that is not here
129  ended by SIGHUP: the terminal was closed
130  interrupted by Ctrl-C
141  whoever read the output went away
143  ended by SIGTERM
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from ..errors import CandleError, NameNotFoundError, OptionError

FAILED = 1
USAGE = 2
NOT_FOUND = 3
HUNG_UP = 129
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143


def exit_code(error: BaseException) -> int:
    """The code for an error of ours or of the system's."""
    if isinstance(error, OptionError):
        return USAGE
    if isinstance(error, NameNotFoundError | FileNotFoundError):
        return NOT_FOUND
    return FAILED


def explain(error: BaseException) -> tuple[str, str]:
    """What went wrong, in one line, and what helps ("" if nothing is known to)."""
    if isinstance(error, CandleError):
        return str(error).removesuffix(f" ({error.hint})"), error.hint
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f": {os.fsdecode(error.filename)}"
        return f"{error.strerror}{place}", ""
    if isinstance(error, MemoryError):
        return str(error) or "not enough memory", "close programs, or take a smaller model"
    return f"{type(error).__name__}: {error}", "this is a fault of candle: please report it"


def is_broken_pipe(error: BaseException) -> bool:
    """Whether the reader of our output is gone, which Windows calls an invalid argument."""
    if isinstance(error, BrokenPipeError):
        return True
    return (
        sys.platform == "win32"
        and isinstance(error, OSError)
        and error.errno == errno.EINVAL
        and error.filename is None
    )


def silence_output() -> None:
    """Nothing more is written, not even when the interpreter flushes stdout at its end."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
