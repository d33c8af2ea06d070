"""Running a command on a machine with a POSIX shell behind SSH, and killing it there with all it started.

The command is begun by a few lines of shell. They see to it that it leads a process group, tell its number, go to its
folder, set its environment, and become it: the return code and the signals are its own. Each stream begins with a mark
of random letters, so whatever an account prints at a login is not taken for the command's words.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import Final

import asyncssh

from device_agent.host import Completed, HostLost
from device_agent.local_command import words_of
from gateway.downlinks.ssh_errors import errno_of
from gateway.downlinks.ssh_exec import UNNAMED_SIGNAL, Exec, Kept
from gateway.downlinks.ssh_login_shell import login_line
from gateway.downlinks.ssh_marker import AlreadyBegun, Marker

COMMAND_BYTES: Final = 8000
"""A longer command line goes through the input; dropbear takes none of more than 9000 bytes."""

SAID_CHARACTERS: Final = 200
UNABLE: Final = frozenset({errno.E2BIG, errno.ENOMEM, errno.EAGAIN})
"""Errors of a shell that could not begin this one command."""

BEGIN_SECONDS: Final = 30.0
"""How long a device may take to open a session and begin a command; a slow line and a busy camera need some."""

KILL_SECONDS: Final = 5.0
"""How long the killing of a command is waited for."""

PIPE_SECONDS: Final = 1.0
"""How long output is still awaited after the end of a command whose daemon kept the pipe."""

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

MARK: Final = secrets.token_hex(12)
BEGUN: Final = re.compile(MARK.encode() + rb" (\d{1,10}) ([gt])([mnx]?)\r?\n")
HEARD: Final = re.compile(MARK.encode() + rb"\r?\n")
"""What each stream of every command begins with: the number of its process, whether it leads a group, and what became
of the job's marker (``ssh_marker``) where the command had to make it."""

LEAD: Final = (
    "i=$1; shift; s=; g=; read -r s 2>/dev/null </proc/$$/stat; g=${s##*) }; g=${g#* }; g=${g#* }; g=${g%% *}; "
    'if [ "$g" = $$ ]; then set -- g "$@"; '
    'elif [ -n "$g" ] && command -v setsid >/dev/null 2>&1; then exec setsid /bin/sh -c "$i" sh g "$@"; '
    'else set -- t "$@"; fi; eval "$i"'
)
"""The first lines: they make the process a leader of its group where it is none (dropbear), or say that it is not."""

FROM_INPUT: Final = 's=; while :; do IFS= read -r l || exit 1; [ "$l" = "{end}" ] && break; s="$s$l\n"; done; eval "$s"'
KILL_TREE: Final = (
    'kill -STOP {pid}; p=" {pid} "; m=0; k=0; while [ $m -lt 2 ] && [ $k -lt 20 ]; do m=$((m + 1)); k=$((k + 1)); '
    'for f in /proc/[0-9]*/stat; do s=; while read -r l; do s="$s$l "; done 2>/dev/null <"$f"; [ "$s" ] || continue; '
    "c=${{f#/proc/}}; c=${{c%/stat}}; "
    "s=${{s##*) }}; z=${{s%% *}}; s=${{s#* }}; s=${{s%% *}}; "
    'case $p in *" $c "*) case $z in [RS]) m=0;; esac;; *" $s "*) kill -STOP $c; p="$p$c "; m=0;; esac; '
    "done; done; kill -9 $p"
)
"""Without ``setsid``: the command and all that came from it, each stopped first so that it starts no more.

One that still runs when it is looked at may be in the middle of starting another, which a look from before does not
see: so they are looked at until all have stopped, and once more. A name of a process may have a line end in it, so each
file is read to its end (proc_pid_stat(5)).
"""


class CommandRecord:
    """What came of the commands over one connection."""

    def __init__(self) -> None:
        self.finished = 0
        """Commands whose end the device reported."""
        self.said = ""
        """What the account said instead of beginning the last command that did not begin."""


class NoShell(HostLost):
    """The account of a device gives no POSIX shell, but a menu, another command line or nothing."""

    def __init__(self, said: str) -> None:
        super().__init__(f"no_shell: {no_shell(said)}", started=False)
        self.said = said


