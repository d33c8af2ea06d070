"""Scripts and lines of code, which run from a copy on the device that is removed afterwards."""

from __future__ import annotations

import shlex
from inspect import Parameter

from msgspec import structs

from device_agent.command_call import COULD_NOT_START, Call, Scalar, Text, takes_a_call
from device_agent.command_call import run as run_call
from device_agent.commands import do
from device_agent.commands import shell as run_script
from device_agent.ended import Ended, FunctionFailed
from device_agent.functions.cmd._output import whole
from device_agent.functions.cp.file_server import cache_file
from device_agent.host import Host
from device_agent.own import Own
from device_agent.protocol.file_questions import SCHEME
from device_agent.shell_paths import argument, expanded

SCRIPT_BYTES = 1024 * 1024
TEMPORARY = 'umask 077; mktemp "${1:-${TMPDIR:-/tmp}}/outstation-XXXXXX"'

Arguments = str | list[Scalar] | None

_PLACED = Parameter.POSITIONAL_OR_KEYWORD
ARGS = Parameter("args", _PLACED, default=None, annotation=Arguments)
SALTENV = Parameter("saltenv", Parameter.KEYWORD_ONLY, default=None, annotation=str | None)
OF_A_SCRIPT = [Parameter("source", _PLACED, annotation=Text), ARGS, SALTENV]
OF_CODE = [
    Parameter("lang", _PLACED, annotation=Text),
    Parameter("code", _PLACED, annotation=str | list[str]),
    Parameter("cwd", _PLACED, default=None, annotation=str | None),
    ARGS,
]


@takes_a_call("cmd", "redirect_stderr", first=OF_A_SCRIPT, own=True)
async def script(host: Host, call: Call, *, source: str, args: Arguments, saltenv: str | None, own: Own) -> Ended:
    """Run a copy of a script, and return the same as ``cmd.run_all``.

    ``source`` is a ``salt://`` address of the file server, or a path or a ``file://`` address on the device; ``args``
    is a text of words or a list. A script without ``#!`` is read by the shell. The copy is removed afterwards, and
    belongs to ``runas`` while it runs; one of the file server stays in the device's cache. The other arguments are
    those of ``cmd.run``.

    CLI Example:

        outstation run '*' cmd.script salt://scripts/collect.sh args='--since yesterday'
        outstation run '*' cmd.script file:///opt/scripts/check.sh timeout=30
    """
    return await _script(host, call, await _copied(host, own, source, saltenv), args)


@takes_a_call("cmd", "redirect_stderr", first=OF_A_SCRIPT, own=True)
async def script_retcode(
    host: Host, call: Call, *, source: str, args: Arguments, saltenv: str | None, own: Own
) -> Ended:
    """Run a copy of a script, as ``cmd.script`` does, and return its return code.

    CLI Example:

        outstation run '*' cmd.script_retcode /usr/local/bin/check.sh
    """
    ended = await _script(host, call, await _copied(host, own, source, saltenv), args)
    return structs.replace(ended, value=ended.value["retcode"])


@takes_a_call("cmd", "redirect_stderr", first=OF_CODE, named=True)
async def exec_code(
    host: Host, call: Call, *, lang: str, code: str | list[str], cwd: str | None, args: Arguments
) -> Ended:
    """Run lines of code with an interpreter that is on the device, and return what it printed on standard output.

    A text in ``args`` is one argument of the code, a list several. The other arguments are those of ``cmd.run``.

    CLI Example:

        outstation run '*' cmd.exec_code sh 'echo "$1"' args='[one]'
        outstation run '*' cmd.exec_code python3 'import os; print(os.getuid())' runas=nobody
    """
    ended = await _code(host, structs.replace(call, cwd=cwd), lang, code, args)
    return structs.replace(ended, value=ended.value["stdout"])


@takes_a_call("cmd", "redirect_stderr", first=OF_CODE, named=True)
async def exec_code_all(
    host: Host, call: Call, *, lang: str, code: str | list[str], cwd: str | None, args: Arguments
) -> Ended:
    """Run lines of code with an interpreter that is on the device, and return the same as ``cmd.run_all``.

    CLI Example:

        outstation run '*' cmd.exec_code_all awk 'BEGIN { print 1 }'
    """
    return await _code(host, structs.replace(call, cwd=cwd), lang, code, args)


async def _code(host: Host, call: Call, lang: str, code: str | list[str], args: Arguments) -> Ended:
    lines = [code] if isinstance(code, str) else code
    path = await _temporary(host, None)
    try:
        await host.write(path, "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
        if call.runas:
            await do(host, "chown", call.runas, path)
        flag = ["-f"] if lang.rpartition("/")[2] in {"awk", "gawk", "mawk", "sed"} else []
        given = [args] if isinstance(args, str) else _listed(args)
        direct = structs.replace(call, cmd=[lang, *flag, path, *given], python_shell=False)
        return whole(call, await run_call(host, direct, with_pid=True))
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


async def _script(host: Host, call: Call, origin: str, args: Arguments) -> Ended:
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
        words = [call.shell, "-c", '"$0" "$@"', path, *_listed(args)]
        direct = structs.replace(call, cmd=words, python_shell=False)
        return whole(call, await run_call(host, direct, with_pid=True))
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


def _listed(args: Arguments) -> list[str]:
    return shlex.split(args) if isinstance(args, str) else [str(each) for each in args or []]
