"""Runs the reference as a process of its own, and hands it bytes: nothing of the product is loaded there."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from device_agent.errors import StationFailed
from gateway.bench.ending import let_end

SCRIPT = Path(__file__).with_name("reference.py")
START_SECONDS = 20.0
ROUND_SECONDS = 60.0
LINE_BYTES = 64 * 1024


class Collector:
    """The running reference. Entering the context starts and subscribes it, leaving it ends it."""

    def __init__(self, host: str, port: int, topic_filter: str, topic: str, acknowledge_topic: str) -> None:
        self._told = {
            "host": host,
            "port": port,
            "filter": topic_filter,
            "topic": topic,
            "acknowledge_topic": acknowledge_topic,
            "seconds": ROUND_SECONDS,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._read = b""

    def __enter__(self) -> Self:
        # -I: an isolated interpreter sees neither the folder it was started in nor the user's packages.
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        try:
            self._say(self._told)
            self._answer(START_SECONDS)
        except BaseException:
            self._process.kill()
            let_end(self._process)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._running.kill()
        let_end(self._running)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._running.pid

    def round(self, payload: bytes, acknowledge: bytes, answers: int, least: int) -> float:
        """Publish, and collect this many answers of at least so many bytes; the seconds it took.

        ``acknowledge`` is published afterwards. Raises ``StationFailed`` when not every answer came.
        """
        asked = {
            "publish": payload.hex(),
            "acknowledge": acknowledge.hex(),
            "answers": answers,
            "least": least,
        }
        self._say(asked)
        answer = self._answer(ROUND_SECONDS * 2)
        if answer["answers"] != answers:
            raise StationFailed(
                "the reference did not get every answer, so there is no figure",
                error_id="bench.incomplete",
                found=f"{answer['answers']} answers in {answer['seconds']:.1f} s",
                allowed=f"{answers} answers",
            )
        return float(answer["seconds"])

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _say(self, line: Mapping[str, Any]) -> None:
        assert self._running.stdin is not None
        try:
            self._running.stdin.write(json.dumps(line).encode() + b"\n")
        except BrokenPipeError:
            raise self._failed("it has ended") from None

    def _answer(self, seconds: float) -> dict[str, Any]:
        """Its next line. Raises ``StationFailed`` when none comes in time, or when it names an error."""
        assert self._running.stdout is not None
        descriptor = self._running.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._read:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._failed(f"it said nothing for {seconds:.0f} s")
            piece = os.read(descriptor, LINE_BYTES)
            if not piece:
                raise self._failed("it has ended")
            self._read += piece
        line, self._read = self._read.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._failed(answer["error"])
        return answer

    def _failed(self, found: str) -> StationFailed:
        return StationFailed("the reference failed, so there is no figure", error_id="bench.reference", found=found)
