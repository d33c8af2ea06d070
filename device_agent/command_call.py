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
from device_agent.own import Own
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
[ -z "$away" ] || cd "${home:-${HOME:-/}}" 2>/dev/null || cd /
[ -z "$clean" ] || set -- env -i "$@"
[ -z "$user$group" ] && exec "$@"
if [ -n "$user" ]; then HOME=$home USER=$user LOGNAME=$user; export HOME USER LOGNAME; fi
if setpriv --help 2>/dev/null | grep -q -e --reuid; then
  exec setpriv --reuid="$(id -u $user)" --regid="${group:-$(id -g $user)}" --init-groups "$@"
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
HOME_FOLDER = 'h=${HOME:-/}; [ -d "$h" ] && [ -x "$h" ] || h=/; printf %s "$h"'

LOCALE = (
    *(f"LC_{part}" for part in ("CTYPE", "NUMERIC", "TIME", "COLLATE", "MONETARY", "MESSAGES", "PAPER", "NAME")),
    *(f"LC_{part}" for part in ("ADDRESS", "TELEPHONE", "MEASUREMENT", "IDENTIFICATION")),
    "LANGUAGE",
)
"""What Salt sets to ``C`` for ``reset_system_locale`` (salt/modules/cmdmod.py)."""

Text = Annotated[str, Meta(min_length=1)]
Scalar = str | int | float | bool
Command = Text | Annotated[list[Scalar], Meta(min_length=1)]
"""A text for a shell, or the words of the command."""

Environment = dict[str, Scalar | None] | list[str | dict[str, Scalar | None]]
"""A mapping, or a list of mappings of one variable each, as states and reactor files write it; a bare name is empty."""

Listed = list[str] | str
"""A list, or a text with commas between."""

TimeoutSeconds = Annotated[float, Meta(gt=0, le=limits.RUN_LIMIT_MAX_SECONDS)]
POSITIONAL = ("cmd", "cwd", "stdin", "runas", "group", "shell", "python_shell")
"""What stands first in Salt as well; the rest is given by name."""


class Call(Struct, frozen=True, kw_only=True):
    """What is asked of ``cmd.run`` and its kin, in Salt's words and with Salt's defaults."""

    cmd: Command
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
    success_retcodes: list[int] | int | str | None = None
    success_stdout: Listed | None = None
    success_stderr: Listed | None = None
    output_encoding: str | None = None
    reset_system_locale: bool = False
    stdin_raw_newlines: bool = False

    def environment(self) -> dict[str, str]:
        """What is added to the environment: the values as Salt writes them, ``True`` for a yes."""
        items = self.env or {}
        pairs: list[tuple[str, Scalar | None]] = []
        for each in [items] if isinstance(items, dict) else items:
            pairs += each.items() if isinstance(each, dict) else [(each, None)]
        found = {name: "" if value is None else str(value) for name, value in pairs}
        return (dict.fromkeys(LOCALE, "C") if self.reset_system_locale else {}) | found

    def words(self) -> list[str]:
        """The program and its arguments: a shell with the command, or the command itself. Raises ``ValueError``."""
        if isinstance(self.cmd, list):
            # As ``subprocess`` does it: what stands behind the first word is $0, $1, … of the shell.
            words = [str(each) for each in self.cmd]
            return [self.shell, "-c", *words] if self.python_shell else words
        if self.python_shell:
            return [self.shell, "-c", self.cmd]
        if not (words := shlex.split(self.cmd)):
            raise ValueError("the command is empty")
        return words

    def input(self) -> bytes | None:
        r"""What it reads: a ``\n`` that was typed is a new line unless ``stdin_raw_newlines`` is given, as in Salt."""
        if self.stdin is None:
            return None
        text = self.stdin if self.stdin_raw_newlines else self.stdin.replace("\\n", "\n")
        return text.encode(errors="surrogateescape")


NO_EFFECT: dict[str, tuple[Any, Any]] = {
    "saltenv": (str | None, None),
    "password": (str | None, None),
    "output_loglevel": (str | None, "debug"),
    "encoded_cmd": (bool, False),
    "raise_err": (bool, False),
    "windows_codepage": (int, 65001),
}
"""Arguments of Salt that change nothing on a Linux device: their types and their defaults in Salt.

``saltenv`` is for templates, which are not taken. The log of a device shows no output of a command, at any level. A
command that fails always fails its job, as with ``raise_err``.
"""