def no_shell(said: str) -> str:
    """What is wrong with an account that answers with this and runs nothing."""
    return f"the account gives no POSIX shell; it said {said!r}" if said else "the account gives no POSIX shell"


async def run_there(
    connection: asyncssh.SSHClientConnection,
    argv: Sequence[str] | str,
    *,
    shell: bool,
    stdin: bytes | None,
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    output_limit: int,
    record: CommandRecord,
    marker: Marker | None = None,
) -> Completed:
    """Run a command there; see ``Host.run``. Raises ``HostLost`` when its end is not known.

    With a ``marker`` the device makes it first. Raises ``AlreadyBegun`` when the command must not run, ``NoShell`` when
    the account has run none on this connection. What comes of it is added to ``record``.
    """
    words = words_of(argv, shell=shell)
    command, fed = _command_line(words, cwd, env, silent=stdin is None, marker=marker)
    session = Exec(fed if stdin is None else (fed or b"") + stdin, Kept(BEGUN, output_limit), Kept(HEARD, output_limit))
    running = _Running(connection, session)
    timed_out = False
    session.start(connection, command)
    try:
        async with asyncio.timeout(timeout):
            await running.begin()
            if marker is not None and session.stdout.found is not None:
                await _judge(marker, session)
            await session.exited.wait()
    except TimeoutError:
        timed_out = True
    finally:
        if not session.stdout.marked:
            record.said = _said(session)
        await running.end()
    if session.lost is not None and session.returncode is None:
        raise session.lost
    if not session.stdout.marked and not timed_out:
        raise _not_begun(session, record)
    record.finished += session.returncode is not None
    _raise_unstarted(session, words, cwd)
    if timed_out and not running.killed:
        why = f"the command was not over after {timeout:g} seconds, and the device does not say that it was killed"
        raise HostLost(why, started=session.sent)
    if session.returncode is None and not timed_out and connection.is_closed():
        raise HostLost("the connection was closed under a command")
    if timed_out:
        returncode = -signal.SIGKILL if session.returncode is None else session.returncode
    else:
        returncode = UNNAMED_SIGNAL if session.returncode is None else session.returncode
    return Completed(
        returncode=returncode,
        stdout=bytes(session.stdout.head),
        stderr=bytes(session.stderr.head),
        truncated=session.stdout.discarded + session.stderr.discarded,
        timed_out=timed_out,
    )


async def _judge(marker: Marker, session: Exec) -> None:
    """Take what the device says of the marker. Raises ``AlreadyBegun`` when its shell has ended instead of running."""
    assert session.stdout.found is not None
    try:
        marker.judge(session.stdout.found[3])
    except AlreadyBegun:
        await session.exited.wait()
        raise


class _Running:
    """A session's end: what does not end by itself, or keeps the output open, is killed."""

    def __init__(self, connection: asyncssh.SSHClientConnection, session: Exec) -> None:
        self._connection = connection
        self._session = session
        self.killed = False

    async def begin(self) -> None:
        """Wait until it runs."""
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                await self._session.begun.wait()
        except TimeoutError:
            said = _said(self._session)
            why = f"the device began nothing in {BEGIN_SECONDS:g} seconds" + (f"; it said {said!r}" if said else "")
            self._session.lost = HostLost(why, started=self._session.sent)
            self._session.exited.set()

    async def end(self) -> None:
        """Wait for the last output; kill; close the session."""
        session = self._session
        try:
            if not session.exited.is_set():
                await self._kill()
            else:
                async with asyncio.timeout(PIPE_SECONDS):
                    await session.drained.wait()
        except TimeoutError:
            await self._kill()
        finally:
            session.abandon()

    async def _kill(self) -> None:
        session = self._session
        try:
            async with asyncio.timeout(KILL_SECONDS):
                await session.begun.wait()
                if session.stdout.found is None:
                    return
                killer = Exec(None, Kept(None, 0), Kept(None, 0))
                killer.start(self._connection, _killing(session.stdout.found[1], session.stdout.found[2]))
                try:
                    await killer.exited.wait()
                finally:
                    killer.abandon()
                if killer.returncode is None:
                    session.signal_kill()
                await session.exited.wait()
                self.killed = True
        except TimeoutError:
            session.signal_kill()


