"""What went wrong, as lines on stderr, and the exit status it ends in. It loads nothing a camera does not have."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable

from device_agent.command_line.safe_text import safe
from device_agent.errors import EXIT_NOT_ALL_OK, OutstationError, UsageInvalid

DEBUG_VARIABLE = "OUTSTATION_DEBUG"
INTERRUPTED = 130
"""Exit status after Ctrl-C, as a shell gives it."""

CONVERT = "convert it with iconv -f ISO-8859-1 -t UTF-8, or set the terminal to UTF-8"


def guarded(command: Callable[[], int]) -> int:
    """Run a command; its exit status. No error leaves it as a traceback."""
    try:
        status = command()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has had enough of it. What is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_NOT_ALL_OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame: every error becomes lines and an exit status
        return report(error)
    return status


def report(error: BaseException) -> int:
    """Say what went wrong on stderr; the exit status. An error nobody foresaw is named, with how to see where."""
    if os.environ.get(DEBUG_VARIABLE):
        sys.stderr.write("".join(traceback.format_exception(error)))
    single = [error]
    if isinstance(error, BaseExceptionGroup):
        # Only what runs an event loop raises groups, so asyncio is loaded by then.
        from device_agent.parts import leaves

        single = leaves(error)
    if isinstance(single[0], UnicodeEncodeError) and (typed := _not_utf_8()):
        single = [UsageInvalid("an argument is not UTF-8", found=typed, allowed="text in UTF-8", hint=CONVERT)]
    foreseen = [leaf for leaf in single if isinstance(leaf, OutstationError)]
    for leaf in foreseen:
        complain(str(leaf))
    if foreseen:
        return foreseen[0].exit_status
    complain(f"{type(single[0]).__name__}: {single[0]}".replace("\n", " "))
    if not os.environ.get(DEBUG_VARIABLE):
        sys.stderr.write(f"  this is a fault of outstation itself; {DEBUG_VARIABLE}=1 shows where\n")
    return EXIT_NOT_ALL_OK


def _not_utf_8() -> str:
    r"""The first argument with bytes that are not UTF-8, each as ``\xff``; Python keeps such bytes as surrogates."""
    for argument in sys.argv[1:]:
        if re.search("[\udc80-\udcff]", argument):
            return "".join(ascii(each)[1:-1].replace(r"\udc", r"\x") for each in argument)[:200]
    return ""


def complain(text: str) -> None:
    """Write ``error: `` and the lines, each without anything a terminal would obey."""
    sys.stderr.write("\n".join(safe(line) for line in f"error: {text}".split("\n")) + "\n")
