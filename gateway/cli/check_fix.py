"""``outstation check --fix``: says what it will do, asks, does it, and says what it left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from device_agent.errors import UsageInvalid
from gateway.cli.text import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.checks.repairs import Repair
    from gateway.cli.check_asked import Report
    from gateway.cli.command import Invocation
    from gateway.cli.output import Output


def allowed(called: Invocation, *, local: bool, fix: bool, yes: bool, tell: bool) -> None:
    """Whether these words go together; ``local`` says that settings were named. Raises ``UsageInvalid``."""
    if yes and not fix:
        raise UsageInvalid("--yes is for --fix", found="--yes alone", hint="outstation check --fix --yes")
    if fix and tell:
        raise UsageInvalid("a timer mends nothing", found="--fix and --tell", hint="outstation check --fix")
    if fix and not local and (called.meant.api is not None or called.meant.socket is not None):
        raise UsageInvalid(
            "only what is on this machine can be mended, and it is known by its settings",
            found="--fix with --socket or --api",
            hint="on the machine itself: outstation check --fix --config FILE",
        )
    if fix and not yes and not sys.stdin.isatty():
        raise UsageInvalid(
            "nobody is there to say yes",
            found="no terminal",
            hint="outstation check --fix --yes does it without asking",
        )


def mended(output: Output, reports: Sequence[Report], *, ask: bool) -> bool:
    """Do what is safe; whether anything was done."""
    from gateway.checks.repairs import repairs

    found = [each for report in reports if report.box is not None for each in repairs(report.box)]
    if not found:
        output.note("nothing that --fix could mend")
        return False
    output.note("--fix does this:")
    for repair in found:
        output.note(f"  {safe(repair.words)}")
    if ask and not _agreed(output):
        output.note("nothing was done")
        return False
    return sum(_done(output, repair) for repair in found) > 0


def _agreed(output: Output) -> bool:
    output.note("do it? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _done(output: Output, repair: Repair) -> bool:
    try:
        repair.do()
    except OSError as error:
        why = error.strerror or str(error)
        advice = "; try: sudo outstation check --fix" if isinstance(error, PermissionError) else ""
        output.note(("left", "yellow"), f"  {safe(repair.words)}: {safe(why)}{advice}")
        return False
    output.note(("done", "green"), f"  {safe(repair.words)}")
    return True