def _killing(pid: bytes, way: bytes) -> bytes:
    script = f"kill -9 -{pid.decode()}" if way == b"g" else KILL_TREE.format(pid=pid.decode())
    return login_line(script.encode())


def _command_line(
    words: list[str], cwd: str | None, env: Mapping[str, str] | None, *, silent: bool, marker: Marker | None
) -> tuple[bytes, bytes | None]:
    """What is asked of the server, and what goes ahead of the command's own input."""
    for text in [*words, cwd or "", *(env or {}).values()]:
        if "\0" in text:
            raise ValueError("embedded null byte")
    begin = _begin(cwd, env, silent=silent, marker=marker)
    script = os.fsencode(f"set -- {' '.join(map(shlex.quote, [begin, *words]))}\n{LEAD}")
    line = login_line(script)
    if len(line) <= COMMAND_BYTES:
        return line, None if silent else b""
    end = f"end {MARK}"
    return login_line(FROM_INPUT.format(end=end).encode()), b"%b\n%b\n" % (script, end.encode())


def _begin(cwd: str | None, env: Mapping[str, str] | None, *, silent: bool, marker: Marker | None) -> str:
    """The last lines before the command; what they cannot do they say on the error stream, with the mark."""
    # In two halves, so that the mark is not in what a device repeats of a command that it does not know.
    mark = f"{MARK[:8]} {MARK[8:]}"
    lines = [] if marker is None else [marker.script()]
    state = "$1" if marker is None else "$1$y"
    lines.append(f"printf '%s%s %s %s\\n' {mark} $$ \"{state}\"; printf '%s%s\\n' {mark} >&2; shift")
    if marker is not None:
        lines.append(marker.guard())
    if cwd is not None:
        folder = shlex.quote(plain_path(cwd))
        lines.append(
            f"cd {folder} 2>/dev/null || {{ LC_ALL=C ls -d {folder}/. >/dev/null; "
            f"printf '\\n%s%s cwd 126' {mark} >&2; exit 1; }}"
        )
    for name, value in (env or {}).items():
        if not VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a variable in a shell")
        lines.append(f"export {name}={shlex.quote(value)}")
    # Not every shell runs its trap when the path is there and cannot be executed, and none says why it is not there.
    lines.append(
        "case $1 in */*) x=; "
        'if ! [ -e "$1" ]; then LC_ALL=C ls -d "$1" >/dev/null && x=126 || x=127; '
        'elif [ -d "$1" ] || ! [ -x "$1" ]; then x=126; fi; '
        f"if [ -n \"$x\" ]; then printf '\\n%s%s exec %s' {mark} $x >&2; exit $x; fi;; esac"
    )
    lines.append(f'trap \'printf "\\n%s%s exec %s" {mark} $? >&2\' EXIT; exec "$@"{" </dev/null" if silent else ""}')
    return "; ".join(lines)


def plain_path(path: str) -> str:
    """The same path as a word that no command takes for an option or for its standard input."""
    return path if path.startswith("/") or not path else f"./{path}"


def _not_begun(session: Exec, record: CommandRecord) -> OSError | NoShell:
    number = errno_of(bytes(session.stdout.before + session.stderr.before))
    if number in UNABLE:
        return OSError(number, os.strerror(number))
    if not record.finished:
        return NoShell(record.said)
    return OSError(errno.ENOEXEC, no_shell(record.said))


def _said(session: Exec) -> str:
    """What an account said instead of running a command, in one line."""
    words = bytes(session.stdout.before + session.stderr.before).decode(errors="replace").split()
    return " ".join(words)[:SAID_CHARACTERS]


def _raise_unstarted(session: Exec, words: list[str], cwd: str | None) -> None:
    reason, found, rest = session.stderr.tail.rpartition(b"\n" + MARK.encode() + b" ")
    if not found:
        return
    part, _, status = rest.decode(errors="replace").partition(" ")
    number = errno_of(reason)
    if number is None or number == errno.ENOSYS:
        number = errno.ENOENT if status == "127" else errno.EACCES
    raise OSError(number, os.strerror(number), cwd if part == "cwd" else words[0])