def takes_a_call(
    *without: str, first: Sequence[Parameter] = (), named: bool = False, own: bool = False, **defaults: Any
) -> Callable[[Callable[..., Coroutine[Any, Any, Any]]], Function]:
    """Give a function of a ``Call`` the parameters that a call is made of, without some and with other defaults.

    Args:
        without: the names of parameters that it does not have.
        first: parameters of its own that stand before the others. The function gets them by name, and its call has
            ``cmd="-"`` when ``cmd`` is among ``without``.
        named: whether the parameters of the call are given by name alone.
        own: whether it gets the device's ``Own`` as ``own``.
        defaults: defaults that are not those of ``Call``.
    """
    before = {each.name for each in first}
    fields = [each for each in structs.fields(Call) if each.name not in {*without, *before}]
    hints = get_type_hints(Call, include_extras=True)
    parameters = [
        Parameter(
            each.name,
            Parameter.POSITIONAL_OR_KEYWORD if each.name in POSITIONAL and not named else Parameter.KEYWORD_ONLY,
            default=defaults.get(each.name, Parameter.empty if each.required else each.default),
            annotation=hints[each.name],
        )
        for each in fields
    ]
    idle = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in NO_EFFECT.items()
        if name not in {*without, *before}
    ]
    host = Parameter("host", Parameter.POSITIONAL_OR_KEYWORD, annotation=Host)
    beside = [Parameter("own", Parameter.KEYWORD_ONLY, annotation=Own)] if own else []

    def given(function: Callable[..., Coroutine[Any, Any, Any]]) -> Function:
        placed = [each for each in first if each.kind is not each.KEYWORD_ONLY]
        rest = [each for each in first if each.kind is each.KEYWORD_ONLY]
        taken = Signature([host, *placed, *parameters, *rest, *idle, *beside])

        @wraps(function)
        async def calls(*arg: Any, **kwarg: Any) -> Any:
            bound = taken.bind(*arg, **kwarg)
            bound.apply_defaults()
            where: Host = bound.arguments.pop("host")
            extra = {name: bound.arguments.pop(name) for name in (*before, *(each.name for each in beside))}
            chosen = {each.name: bound.arguments[each.name] for each in fields}
            return await function(where, Call(**{"cmd": "-", **chosen}), **extra)

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
        argv = call.words()
        _check(call)
        home = await _home(host, call.runas) if call.runas else ""
        cwd = await _folder(host, call)
        wrapped = _wrapped(call, argv, home, with_pid=with_pid)
        completed = await host.run(
            wrapped,
            stdin=call.input(),
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


def _check(call: Call) -> None:
    """Raise ``ValueError`` for an argument that only the end of the command would show to be none."""
    try:
        b"x".decode(call.output_encoding or "utf-8", errors="replace")
    except LookupError as error:
        raise ValueError(f"output_encoding: {error}; allowed: an encoding that Python knows, such as latin-1") from None
    try:
        _codes(call)
    except ValueError:
        raise ValueError(f"success_retcodes is {call.success_retcodes!r}; allowed: numbers, such as 1,2") from None


def _wrapped(call: Call, argv: Sequence[str], home: str, *, with_pid: bool) -> list[str]:
    """The command as it is, or behind a small script when it is to have what ``Host.run`` does not know."""
    merged = call.redirect_stderr and call.python_shell
    # A home that is not there, or may not be entered, is not gone to.
    away = not call.cwd and (call.python_shell or bool(call.runas))
    if not (with_pid or call.runas or call.group or call.umask is not None or merged or call.clean_env or away):
        return list(argv)
    if call.group and not is_user_name(call.group):
        raise ValueError(f"{call.group[:130]!r} is no name of a group")
    umask = "" if call.umask is None else str(call.umask)
    if umask and not (umask.isdecimal() and len(umask) <= 4):
        raise ValueError(f"{umask} is no umask; it is written in octal digits, such as 077")
    flags = ["1" if with_pid else "", call.runas or "", call.group or "", umask]
    flags += ["1" if merged else "", "1" if call.clean_env else "", home, call.shell, "1" if away else ""]
    given = [f"{name}={value}" for name, value in call.environment().items()] if call.clean_env else []
    return [SHELL, "-c", WRAP, SHELL, *flags, *given, *argv]


async def _folder(host: Host, call: Call) -> str | None:
    """Where it runs: in the folder that is asked for, or at home. None where the wrapper goes there by itself."""
    if call.cwd:
        return await expanded(host, call.cwd)
    if call.runas or call.python_shell:
        return None
    return (await host.run([SHELL, "-c", HOME_FOLDER])).stdout.decode(errors="surrogateescape") or "/"


async def _home(host: Host, user: str) -> str:
    if not is_user_name(user):
        raise FunctionFailed(f"{user[:130]!r} is no name of a user", COULD_NOT_START)
    asked = await host.run([SHELL, "-c", LOOK_UP, SHELL, user])
    if asked.returncode != 0:
        raise FunctionFailed(f"there is no user {user} here", COULD_NOT_START)
    return asked.stdout.decode(errors="surrogateescape") or "/"


async def _environment(host: Host, call: Call) -> dict[str, str] | None:
    given = call.environment()
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
    encoding = call.output_encoding or "utf-8"
    out, err = stdout.decode(encoding, errors="replace"), completed.stderr.decode(encoding, errors="replace")
    if call.rstrip:
        out, err = out.rstrip(), err.rstrip()
    code = completed.returncode
    if completed.timed_out:
        code = 1
    elif _succeeded(call, code, out, err):
        code = 0
    return Result(pid, code, out, err, timed_out=completed.timed_out, cut=completed.truncated)


def _succeeded(call: Call, code: int, stdout: str, stderr: str) -> bool:
    """Whether a return code, or a text in an output, is among those that count as a success."""
    return (
        code in _codes(call)
        or any(text in stdout for text in _texts(call.success_stdout))
        or any(text in stderr for text in _texts(call.success_stderr))
    )


def _codes(call: Call) -> list[int]:
    found = call.success_retcodes
    if found is None:
        return []
    if isinstance(found, str):
        return [int(each) for each in found.split(",")]
    return [found] if isinstance(found, int) else found


def _texts(given: Listed | None) -> list[str]:
    if given is None:
        return []
    return [each.strip() for each in given.split(",")] if isinstance(given, str) else given
