"""One of the processes that templates are rendered in: a template that does not end, or eats memory, takes it along.

Run as ``python -m gateway.render_worker MEMORY_BYTES SECONDS CPU_SECONDS`` on a socket as standard input: frames of
four bytes of length and a message, questions down, reads and one answer up. It keeps the trees that it was given last.
It can write no file and start no process, and nothing of its station's environment is in its own.
"""

from __future__ import annotations

import math
import os
import resource
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from device_agent.errors import Refused
from device_agent.protocol.carried import carried
from gateway import render_yaml
from gateway.render_calls import NotCallable
from gateway.render_frames import Answer, Asking, Problem, Read, Ready, Task, Told, Tree, encode
from gateway.render_names import KEEPERS
from gateway.render_pillar import Compiler
from gateway.render_reads import Question, Reads
from gateway.render_shown import plain
from gateway.render_sls import MEMORY, Exhausted, Sources, Unrenderable
from gateway.render_templates import Codes
from gateway.render_time import Late, TimeLimit

NICENESS: Final = 5
SPENT: Final = ("memory", "too_slow")
"""Ends of a task after which its process ends: what is left of it may not be enough for the next one."""

TREES: Final = 4
OPEN_FILES: Final = 32
CPU_GRACE_SECONDS: Final = 2
"""What a task that is late by its work has to say so."""

LENGTH: Final = struct.Struct(">I")

_tasks: Final = msgspec.msgpack.Decoder(Tree | Task)
_told: Final = msgspec.msgpack.Decoder(Told)


class Worker:
    """Answers one task after another."""

    def __init__(self, line: socket.socket, seconds: float, cpu_seconds: int) -> None:
        self._line = line
        self._cpu_seconds = cpu_seconds
        self._limit = TimeLimit(seconds, cpu_seconds)
        self._trees: dict[str, dict[str, Sources]] = {}
        self._codes = Codes()

    def serve(self) -> None:
        """Until the line ends, or a task has used up its memory or its time."""
        self._limit.listen()
        self._send(encode(Ready()))
        while (body := self._receive()) is not None:
            message = _tasks.decode(body)
            if isinstance(message, Tree):
                while len(self._trees) >= TREES:
                    del self._trees[next(iter(self._trees))]
                self._trees[message.digest] = {
                    env: Sources(env, files, self._codes) for env, files in message.environments.items()
                }
                continue
            if not self._done(message):
                # The station ends it when it has read what was said.
                while self._line.recv(1 << 16):
                    pass
                return

    def _done(self, task: Task) -> bool:
        """Answer a task, and say whether the process is as good as before: one that was stopped anywhere is not."""
        self._allow_time()
        try:
            try:
                self._limit.start()
                answer = self._answer(task)
            finally:
                self._limit.stop()
        except Exhausted as error:
            answer = Answer(refused=error.reason, why=str(error), problems=[error.problem])
        except Late as error:
            answer = Answer(refused="too_slow", why=f"it was stopped after {error}")
        except MemoryError:
            answer = Answer(refused="memory", why=MEMORY)
        self._limit.stop()
        try:
            self._send(encode(answer))
        except MemoryError:
            answer = Answer(refused="memory", why=MEMORY)
            self._send(encode(answer))
        return answer.refused not in SPENT

    def _answer(self, task: Task) -> Answer:
        call = self._called if task.reaction else None
        reads = Reads(task.device, task.grains, task.given, self._tell, task.site, call)
        environments = self._trees[task.tree]
        try:
            if task.path:
                sources = environments[task.env or "base"]
                if task.reaction:
                    data = sources.react(task.path, reads, task.context or None)
                else:
                    keep = KEEPERS[task.names]
                    data = sources.render(task.path, task.sls, reads, task.given, task.context, keep)
                render_yaml.check(data)
                return _fitting(data, [])
            compiled = Compiler(environments, task.rules, reads, task.given, task.env).compile()
            return _fitting(compiled.pillar, compiled.problems)
        except Unrenderable as error:
            return Answer(refused="unrenderable", why=str(error), problems=[error.problem])
        except render_yaml.TooLarge as error:
            return Answer(refused="too_large", why=str(error))
        except RecursionError:
            return Answer(refused="recursion", why="it is nested, or calls itself, too deep")

    def _tell(self, question: Question) -> None:
        self._send(encode(Read(list(question))))

    def _called(self, fun: str, arg: Sequence[Any], kwarg: Mapping[str, Any]) -> Any:
        """What a function of the station returns. Raises ``NotCallable``."""
        self._send(encode(Asking(fun, [plain(each) for each in arg], {name: plain(kwarg[name]) for name in kwarg})))
        body = self._receive()
        if body is None:
            raise NotCallable(f"{fun}: the station is gone")
        told = _told.decode(body)
        if told.why:
            raise NotCallable(f"{fun}: {told.why}")
        return msgspec.msgpack.decode(told.data)

    def _allow_time(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = math.ceil(used.ru_utime + used.ru_stime) + self._cpu_seconds + CPU_GRACE_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))

    def _receive(self) -> bytes | None:
        head = self._exactly(LENGTH.size)
        return None if head is None else self._exactly(LENGTH.unpack(head)[0])

    def _exactly(self, size: int) -> bytes | None:
        found = bytearray()
        while len(found) < size:
            piece = self._line.recv(min(size - len(found), 1 << 20))
            if not piece:
                return None
            found += piece
        return bytes(found)

    def _send(self, body: bytes) -> None:
        with self._limit:
            self._line.sendall(LENGTH.pack(len(body)) + body)


def _fitting(data: Any, problems: list[Problem]) -> Answer:
    try:
        try:
            body = msgspec.msgpack.encode(data)
        except (TypeError, OverflowError, ValueError):
            body = msgspec.msgpack.encode(carried(data, depth=render_yaml.DEPTH, text_keys=False))
    except Refused as refused:
        return Answer(refused="not_plain", why=f"it holds what cannot travel: {refused.detail}", problems=problems)
    return Answer(data=body, problems=problems)


def main(memory_bytes: int, seconds: float, cpu_seconds: int) -> None:
    """Serve within these bounds."""
    os.nice(NICENESS)
    line = socket.socket(fileno=os.dup(0))
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_AS: memory_bytes,
    }
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))
    Worker(line, seconds, cpu_seconds).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
