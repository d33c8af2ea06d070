"""One command as ``cmd.*`` call it: who runs it, where and with what, and what its end means."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from inspect import Parameter, Signature
from typing import Annotated, Any, get_type_hints

from msgspec import Meta, Struct, structs

from device_agent.ended import Ended, FunctionFailed
from device_agent.host import SHELL, Completed, Host
from device_agent.protocol import limits
from device_agent.shell_paths import expanded, is_user_name

Function = Callable[..., Coroutine[Any, Any, Any]]

COULD_NOT_START = 127
"""The return code a shell gives for a command that is not there."""

WRAP = r"""
n=$1 user=$2 group=$3 umask=$4 merge=$5 clean=$6 home=$7 shell=$8 away=$9; shift 9
[ -z "$n" ] || printf '%s\n' "$$"
[ -z "$umask" ] || umask "$umask" || exit 125
[ -z "$merge" ] || exec 2>&1
[ -z "$away" ] || cd "${HOME:-/}" 2>/dev/null || cd /
[ -z "$clean" ] || set -- env -i "$@"
[ -z "$user" ] && exec "$@"
HOME=$home USER=$user LOGNAME=$user; export HOME USER LOGNAME
if setpriv --help 2>/dev/null | grep -q -e --reuid; then
  exec setpriv --reuid="$(id -u "$user")" --regid="${group:-$(id -g "$user")}" --init-groups "$@"
