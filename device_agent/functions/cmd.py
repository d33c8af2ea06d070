"""Commands on the device."""

from __future__ import annotations

import shlex
from typing import Any

from msgspec import structs

from device_agent.command_call import (
    COULD_NOT_START,
    Call,
    Environment,
    Result,
    Text,
    TimeoutSeconds,
    bounded,
    takes_a_call,
)
from device_agent.command_call import run as run_call
from device_agent.commands import do
from device_agent.commands import shell as run_script
from device_agent.ended import Ended, FunctionFailed
from device_agent.functions.cp import cache_file
from device_agent.host import SHELL, Host
from device_agent.own import Own
from device_agent.protocol import limits
from device_agent.protocol.file_questions import SCHEME
from device_agent.shell_paths import argument, expanded

SCRIPT_BYTES = 1024 * 1024
HALF = limits.VALUE_TEXT_BYTES // 2

ON_THE_PATH = r"""
case $1 in
*/*) [ -f "$1" ] && [ -x "$1" ] && printf %s "$1"; exit ;;
esac
IFS=:
for folder in $PATH; do
  if [ -f "$folder/$1" ] && [ -x "$folder/$1" ]; then printf %s "$folder/$1"; exit 0; fi
done
exit 1
"""

TEMPORARY = 'umask 077; mktemp "${1:-${TMPDIR:-/tmp}}/outstation-XXXXXX"'
IN_BACKGROUND = '"$@" </dev/null >/dev/null 2>&1 & printf %s "$!"'


@takes_a_call(redirect_stderr=True)
async def run(host: Host, call: Call) -> Ended:
    """Run a command through the shell and return what it printed, standard error where it came.

    With ``python_shell=False`` no shell is used and the command is only split into words; standard error then stands
    behind standard output. ``env`` is added to the environment, ``clean_env`` leaves nothing else in it. ``runas`` is
    the user that runs it. It runs in ``cwd``, or at the home of its user. After ``timeout`` seconds the command and all
    it started are killed. A return code other than 0 makes the outcome ``failed`` unless it is among
    ``success_retcodes`` or ``ignore_retcode`` is given; the output is returned nevertheless, at most its first 128 KiB.

    CLI Example:

        outstation run '*' cmd.run 'ls -l | grep foo | wc -l'
        outstation run 'cam-*' cmd.run 'cat' stdin='one two' timeout=5
        outstation run 'cam-*' cmd.run 'id -un' runas=nobody
    """
    result = await run_call(host, call)
    return result.ended(call, _both(call, result))


@takes_a_call("python_shell", "redirect_stderr")
async def shell(host: Host, call: Call) -> Ended:
    """Run a command through the shell, as ``cmd.run`` does by default.

    CLI Example:

        outstation run '*' cmd.shell 'ls -l | grep foo'
    """
    call = structs.replace(call, redirect_stderr=True)
    result = await run_call(host, call)
    return result.ended(call, _both(call, result))


@takes_a_call("redirect_stderr")
async def run_stdout(host: Host, call: Call) -> Ended:
    """Run a command and return its standard output alone.

    CLI Example:

        outstation run '*' cmd.run_stdout 'ls -l | grep foo'
    """
    result = await run_call(host, call)
    return result.ended(call, "" if call.hide_output else bounded(result.stdout, result.cut))


@takes_a_call("redirect_stderr")
async def run_stderr(host: Host, call: Call) -> Ended:
    """Run a command and return its standard error alone.

    CLI Example:

        outstation run '*' cmd.run_stderr 'ls /nowhere' ignore_retcode=True
    """
    result = await run_call(host, call)
    return result.ended(call, "" if call.hide_output else bounded(result.stderr, result.cut))


@takes_a_call()
async def run_all(host: Host, call: Call) -> Ended:
    """Run a command and return its process number, return code, standard output and standard error.

    CLI Example:

        outstation run '*' cmd.run_all 'ls -l | grep foo'
    """
    return _all(call, await run_call(host, call, with_pid=True))


@takes_a_call("rstrip", "hide_output", "redirect_stderr", "prepend_path")
async def retcode(host: Host, call: Call) -> Ended:
    """Run a command and return its return code. Any but 0 makes the outcome ``failed``, unless it is to be ignored.

    CLI Example:

        outstation run '*' cmd.retcode 'grep -q root /etc/passwd'
    """
    result = await run_call(host, call)
    return result.ended(call, result.retcode)


