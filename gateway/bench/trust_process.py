"""One side of a benchmark as a process of its own: it works while it is asked to, and the other side waits."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from device_agent.errors import StationFailed
from gateway.bench.ending import let_end
from gateway.bench.usage import Usage, rss_bytes, usage_of

ANSWER_SECONDS = 120.0

OURS = ("outstation", ["-m", "gateway.bench.trust_product"])
# -I: an isolated interpreter sees neither the folder it was started in nor the user's packages.
REFERENCE = ("reference", ["-I", str(Path(__file__).with_name("trust_reference.py"))])


class Side:
    """A running side: a line of JSON asks, and one answers. Entering the context starts it, leaving it ends it."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        bench: str = "trust",
        answer_seconds: float = ANSWER_SECONDS,
        python: str = sys.executable,
    ) -> None:
        self.name = name
        self._bench = bench
        self._answer_seconds = answer_seconds
        self._command = [python, *arguments]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        # In a group of its own: Ctrl-C on the terminal is for us, and it ends when its lines end.
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, process_group=0
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._running
        if error is not None:
            process.kill()
        let_end(process)

    @property
    def usage(self) -> Usage:
        """What it has used until now."""
        return usage_of(self._running.pid)

    @property
    def peak_rss_bytes(self) -> int:
        """The most memory it has had."""
        return self.usage.peak_rss_bytes

    @property
    def rss_bytes(self) -> int:
        """Its memory that is in RAM now."""
        return rss_bytes(self._running.pid)

    def ask(self, **asked: Any) -> Mapping[str, Any]:
        """What it answers. Raises ``StationFailed`` when it names an error, ends, or says nothing for too long."""
        self.tell(**asked)
        return self.answer()

    def tell(self, **asked: Any) -> None:
        """Ask, and leave the answer for later."""
        process = self._running
        assert process.stdin is not None
        # Whether it has ended is said when its answer is read.
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asked) + "\n")

    def answer(self) -> Mapping[str, Any]:
        """What it answers to what it was told. Raises ``StationFailed`` as ``ask`` does."""
        process = self._running
        assert process.stdout is not None
        late = threading.Timer(self._answer_seconds, process.kill)
        late.daemon = True
        late.start()
        try:
            line = process.stdout.readline()
        finally:
            late.cancel()
        if not line:
            raise self._failed(f"it has ended, or said nothing for {self._answer_seconds:.0f} s")
        answer: Mapping[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._failed(str(answer["error"]))
        return answer

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def _failed(self, found: str) -> StationFailed:
        return StationFailed(f"{self.name} failed, so there is no figure", error_id=f"bench.{self._bench}", found=found)
