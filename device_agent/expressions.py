"""Regular expressions that somebody gave, on texts that anybody wrote: none may hold up whoever else is served here.

``re`` lets nothing else run while it looks, cannot be ended, and may look for ever. So the steps that it could take are
counted beforehand (``protocol/patterns.py``). What takes few is done at once; all else is done by a process of its own
(``expression_worker.py``), which is killed when it has worked for too long or when its job ends. What is found is the
same either way.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from device_agent import expression_worker
from device_agent.ended import FunctionFailed
from device_agent.local_command import run_here
from device_agent.protocol.pattern_tree import Node, Unreadable, read_tree
from device_agent.protocol.patterns import steps

STEPS = 1_000_000
"""Most steps that are taken at once, about 20 ms; an upper bound, which most texts are far below."""

PATTERN_CHARACTERS = 256
"""A longer expression is not even read here."""

CPU_SECONDS = 10
"""Time on a processor after which one is given up."""

MEMORY_BYTES = 512 * 1024 * 1024
WORKERS = 4
"""At once; whoever comes then waits for a turn, within the limit of the job."""

TEXT_BYTES = 4 * 1024 * 1024
"""The longest text that a replacement may lead to."""

_HARD = re.compile(r"\(\?|\\[1-9]")
"""Looks around, flags inside and what was found before: their steps are not counted."""

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class NoExpression(FunctionFailed):
    """It is no regular expression."""


class Expression:
    """One expression. With ``binary`` it is for texts as bytes, which are here as characters up to 255.

    Raises ``NoExpression``, at once or when it is used first.
    """

    def __init__(self, pattern: str, flags: int = 0, *, binary: bool = False) -> None:
        self._shown = pattern
        self._binary = binary
        self._flags = int(flags) & ~int(re.DEBUG)
        self._pattern = _characters(pattern) if binary else pattern
        self._compiled: re.Pattern[Any] | None = None
        self._tree: Node | None = None
        folded = bool(self._flags & re.IGNORECASE) and "[" in pattern and not binary
        if len(self._pattern) <= PATTERN_CHARACTERS and not _HARD.search(self._pattern) and not folded:
            self._read()

    async def search(self, texts: Sequence[str]) -> list[bool]:
        """In which of the texts it is found. Raises ``FunctionFailed`` when that takes too long."""
        return await self._find("search", texts)

    async def match(self, texts: Sequence[str]) -> list[bool]:
        """Which of the texts begin with it. Raises ``FunctionFailed`` when that takes too long."""
        return await self._find("match", texts)

    async def replace(self, new: str, text: str, count: int) -> tuple[str, int]:
        """A text with what is found replaced, as ``re.subn`` does it on bytes, and how often.

        Raises ``FunctionFailed`` when that takes too long, or the text would become too long.
        """
        assert self._binary
        letters, put = _characters(text), _characters(new)
        if self._is_light([letters], anchored=False) and (len(letters) + 1) * len(put) <= STEPS:
            assert self._compiled is not None
            try:
                changed, hits = expression_worker.replaced(
                    self._compiled, put.encode("latin-1"), letters.encode("latin-1"), count, TEXT_BYTES
                )
            except (re.error, IndexError) as error:
                raise self._wrong_new(new, error) from error
            except expression_worker.TooLong:
                raise self._too_long() from None
            return changed.decode(errors="surrogateescape"), hits
        told = await self._ask("replace", [letters], new=put, count=count, most=TEXT_BYTES)
        if "invalid_new" in told:
            raise self._wrong_new(new, told["invalid_new"])
        if "too_long" in told:
            raise self._too_long()
        return told["text"].encode("latin-1").decode(errors="surrogateescape"), told["hits"]

    # --------------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            with warnings.catch_warnings():
                # What may mean something else in a later Python is no news to whoever sent it.
                warnings.simplefilter("ignore")
                read: Any = self._pattern.encode("latin-1") if self._binary else self._pattern
                self._compiled = re.compile(read, self._flags)
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            raise self._invalid(error) from error
        try:
            self._tree = read_tree(self._pattern, self._compiled.flags)
        except Unreadable:
            self._tree = None

    def _is_light(self, texts: Sequence[str], *, anchored: bool) -> bool:
        if self._tree is None or not texts:
            return not texts and self._tree is not None
        starts = len(texts) if anchored else len(texts) + sum(map(len, texts))
        return starts <= STEPS and starts * steps(self._tree, max(map(len, texts))) <= STEPS

    async def _find(self, deed: Literal["search", "match"], texts: Sequence[str]) -> list[bool]:
        read = [_characters(text) for text in texts] if self._binary else texts
        if self._is_light(read, anchored=deed == "match"):
            assert self._compiled is not None
            find = self._compiled.match if deed == "match" else self._compiled.search
            return [find(text.encode("latin-1") if self._binary else text) is not None for text in read]
        told = await self._ask(deed, read)
        return [letter == "1" for letter in told["found"]]

    async def _ask(self, deed: str, texts: Sequence[str], **more: Any) -> dict[str, Any]:
        asked = {
            "pattern": self._pattern,
            "flags": self._flags,
            "binary": self._binary,
            "deed": deed,
            "texts": list(texts),
            **more,
        }
        words = [sys.executable, "-I", "-S", str(Path(expression_worker.__file__)), str(CPU_SECONDS), str(MEMORY_BYTES)]
        turns = _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(WORKERS))
        async with turns:
            completed = await run_here(
                words,
                shell=False,
                stdin=json.dumps(asked).encode(),
                cwd="/",
                env=None,
                timeout=None,
                output_limit=8 * TEXT_BYTES,
            )
        if completed.returncode in {-signal.SIGXCPU, -signal.SIGKILL}:
            raise FunctionFailed(
                f"the regular expression {self._shown[:200]!r} was given up after {CPU_SECONDS} s of work: there are "
                "too many ways to read this text by it; write it without a repeat inside another, such as (a+)+, or "
                "without several .* in a row, or give it a shorter text"
            )
        if completed.returncode or completed.truncated:
            said = completed.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise FunctionFailed(
                f"the regular expression {self._shown[:200]!r} came to no end: {said[:200] or 'killed'}"
            )
        told: dict[str, Any] = json.loads(completed.stdout)
        if "invalid" in told:
            raise self._invalid(told["invalid"])
        return told

    def _invalid(self, error: object) -> NoExpression:
        return NoExpression(f"{self._shown[:200]!r} is no regular expression: {error}")

    @staticmethod
    def _wrong_new(new: str, error: object) -> FunctionFailed:
        return FunctionFailed(f"{new[:200]!r} cannot take the place of what was found: {error}")

    @staticmethod
    def _too_long() -> FunctionFailed:
        return FunctionFailed(f"the text would become longer than {TEXT_BYTES} bytes, the most that is written at once")


def _characters(text: str) -> str:
    """The bytes that a text was read from, each as one character."""
    return text.encode(errors="surrogateescape").decode("latin-1")