@takes_a_call("stdin", "rstrip", "hide_output", "redirect_stderr")
async def run_bg(host: Host, call: Call) -> dict[str, int]:
    """Start a command, do not wait for it, and return its process number. Its output is thrown away.

    CLI Example:

        outstation run '*' cmd.run_bg 'fsck -n /dev/sda1'
    """
    words = [call.shell, "-c", call.cmd] if call.python_shell else shlex.split(call.cmd)
    behind = structs.replace(call, cmd=shlex.join([SHELL, "-c", IN_BACKGROUND, SHELL, *words]), python_shell=False)
    return {"pid": int((await run_call(host, behind)).stdout)}


async def script(
    host: Host,
    source: Text,
    args: str | list[str] | None = None,
    cwd: str | None = None,
    stdin: str | None = None,
    runas: str | None = None,
    group: str | None = None,
    shell: Text = SHELL,
    *,
    env: Environment | None = None,
    umask: str | int | None = None,
    hide_output: bool = False,
    timeout: TimeoutSeconds | None = None,
    success_retcodes: list[int] | int | None = None,
    success_stdout: list[str] | str | None = None,
    success_stderr: list[str] | str | None = None,
    saltenv: str | None = None,
    own: Own,
) -> Ended:
    """Run a copy of a script, and return the same as ``cmd.run_all``.

    ``source`` is a ``salt://`` address of the file server, or a path or a ``file://`` address on the device; ``args``
    is a text of words or a list. A script without ``#!`` is read by the shell. The copy is removed afterwards, and
    belongs to ``runas`` while it runs; one of the file server stays in the device's cache.

    CLI Example:

        outstation run '*' cmd.script salt://scripts/collect.sh args='--since yesterday'
        outstation run '*' cmd.script file:///opt/scripts/check.sh timeout=30
    """
    call = Call(
        cmd="-",
        cwd=cwd,
        stdin=stdin,
        runas=runas,
        group=group,
        shell=shell,
        env=env,
        umask=umask,
        hide_output=hide_output,
        timeout=timeout,
        success_retcodes=success_retcodes,
        success_stdout=success_stdout,
        success_stderr=success_stderr,
    )
    return await _script(host, call, await _copied(host, own, source, saltenv), args)


async def script_retcode(
    host: Host,
    source: Text,
    args: str | list[str] | None = None,
    cwd: str | None = None,
    stdin: str | None = None,
    runas: str | None = None,
    group: str | None = None,
    shell: Text = SHELL,
    *,
    env: Environment | None = None,
    umask: str | int | None = None,
    timeout: TimeoutSeconds | None = None,
    success_retcodes: list[int] | int | None = None,
    success_stdout: list[str] | str | None = None,
    success_stderr: list[str] | str | None = None,
    saltenv: str | None = None,
    own: Own,
) -> Ended:
    """Run a copy of a script, as ``cmd.script`` does, and return its return code.

    CLI Example:

        outstation run '*' cmd.script_retcode /usr/local/bin/check.sh
    """
    call = Call(
        cmd="-",
        cwd=cwd,
        stdin=stdin,
        runas=runas,
        group=group,
        shell=shell,
        env=env,
        umask=umask,
        timeout=timeout,
        success_retcodes=success_retcodes,
        success_stdout=success_stdout,
        success_stderr=success_stderr,
    )
    ended = await _script(host, call, await _copied(host, own, source, saltenv), args)
    return structs.replace(ended, value=ended.value["retcode"])


async def which(host: Host, cmd: Text) -> str | None:
    """Return where a program is, or nothing when there is none.

    CLI Example:

        outstation run '*' cmd.which ffmpeg
    """
    found = await host.run([SHELL, "-c", ON_THE_PATH, SHELL, cmd])
    return found.stdout.decode(errors="replace") if found.returncode == 0 else None


async def which_bin(host: Host, cmds: list[str]) -> str | None:
    """Return where the first of these programs is that is there.

    CLI Example:

        outstation run '*' cmd.which_bin '[pacman, apt-get, opkg]'
    """
    for cmd in cmds:
        if cmd and (found := await which(host, cmd)):
            return found
    return None


async def has_exec(host: Host, cmd: Text) -> bool:
    """Return whether a program is there.

    CLI Example:

        outstation run '*' cmd.has_exec ffmpeg
    """
    return await which(host, cmd) is not None


