"""Rendering: YAML and Jinja in a few processes of their own, each with so much memory and time and no more.

A template can be wrong in ways that nobody can foresee: it may not end, eat all memory, or end the process it is in. So
it is never rendered in the station itself. A process that is late stops by itself and says where it was, or is killed;
another takes its place, and who waits for a turn meanwhile gets it there. What a rendering asks of its device is told
while it renders (``render_reads``), so that it is known also of one that was killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct

from device_agent.errors import Refused
from device_agent.parts import Part
from gateway.metrics import Metrics
from gateway.render_frames import Answer, Asking, Problem, Read, Ready, Task, Told, Tree, decode_upward, encode
from gateway.render_reads import Question
from gateway.render_settings import RenderSettings
from gateway.render_worker import CPU_GRACE_SECONDS, SPENT, TREES

WAITING: Final = 4096
"""Most that wait for a turn; more are refused at once."""

CALLS: Final = 100
"""Most that one file calls of the station."""

TOLD_BYTES: Final = 1024 * 1024
ANSWER_BYTES: Final = 8 * 1024 * 1024
START_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 5.0
"""What a process that is late has to say where it was, before it is killed."""

END_SECONDS: Final = 5.0
LENGTH: Final = struct.Struct(">I")


Call = Callable[[str, Sequence[Any], Mapping[str, Any]], Awaitable[Any]]
"""Answers what a file asks of the station: function and arguments. Raises ``Refused`` with the reason."""


class Rendered(Struct, frozen=True):
    """What came of a task: data as msgpack, or the reason why there is none. ``reads`` is what it asked, in order."""

    reads: list[Question]
    data: bytes = b""
    problems: list[Problem] = []
    refused: str = ""
    why: str = ""

    def __repr__(self) -> str:
        """Nothing of the data."""
        return f"Rendered({self.refused or len(self.data)})"

    def value(self) -> Any:
        """The data. Raises ``Refused``."""
        if self.refused:
            raise Refused(self.refused, self.why)
        return msgspec.msgpack.decode(self.data, strict=False)


class Renderer(Part):
    """The processes, started when the first task comes, and tasks in their turn."""

    name: ClassVar[str] = "renderer"
    drain_seconds: ClassVar[float] = 1.0

    def __init__(self, settings: RenderSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._idle: asyncio.Queue[_Process] = asyncio.Queue()
        self._processes: list[_Process] = []
        self._waiting = 0
        self.tasks = 0
        """Tasks that were given to a process, ever."""

    async def open(self) -> None:
        """Nothing runs before something is to be rendered."""
        for _ in range(self._settings.workers):
            process = _Process(self._settings)
            self._processes.append(process)
            self._idle.put_nowait(process)

    async def close(self) -> None:
        for process in self._processes:
            await process.end()

    async def render(self, tree: Tree, task: Task, call: Call | None = None) -> Rendered:
        """Do a task. Raises ``Refused`` with ``busy``; what a template does wrong is in the answer.

        ``call`` answers what a reactor's file asks of the station, within the time that the file has.
        """
        if self._waiting >= WAITING:
            raise Refused("busy", f"{WAITING} renderings wait for their turn; ask again")
        self._waiting += 1
        try:
            process = await self._idle.get()
        finally:
            self._waiting -= 1
        try:
            self.tasks += 1
            rendered = await process.run(tree, task, call)
        finally:
            self._idle.put_nowait(process)
        if rendered.refused:
            self._metrics.refused("render", rendered.refused, task.device, "")
        return rendered


async def _told(asking: Asking, call: Call | None) -> Told:
    if call is None:
        return Told(why=f"a file calls at most {CALLS} functions of its station")
    try:
        data = msgspec.msgpack.encode(await call(asking.fun, asking.arg, asking.kwarg))
    except Refused as refused:
        return Told(why=refused.detail or refused.reason)
    if len(data) > TOLD_BYTES:
        return Told(why=f"it returns {len(data)} bytes, and a file is told at most {TOLD_BYTES}")
    return Told(data)


class _Process:
    """One process, or the place for one."""

    def __init__(self, settings: RenderSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._trees: OrderedDict[str, None] = OrderedDict()
        self._ready = False

    async def run(self, tree: Tree, task: Task, call: Call | None) -> Rendered:
        """Do a task, within the time that it has. However it ends, the next one can be done after it."""
        reads: list[Question] = []
        whole = False
        try:
            if self._process is None:
                # What it takes to start is no time of the template's.
                async with asyncio.timeout(START_SECONDS):
                    await self._start()
            async with asyncio.timeout(self._settings.seconds + GRACE_SECONDS):
                await self._hand(tree, task)
                answer = await self._answer(reads, call)
            whole = answer.refused not in SPENT
            return Rendered(reads, answer.data, answer.problems, answer.refused, answer.why)
        except TimeoutError:
            if not self._ready:
                return Rendered(reads, refused="died", why=f"its process did not start in {START_SECONDS:g} s")
            return Rendered(
                reads, refused="too_slow", why=f"it was killed after {self._settings.seconds + GRACE_SECONDS:g} s"
            )
        except (OSError, EOFError, msgspec.DecodeError):
            return Rendered(reads, refused="died", why=await self._death())
        finally:
            if not whole:
                await self.end()

    async def end(self) -> None:
        """Kill it, if there is one."""
        process, self._process = self._process, None
        if self._writer is not None:
            self._writer.close()
            self._reader = self._writer = None
        if process is not None:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, END_SECONDS)

    async def _start(self) -> None:
        near, far = socket.socketpair()
        memory = self._settings.memory_megabytes * 1024 * 1024
        bounds = [str(memory), str(self._settings.seconds), str(self._settings.cpu_seconds)]
        words = [sys.executable, "-m", "gateway.render_worker", *bounds]
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
        # Sets have one order in all of them: what is asked again is answered with the same.
        kept["PYTHONHASHSEED"] = "0"
        try:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it returns when the program has started, in a few milliseconds
                words,
                stdin=far.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=kept,
                start_new_session=True,
            )
        finally:
            far.close()
        self._trees.clear()
        self._ready = False
        near.setblocking(False)
        self._reader, self._writer = await asyncio.open_connection(sock=near, limit=ANSWER_BYTES)
        self._ready = isinstance(await self._message(), Ready)

    async def _hand(self, tree: Tree, task: Task) -> None:
        assert self._writer is not None
        if tree.digest not in self._trees:
            # As the process itself lets the oldest go.
            while len(self._trees) >= TREES:
                self._trees.popitem(last=False)
            self._send(encode(tree))
            self._trees[tree.digest] = None
        self._send(encode(task))
        await self._writer.drain()

    def _send(self, body: bytes) -> None:
        assert self._writer is not None
        self._writer.writelines([LENGTH.pack(len(body)), body])

    async def _answer(self, reads: list[Question], call: Call | None) -> Answer:
        calls = 0
        while not isinstance(message := await self._message(), Answer):
            if isinstance(message, Read):
                reads.append(tuple(message.question))
            elif isinstance(message, Asking):
                calls += 1
                self._send(encode(await _told(message, call if calls <= CALLS else None)))
        return message

    async def _message(self) -> Ready | Read | Asking | Answer:
        assert self._reader is not None
        (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        if size > ANSWER_BYTES:
            raise EOFError
        return decode_upward(await self._reader.readexactly(size))

    async def _death(self) -> str:
        if self._process is None:
            return "its process did not start"
        try:
            status = await asyncio.to_thread(self._process.wait, END_SECONDS)
        except subprocess.TimeoutExpired:
            return "its process said nothing that could be understood"
        if status == -signal.SIGXCPU:
            return f"it was killed after {self._settings.cpu_seconds + CPU_GRACE_SECONDS} s of work"
        return f"its process ended by itself ({status})"
