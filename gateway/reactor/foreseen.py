"""What is known of a reaction before its event: whether its function exists, and whether it may be called here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from device_agent import loader
from device_agent.errors import NotFound, OutstationError, Refused
from device_agent.notify import one_sentence
from device_agent.protocol.stations import station_device
from device_agent.trust.reach import Custom
from gateway.calls.binding import bound
from gateway.calls.call import CallRequest
from gateway.calls.calls import Calls
from gateway.devices.policy import Operator
from gateway.jobs.accept import Acceptance
from gateway.jobs.request import without_missing
from gateway.own.grants import check_station_grants
from gateway.reactor.requests import request_of
from gateway.reactor.sls import KINDS, WHAT_CHARACTERS, Compiled, Level, Reaction, Trouble, not_a_command
from gateway.reactor.source_lines import SourceLines
from gateway.reactor.written_calls import WrittenCall, written_calls
from gateway.reactor.written_returners import written_returners

CALLS: Final = 1000
"""Most calls of a text that are checked."""


class ForeseenTroubles:
    """Asks the station what it would say to reactions. It does nothing and keeps nothing."""

    def __init__(
        self,
        *,
        site: str,
        acceptance: Acceptance,
        calls: Calls,
        operator: Callable[[], Operator],
        brought: Custom,
        station_grants: Sequence[str],
        expires_seconds: float,
    ) -> None:
        """``operator`` is the reactor with its roles; ``brought`` knows the functions that the site added."""
        self._station_grants = station_grants
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
        sources: dict[str, SourceLines] = {}
        for each in reactions:
            for level, what in await self._of(each):
                if each.file not in sources:
                    sources[each.file] = await asyncio.to_thread(SourceLines, source(each.file))
                line, text = sources[each.file].of(each)
                trouble = Trouble(file=each.file, id=each.id, line=line, text=text, level=level, what=what)
                found[trouble] = None
        return list(found)

    async def of_text(self, file: str, rule: str, text: str, known: Compiled) -> list[Trouble]:
        """What would be refused of the functions that stand in the text of a file and are not in ``known``.

        A template shows its functions with an event alone, and with one event not all of them. Their arguments and
        targets are not known.
        """
        said = {each.said for each in known.reactions if each.file == file}
        told = {each.what for each in known.troubles if each.file == file}
        found: list[Trouble] = []
        for call in await asyncio.to_thread(lambda: list(islice(written_calls(text), CALLS))):
            if call.said in said:
                continue
            said.add(call.said)
            found += [
                Trouble(file=file, line=call.line, text=call.text, level=level, what=what)
                for level, what in await self._of_call_by_name(file, rule, call)
                if what not in told
            ]
        returners = {name for each in known.reactions if each.file == file for name in each.ret}
        for number, line, names in islice(written_returners(text), CALLS):
            _, missing = without_missing(self._acceptance.returning, [name for name in names if name not in returners])
            if missing:
                returners.update(names)
                found.append(Trouble(file=file, line=number, text=line.strip(), level="warning", what=missing))
        return found

    async def _of_call_by_name(self, file: str, rule: str, call: WrittenCall) -> list[tuple[Level, str]]:
        if "." not in call.fun:
            # Under any other type a key without a module, or one that a template computes, says too little.
            return [("error", not_a_command(call.fun))] if call.type == "cmd" and call.fun else []
        reaction = Reaction(id="", file=file, rule=rule, said=call.said, kind=KINDS[call.type], fun=call.fun, tgt="*")
        return await self._of(reaction, by_name=True)

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
        if reaction.kind == "caller" or reaction.tgt == station_device(self._site):
            given = None if by_name else (reaction.arg, reaction.kwarg)
            try:
                check_station_grants(self._station_grants, reaction.fun, given, self._brought)
            except Refused as denied:
                return [*found, ("error", f"the station would refuse it: {denied.detail}"[:WHAT_CHARACTERS])]
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
        refused = await self._calls.refusal(request, self._operator(), direct=reaction.direct, by_name=by_name)
        if refused is not None or by_name:
            return refused
        function = await self._calls.function(request.kind, request.fun)
        if function.refusal is None:
            return None
        arg, kwarg = bound(function.run, reaction.said, reaction.arg, reaction.kwarg, direct=reaction.direct)
        return function.refusal(self._operator(), *arg, **kwarg)


def _words(error: OutstationError) -> str:
    """An error on one line, within bounds."""
    return f"it would be refused: {one_sentence(error)}"[:WHAT_CHARACTERS]