async def shells(host: Host) -> list[str]:
    """Return the login shells that the device lists in ``/etc/shells``.

    CLI Example:

        outstation run '*' cmd.shells
    """
    try:
        lines = (await host.read("/etc/shells")).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


async def exec_code(
    host: Host, lang: Text, code: str | list[str], cwd: str | None = None, args: str | list[str] | None = None
) -> Ended:
    """Run lines of code with an interpreter that is on the device, and return what it printed on standard output.

    CLI Example:

        outstation run '*' cmd.exec_code sh 'echo "$1"' args='[one]'
    """
    ended = await exec_code_all(host, lang, code, cwd, args)
    return structs.replace(ended, value=ended.value["stdout"])


async def exec_code_all(
    host: Host, lang: Text, code: str | list[str], cwd: str | None = None, args: str | list[str] | None = None
) -> Ended:
    """Run lines of code with an interpreter that is on the device, and return the same as ``cmd.run_all``.

    CLI Example:

        outstation run '*' cmd.exec_code_all awk 'BEGIN { print 1 }'
    """
    lines = [code] if isinstance(code, str) else code
    path = await _temporary(host, None)
    try:
        await host.write(path, "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
        flag = ["-f"] if lang.rpartition("/")[2] in {"awk", "gawk", "mawk", "sed"} else []
        call = Call(cmd=shlex.join([lang, *flag, path, *_listed(args)]), cwd=cwd, python_shell=False)
        return _all(call, await run_call(host, call, with_pid=True))
    finally:
        await _gone(host, path)


async def _copied(host: Host, own: Own, source: str, saltenv: str | None) -> str:
    """Where a script is on the device, from wherever it is. Raises ``FunctionFailed``."""
    if source.startswith(SCHEME):
        try:
            return await cache_file(host, source, saltenv, own=own)
        except FunctionFailed as failed:
            raise _no_script(failed.why) from None
    if "://" in source and not source.startswith("file://"):
        raise _no_script(f"{source[:200]}: a script is at a path of the device, file:///path, or salt://path")
    return await expanded(host, source.removeprefix("file://"))


def _no_script(why: str) -> FunctionFailed:
    missing = {"pid": 0, "retcode": 1, "stdout": "", "stderr": "", "cache_error": True}
    return FunctionFailed(why, COULD_NOT_START, value=missing)


async def _script(host: Host, call: Call, origin: str, args: str | list[str] | None) -> Ended:
    try:
        content = await host.read(origin, limit=SCRIPT_BYTES + 1)
    except OSError as error:
        raise _no_script(f"the script cannot be read: {error}") from error
    if len(content) > SCRIPT_BYTES:
        raise FunctionFailed(f"{origin} is larger than {SCRIPT_BYTES} bytes, the most a script may have")
    path = await _temporary(host, call.cwd)
    try:
        await host.write(path, content, mode=0o500)
        if call.runas:
            await do(host, "chown", call.runas, path)
        named = structs.replace(call, cmd=shlex.join([call.shell, "-c", '"$0" "$@"', path, *_listed(args)]))
        direct = structs.replace(named, python_shell=False)
        return _all(call, await run_call(host, direct, with_pid=True))
    finally:
        await _gone(host, path)


async def _temporary(host: Host, folder: str | None) -> str:
    where = argument(await expanded(host, folder)) if folder else ""
    return (await run_script(host, TEMPORARY, where)).must().exact.rstrip("\n")


async def _gone(host: Host, path: str) -> None:
    try:
        await host.remove(path)
    except FileNotFoundError:
        return  # The script removed itself.


def _listed(args: str | list[str] | None) -> list[str]:
    return shlex.split(args) if isinstance(args, str) else [str(each) for each in args or []]


def _both(call: Call, result: Result) -> str:
    """Standard error behind standard output, where they were not mixed already."""
    if call.hide_output:
        return ""
    return bounded("\n".join(text for text in (result.stdout, result.stderr) if text), result.cut)


def _all(call: Call, result: Result) -> Ended:
    shown: dict[str, Any] = result.shown(call)
    if not call.hide_output:
        lost = result.cut
        if len(result.stdout.encode()) + len(result.stderr.encode()) > limits.VALUE_TEXT_BYTES:
            shown["stderr"] = bounded(result.stderr, room=HALF)
        room = limits.VALUE_TEXT_BYTES - len(shown["stderr"].encode())
        shown["stdout"] = bounded(result.stdout, lost, max(HALF, room))
    return result.ended(call, shown)
