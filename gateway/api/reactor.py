"""The reactor in the API: its rules, what is wrong with them, what events would set off, and why a thing was done."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from device_agent.errors import PolicyRefused, Refused
from gateway.api.operation import Answer, Asked, Operation
from gateway.event_words import check_data
from gateway.reactor.explain import Explain
from gateway.reactor.past import Place
from gateway.reactor.replay import GIVEN_CHARACTERS, Replay, Wanted


class ReactorTest(Struct, frozen=True, forbid_unknown_fields=True):
    """An event that did not happen."""

    tag: Annotated[str, Meta(min_length=1, max_length=512)]
    data: dict[str, Any] = {}


class ReactorReplay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Recorded events, from ``since`` on and before ``until``, in seconds since 1970 UTC.

    ``rule`` is the text of a file that counts instead of the map, for the events of ``tag``. ``after`` is what the page
    before has as ``next``.
    """

    since: Annotated[float, Meta(ge=0)]
    until: Annotated[float, Meta(ge=0)]
    tag: Annotated[str, Meta(min_length=1, max_length=512)] = "*"
    rule: Annotated[str, Meta(min_length=1, max_length=GIVEN_CHARACTERS)] | None = None
    after: Place = Place()


class ReactorApi:
    """The operations."""

    def __init__(self, explain: Explain, replay: Replay) -> None:
        self._explain = explain
        self._replay = replay

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/reactor", "The rules, their files, and how many reactions ended how", self._list),
            Operation("GET", "/reactor/check", "What is wrong with the rules and their files", self._check),
            Operation(
                "POST",
                "/reactor/test",
                "What an event would set off; nothing is done",
                self._test,
                body=ReactorTest,
                needs="run",
            ),
            Operation(
                "POST",
                "/reactor/replay",
                "What recorded events would set off, a page of them; nothing is done",
                self._replayed,
                body=ReactorReplay,
                needs="run",
            ),
            Operation(
                "GET",
                "/reactor/why",
                "What an event set off, or what a job came of",
                self._why,
                query={"what": "the jid of a job, or the tag or the number of an event"},
            ),
        ]

    async def _list(self, _: Asked) -> Answer:
        return await self._explain.listed()

    async def _check(self, _: Asked) -> Answer:
        try:
            return await self._explain.checked()
        except Refused as refused:
            raise _busy(refused) from None

    async def _test(self, asked: Asked) -> Answer:
        wanted: ReactorTest = asked.body
        data = check_data(wanted.data)
        try:
            return await self._explain.tested(wanted.tag, data)
        except Refused as refused:
            raise _busy(refused) from None

    async def _replayed(self, asked: Asked) -> Answer:
        body: ReactorReplay = asked.body
        wanted = Wanted(since=body.since, until=body.until, tag=body.tag, given=body.rule, after=body.after)
        try:
            return await self._replay.page(wanted, asked.operator)
        except Refused as refused:
            raise _busy(refused) from None

    async def _why(self, asked: Asked) -> Answer:
        return await self._explain.why(asked.query.get("what", ""))


def _busy(refused: Refused) -> PolicyRefused:
    return PolicyRefused(
        "the station has too much to render now", error_id="reactor.busy", found=str(refused), hint="ask again"
    )
