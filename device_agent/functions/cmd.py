"""Commands on the device."""

from __future__ import annotations

import signal
from typing import Annotated

from msgspec import Meta

from device_agent.ended import Ended, FunctionFailed
from device_agent.host import SHELL, Completed, Host
from device_agent.protocol import limits

TimeoutSeconds = Annotated[float, Meta(gt=0, le=limits.RUN_LIMIT_MAX_SECONDS)]

COULD_NOT_START = 127
"""The return code a shell gives for a command that is not there."""


async def run(
    host: Host,
    cmd: Annotated[str, Meta(min_length=1)],
    cwd: str | None = None,
    stdin: str | None = None,
    shell: Annotated[str, Meta(min_length=1)] = SHELL,
    *,
    python_shell: bool = True,
    env: dict[str, str | int | float] | None = None,
    timeout: TimeoutSeconds | None = None,
) -> Ended:
    """Run a command through the shell and return what it printed, standard error after standard output.

    With ``python_shell=False`` no shell is used and the command is only split into words. ``env`` is added to the
    environment of the agent. After ``timeout`` seconds the command and all it started are killed. A return code other
    than 0 makes the outcome ``failed``; the output is returned nevertheless, at most its first 128 KiB.

    CLI Example:

        outstation run '*' cmd.run 'ls -l | grep foo | wc -l'
        outstation run 'cam-*' cmd.run 'cat' stdin='one two' timeout=5
    """
    try:
        completed = await host.run(
            [shell, "-c", cmd] if python_shell else cmd,
            stdin=None if stdin is None else stdin.encode(errors="surrogateescape"),
            cwd=cwd,
            env=None if env is None else {name: str(value) for name, value in env.items()},
            timeout=timeout,
            output_limit=limits.VALUE_TEXT_BYTES,
        )
    except (OSError, ValueError) as error:
        raise FunctionFailed(f"the command did not start: {error}", COULD_NOT_START) from error
    text = _text(completed)
    if completed.timed_out:
        return Ended(text, 1, "timed_out", f"the command was stopped after {timeout:g} seconds")
    if completed.returncode != 0:
        return Ended(text, completed.returncode, "failed", _why(completed.returncode))
    return Ended(text)


def _text(completed: Completed) -> str:
    parts = (completed.stdout.decode(errors="replace").rstrip(), completed.stderr.decode(errors="replace").rstrip())
    whole = "\n".join(part for part in parts if part)
    kept = whole.encode()[: limits.VALUE_TEXT_BYTES]
    cut = completed.truncated + len(whole.encode()) - len(kept)
    return f"{kept.decode(errors='ignore')}\n[{cut} more bytes were cut]" if cut else whole


def _why(returncode: int) -> str:
    if returncode > 0:
        return f"the command exited with {returncode}"
    try:
        return f"the command was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"the command was ended by signal {-returncode}"