fi
[ -z "$group" ] || { echo "group=$group takes setpriv of util-linux, which this device does not have" >&2; exit 125; }
words=; for word; do words="$words '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"; done
exec su -s "$shell" "$user" -c "exec $words"
"""
"""Runs its arguments with what ``Host.run`` has no word for. ``setpriv`` is preferred: it becomes the command, and dies
with it; ``su`` of BusyBox does so as well."""

REST = "keep it in a file there, which file.seek_read reads"
"""Where what is cut of an output is: nowhere, but the next time it can be kept."""

LOOK_UP = 'id -u "$1" >/dev/null && eval "printf %s ~$1"'


Text = Annotated[str, Meta(min_length=1)]
Environment = dict[str, str | int | float]
TimeoutSeconds = Annotated[float, Meta(gt=0, le=limits.RUN_LIMIT_MAX_SECONDS)]
POSITIONAL = ("cmd", "cwd", "stdin", "runas", "group", "shell", "python_shell")
"""What stands first in Salt as well; the rest is given by name."""


class Call(Struct, frozen=True, kw_only=True):
    """What is asked of ``cmd.run`` and its kin, in Salt's words and with Salt's defaults."""

    cmd: Text
    cwd: str | None = None
    stdin: str | None = None
    runas: str | None = None
    group: str | None = None
    shell: Text = SHELL
    python_shell: bool = True
    env: Environment | None = None
    clean_env: bool = False
    prepend_path: str | None = None
    rstrip: bool = True
    umask: str | int | None = None
    hide_output: bool = False
    timeout: TimeoutSeconds | None = None
    ignore_retcode: bool = False
    redirect_stderr: bool = False
    success_retcodes: list[int] | int | None = None
    success_stdout: list[str] | str | None = None
    success_stderr: list[str] | str | None = None


def takes_a_call(
    *without: str, **defaults: Any
) -> Callable[[Callable[[Host, Call], Coroutine[Any, Any, Any]]], Function]:
    """Give a function of a ``Call`` the parameters that a call is made of, without some and with other defaults."""
    fields = [each for each in structs.fields(Call) if each.name not in without]
    hints = get_type_hints(Call, include_extras=True)
    parameters = [
        Parameter(
            each.name,
            Parameter.POSITIONAL_OR_KEYWORD if each.name in POSITIONAL else Parameter.KEYWORD_ONLY,
            default=defaults.get(each.name, Parameter.empty if each.required else each.default),
            annotation=hints[each.name],
        )
        for each in fields
    ]
    host = Parameter("host", Parameter.POSITIONAL_OR_KEYWORD, annotation=Host)

    def given(function: Callable[[Host, Call], Coroutine[Any, Any, Any]]) -> Function:
        taken = Signature([host, *parameters])

        @wraps(function)
        async def calls(*arg: Any, **kwarg: Any) -> Any:
            bound = taken.bind(*arg, **kwarg)
            bound.apply_defaults()
            where: Host = bound.arguments.pop("host")
            return await function(where, Call(**bound.arguments))

        calls.__signature__ = taken  # type: ignore[attr-defined]  # inspect's documented way to say what is taken
        calls.__annotations__ = {name: each.annotation for name, each in taken.parameters.items()}
        return calls

    return given


class Result(Struct):
    """How it ended, as ``cmd.run_all`` tells it."""

    pid: int
    retcode: int
    stdout: str
    stderr: str
    timed_out: bool = False
    cut: int = 0

    def shown(self, call: Call) -> dict[str, Any]:
        """The dictionary of ``cmd.run_all``."""
        hidden = call.hide_output
        return {
            "pid": self.pid,
            "retcode": self.retcode,
            "stdout": "" if hidden else self.stdout,
            "stderr": "" if hidden else self.stderr,
        }

    def ended(self, call: Call, value: Any) -> Ended:
        """The end of the function: a return code other than 0 fails it unless it is to be ignored."""
        if self.timed_out:
            return Ended(value, 1, "timed_out", f"the command was stopped after {call.timeout:g} seconds")
        if self.retcode and not call.ignore_retcode:
            return Ended(value, self.retcode, "failed", why(self.retcode))
        return Ended(value)


async def run(host: Host, call: Call, *, with_pid: bool = False) -> Result:
    """Run it to its end. Raises ``FunctionFailed`` when it does not start."""
    try:
        argv = _words(call)
        home = await _home(host, call.runas) if call.runas else ""
        cwd = await _folder(host, call, home)
        wrapped = _wrapped(call, argv, home, with_pid=with_pid)
        completed = await host.run(
            wrapped,
            stdin=None if call.stdin is None else call.stdin.encode(errors="surrogateescape"),
            cwd=cwd,
            env=await _environment(host, call),
            timeout=call.timeout,
            output_limit=limits.VALUE_TEXT_BYTES,
        )
    except (OSError, ValueError) as error:
        raise FunctionFailed(f"the command did not start: {error}", COULD_NOT_START) from error
    return _result(call, completed, with_pid=with_pid)


def why(returncode: int) -> str:
    """What a return code says in words."""
    if returncode > 0:
        return f"the command exited with {returncode}"
    try:
        return f"the command was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"the command was ended by signal {-returncode}"


def bounded(text: str, lost: int = 0, room: int = limits.VALUE_TEXT_BYTES, *, rest: str = REST) -> str:
    """As much of an output as a return can carry, how much of it is missing, and how the rest is had."""
    data = text.encode(errors="surrogateescape")
    lost += max(0, len(data) - room)
    return f"{data[:room].decode(errors='ignore')}\n[{lost} more bytes were cut; {rest}]" if lost else text


def _words(call: Call) -> list[str]:
    if call.python_shell:
        return [call.shell, "-c", call.cmd]
    words = shlex.split(call.cmd)
    if not words:
        raise ValueError("the command is empty")
    return words


def _wrapped(call: Call, argv: Sequence[str], home: str, *, with_pid: bool) -> list[str]:
    """The command as it is, or behind a small script when it is to have what ``Host.run`` does not know."""
    merged = call.redirect_stderr and call.python_shell
    away = call.python_shell and not call.cwd and not home
    if not (with_pid or call.runas or call.group or call.umask is not None or merged or call.clean_env or away):
        return list(argv)
    if call.group and not call.runas:
        raise ValueError("group is only known together with runas")
    umask = "" if call.umask is None else str(call.umask)
    if umask and not (umask.isdecimal() and len(umask) <= 4):
        raise ValueError(f"{umask} is no umask; it is written in octal digits, such as 077")
    flags = ["1" if with_pid else "", call.runas or "", call.group or "", umask]
    flags += ["1" if merged else "", "1" if call.clean_env else "", home, call.shell, "1" if away else ""]
    given = [f"{name}={value}" for name, value in (call.env or {}).items()] if call.clean_env else []
    return [SHELL, "-c", WRAP, SHELL, *flags, *given, *argv]


async def _folder(host: Host, call: Call, home: str) -> str | None:
    """Where it runs: in the folder that is asked for, or at home. None where the shell goes there by itself."""
    if call.cwd:
        return await expanded(host, call.cwd)
    if home or call.python_shell:
        return home or None
    found = await expanded(host, "~")
    return found if found.startswith("/") else "/"


async def _home(host: Host, user: str) -> str:
    if not is_user_name(user):
        raise FunctionFailed(f"{user[:130]!r} is no name of a user", COULD_NOT_START)
    asked = await host.run([SHELL, "-c", LOOK_UP, SHELL, user])
    if asked.returncode != 0:
        raise FunctionFailed(f"there is no user {user} here", COULD_NOT_START)
    return asked.stdout.decode(errors="surrogateescape")


async def _environment(host: Host, call: Call) -> dict[str, str] | None:
    given = {name: str(value) for name, value in (call.env or {}).items()}
    if call.prepend_path:
        path = given.get("PATH")
        if path is None:
            path = (await host.run([SHELL, "-c", 'printf %s "$PATH"'])).stdout.decode(errors="surrogateescape")
        given["PATH"] = f"{call.prepend_path}:{path}"
    return given or None


def _result(call: Call, completed: Completed, *, with_pid: bool) -> Result:
    stdout, pid = completed.stdout, 0
    if with_pid:
        first, _, stdout = stdout.partition(b"\n")
        pid = int(first) if first.isdigit() else 0
    out, err = stdout.decode(errors="replace"), completed.stderr.decode(errors="replace")
    if call.rstrip:
        out, err = out.rstrip(), err.rstrip()
    code = completed.returncode
    if completed.timed_out:
        code = 1
    elif _succeeded(call, code, out, err):
        code = 0
    return Result(pid, code, out, err, timed_out=completed.timed_out, cut=completed.truncated)


def _succeeded(call: Call, code: int, stdout: str, stderr: str) -> bool:
    codes = [call.success_retcodes] if isinstance(call.success_retcodes, int) else call.success_retcodes or []
    outs = [call.success_stdout] if isinstance(call.success_stdout, str) else call.success_stdout or []
    errors = [call.success_stderr] if isinstance(call.success_stderr, str) else call.success_stderr or []
    return code in codes or stdout in outs or stderr in errors
