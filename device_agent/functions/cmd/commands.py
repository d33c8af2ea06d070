"""Commands: through a shell or as words."""

from __future__ import annotations

from inspect import Parameter

from msgspec import structs

from device_agent.command_call import Call, bounded, takes_a_call
from device_agent.command_call import run as run_call
from device_agent.ended import Ended
from device_agent.functions.cmd._output import both, whole
from device_agent.host import SHELL, Host

IN_BACKGROUND = '"$@" </dev/null >/dev/null 2>&1 & printf %s "$!"'
BG = Parameter("bg", Parameter.KEYWORD_ONLY, default=False, annotation=bool)


@takes_a_call(first=[BG], redirect_stderr=True)
async def run(host: Host, call: Call, *, bg: bool) -> Ended:
    r"""Run a command through the shell and return what it printed, standard error where it came.

    With ``python_shell=False`` no shell is used and the command is only split into words; standard error then stands
    behind standard output. A list is the words of the command; give it with ``python_shell=False``.

    ``env`` is added to the environment: a mapping, or a list of mappings. ``clean_env`` leaves nothing else in it, and
    ``reset_system_locale`` sets the locale to ``C``. ``runas`` is the user that runs it. It runs in ``cwd``, or at the
    home of its user, or in ``/`` where that is not there. A ``\n`` in ``stdin`` is a new line unless
    ``stdin_raw_newlines`` is given. ``output_encoding`` is the encoding of the output, which is UTF-8 without it.

    After ``timeout`` seconds the command and all it started are killed. With ``bg`` it is started and not waited for,
    and an empty text is returned. A return code other than 0 makes the outcome ``failed`` unless it is among
    ``success_retcodes``, the output has one of the texts of ``success_stdout`` or ``success_stderr`` in it, or
    ``ignore_retcode`` is given. The output is returned nevertheless, at most its first 128 KiB.

    CLI Example:

        outstation run '*' cmd.run 'ls -l | grep foo | wc -l'
        outstation run 'cam-*' cmd.run 'cat' stdin='one two' timeout=5
        outstation run 'cam-*' cmd.run 'id -un' runas=nobody
        outstation run 'cam-*' cmd.run 'echo $SIDE' env='[{SIDE: left}]'
        outstation run 'cam-*' cmd.run '[echo, a b]' python_shell=False
    """
    if bg:
        await _started(host, call)
        return Ended("")
    result = await run_call(host, call)
    return result.ended(call, both(call, result))


@takes_a_call("python_shell", "redirect_stderr", first=[BG])
async def shell(host: Host, call: Call, *, bg: bool) -> Ended:
    """Run a command through the shell, as ``cmd.run`` does by default.

    CLI Example:

        outstation run '*' cmd.shell 'ls -l | grep foo'
    """
    call = structs.replace(call, redirect_stderr=True)
    if bg:
        await _started(host, call)
        return Ended("")
    result = await run_call(host, call)
    return result.ended(call, both(call, result))


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
    return whole(call, await run_call(host, call, with_pid=True))


@takes_a_call("rstrip", "hide_output", "redirect_stderr")
async def retcode(host: Host, call: Call) -> Ended:
    """Run a command and return its return code. Any but 0 makes the outcome ``failed``, unless it is to be ignored.

    CLI Example:

        outstation run '*' cmd.retcode 'grep -q root /etc/passwd'
    """
    result = await run_call(host, call)
    return result.ended(call, result.retcode)


@takes_a_call("stdin", "stdin_raw_newlines", "rstrip", "hide_output", "redirect_stderr")
async def run_bg(host: Host, call: Call) -> dict[str, int]:
    """Start a command, do not wait for it, and return its process number. Its output is thrown away.

    CLI Example:

        outstation run '*' cmd.run_bg 'fsck -n /dev/sda1'
    """
    return {"pid": await _started(host, call)}


async def _started(host: Host, call: Call) -> int:
    """Start a command and return its process number."""
    words = [SHELL, "-c", IN_BACKGROUND, SHELL, *call.words()]
    behind = structs.replace(
        call, cmd=words, python_shell=False, stdin=None, output_encoding=None, hide_output=False, ignore_retcode=True
    )
    return int((await run_call(host, behind)).stdout)
