"""What is known of a reaction before its event: whether its function exists, and whether it may be called here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from device_agent import loader
from device_agent.errors import NotFound, OutstationError
from device_agent.notify import one_sentence
from gateway.calls.call import CallRequest
from gateway.calls.calls import Calls
from gateway.devices.policy import Operator
from gateway.jobs.accept import Acceptance
from gateway.reactor.requests import request_of
from gateway.reactor.sls import KINDS, WHAT_CHARACTERS, Level, Reaction, Trouble

_WORD: Final = re.compile(rf"(?:^|[\s{{'\"])({'|'.join(KINDS)})\.([A-Za-z_]\w*(?:\.\w+)+)['\"]?\s*:(?:\s|$)")
"""A type with its function, as the key that it is in a file."""

WORDS: Final = 1000
"""Functions of one file that are looked at."""


class ForeseenTroubles:
    """Asks the station what it would say to reactions. It does nothing and keeps nothing."""

    def __init__(
        self,
        *,
        site: str,
        acceptance: Acceptance,
        calls: Calls,
        operator: Callable[[], Operator],
        brought: Callable[[str], object],
        expires_seconds: float,
    ) -> None:
        """``operator`` is the reactor with its roles; ``brought`` knows the functions that the site added."""
        self._site = site
        self._acceptance = acceptance
        self._calls = calls
        self._operator = operator
        self._brought = brought
        self._expires_seconds = expires_seconds

    async def of_reactions(self, reactions: Iterable[Reaction], source: Callable[[str], str]) -> list[Trouble]:
        """What would be refused of these reactions, each with its line.

        Args:
            reactions: As the files say them.
            source: Returns the text of a file by its path.
        """
        found: dict[Trouble, None] = {}
        for each in reactions:
            line, text = line_of(source(each.file), each.id, each.said)
            for level, what in await self._of(each):
                trouble = Trouble(file=each.file, id=each.id, line=line, text=text, level=level, what=what)
                found[trouble] = None
        return list(found)

    async def of_text(self, file: str, rule: str, text: str, known: Sequence[Reaction]) -> list[Trouble]:
        """What would be refused of the functions that a file names and that are not among the ``known`` reactions.

        A template says its functions with an event alone; and with one event it does not say them all. So the names
        are taken from the text, where they stand as keys. Their arguments and targets are not known.
        """
        said = {each.said for each in known if each.file == file}
        found = []
        for number, line, first, fun in list(written_functions(text))[:WORDS]:
            if f"{first}.{fun}" in said:
                continue
            said.add(f"{first}.{fun}")
            each = Reaction(id="", file=file, rule=rule, said=f"{first}.{fun}", kind=KINDS[first], fun=fun, tgt="*")
            found += [
                Trouble(file=file, line=number, text=line.strip(), level=level, what=what)
                for level, what in await self._of(each, by_name=True)
            ]
        return found

    async def _of(self, reaction: Reaction, *, by_name: bool = False) -> list[tuple[Level, str]]:
        """Level and words of each thing that is wrong; ``by_name``: the arguments and the target are not known."""
        if reaction.kind in ("runner", "wheel"):
            refused = await self._of_call(reaction, by_name=by_name)
            return [] if refused is None else [("error", _words(refused))]
        found: list[tuple[Level, str]] = []
        request, missing = request_of(reaction, self._site, self._expires_seconds, "", self._acceptance.returning)
        if missing:
            found.append(("warning", missing))
        refused = self._acceptance.refusal(request, self._operator(), by_name=by_name)
        if refused is not None:
            return [*found, ("error", _words(refused))]
        if self._brought(reaction.fun) is not None:
            return found
        try:
            await asyncio.to_thread(loader.find, reaction.fun)
            if not by_name:
                loader.check_arguments(reaction.fun, reaction.arg, reaction.kwarg)
        except NotFound as error:
            # A device of another release may have it.
            found.append(
                ("warning", f"no device of this release has {reaction.fun}; {error.allowed}"[:WHAT_CHARACTERS])
            )
        except loader.BadArguments as error:
            found.append(("error", f"the devices would refuse it: {error.what}"[:WHAT_CHARACTERS]))
        return found

    async def _of_call(self, reaction: Reaction, *, by_name: bool) -> OutstationError | None:
        request = CallRequest(
            kind="runner" if reaction.kind == "runner" else "wheel",
            fun=reaction.fun,
            arg=reaction.arg,
            kwarg=reaction.kwarg,
        )
        return await self._calls.refusal(request, self._operator(), direct=reaction.direct, by_name=by_name)


def written_functions(text: str) -> Iterable[tuple[int, str, str, str]]:
    """Line number, line, type and function of each reaction whose function stands in a text as a key."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.lstrip().startswith("#"):
            for found in _WORD.finditer(line):
                yield number, line, found[1], found[2]


def line_of(text: str, name: str, said: str) -> tuple[int, str]:
    """Number and text of the line where a reaction stands: its function, below its id where the id is as written."""
    first = said.partition(".")[0]
    lines = list(enumerate(text.splitlines(), start=1))
    tops = (f"{name}:", f"'{name}':", f'"{name}":')
    begin = next((at for at, (_, line) in enumerate(lines) if line.startswith(tops)), None)
    for word in (said, first):
        pattern = re.compile(rf"(?<![\w.]){re.escape(word)}['\"]?\s*:?(?:\s|$)")
        for number, line in lines[begin or 0 :]:
            if pattern.search(line):
                return number, line.strip()
    return (lines[begin][0], lines[begin][1].strip()) if begin is not None else (0, "")


def _words(error: OutstationError) -> str:
    """An error on one line, within bounds."""
    return f"it would be refused: {one_sentence(error)}"[:WHAT_CHARACTERS]
