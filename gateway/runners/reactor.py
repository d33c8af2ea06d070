"""``reactor``: the rules by which the station reacts, changed while it runs. The replies are Salt's, word for word.

Unlike there, what is added or taken away stays so after a restart. Nobody orders a reactor by an event: the events of
these calls tell of them and are no way to make them.
"""

from __future__ import annotations

from typing import Any, Final

from device_agent.errors import UsageInvalid
from gateway.calls.functions import Function
from gateway.calls.running import Running
from gateway.reactor.rule_book import MOST, RuleBook
from gateway.reactor.rules import Rule, RuleMap, parsed
from gateway.reactor.sources import Sources

ROOM: Final = "salt/reactors/manage"


class ReactorRunner:
    """The runner."""

    def __init__(self, sources: Sources, site: str) -> None:
        self._sources = sources
        self._site = site

    def functions(self) -> list[Function]:
        """What it has. Rules decide what is done in the reactor's name, so they are an administrator's."""
        return [
            Function("reactor.list", self.list_, need="view", fires=True),
            Function("reactor.is_leader", self.is_leader, need="view", fires=True),
            Function("reactor.add", self.add, need="admin", again=True),
            Function("reactor.delete", self.delete, need="admin", again=True),
            Function("reactor.set_leader", self.set_leader, need="admin", again=True),
        ]

    @property
    def _book(self) -> RuleBook:
        return self._sources.book

    async def list_(self, running: Running) -> list[dict[str, list[str]]]:
        """List the rules: tag globs with the paths of their files.

        CLI example: ``outstation runner reactor.list``
        """
        await running.fire_here(f"{ROOM}/list", {})
        listed = await self._listed()
        await running.fire(f"{ROOM}/list-results", {"reactors": listed})
        return listed

    async def add(self, running: Running, event: str, reactors: str | list[str]) -> dict[str, Any]:
        """Add a rule: a tag glob with the path of a file, or a list of paths.

        CLI example: ``outstation runner reactor.add 'site/door/*' /etc/outstation/reactor/door.sls``
        """
        listed = [reactors] if isinstance(reactors, str) else reactors
        await running.fire_here(f"{ROOM}/add", {"event": event, "reactors": listed})
        fits = parsed([{event: listed}])
        if fits.skipped:
            raise UsageInvalid(
                "this is no rule", found=fits.skipped[0].partition(": ")[2], allowed="a tag glob with a path or paths"
            )
        if any(rule.glob == event for rule in (await self._rules()).rules):
            answer = {"status": False, "comment": "Reactor already exists."}
        elif self._book.full:
            answer = {"status": False, "comment": f"The reactor map has {MOST} changes already."}
        else:
            await self._book.add(event, fits.rules[0].paths)
            answer = {"status": True, "comment": "Reactor added."}
        return await self._answered(running, "add-complete", answer)

    async def delete(self, running: Running, event: str) -> dict[str, Any]:
        """Take the rules with this very tag glob away, also those of the settings.

        CLI example: ``outstation runner reactor.delete 'site/door/*'``
        """
        await running.fire_here(f"{ROOM}/delete", {"event": event})
        if not any(rule.glob == event for rule in (await self._rules()).rules):
            # The words are Salt's, which scripts compare.
            answer = {"status": False, "comment": "Reactor does not exists."}
        else:
            settled = (await self._sources.settled()).rules
            await self._book.delete(event, of_settings=any(rule.glob == event for rule in settled))
            answer = {"status": True, "comment": "Reactor deleted."}
        return await self._answered(running, "delete-complete", answer)

    async def is_leader(self, running: Running) -> bool:
        """Say whether this station reacts to events.

        CLI example: ``outstation runner reactor.is_leader``
        """
        await running.fire_here(f"{ROOM}/is_leader", {})
        return await self._leader(running)

    async def set_leader(self, running: Running, value: bool = True) -> bool:
        """Have this station react to events, or not; what happens while it does not is not made up for.

        CLI example: ``outstation runner reactor.set_leader False``
        """
        await running.fire_here(f"{ROOM}/set_leader", {"id": self._site, "value": value})
        await self._book.lead(value)
        return await self._leader(running)

    async def _rules(self) -> RuleMap:
        return self._book.changing(await self._sources.settled())

    async def _listed(self) -> list[dict[str, list[str]]]:
        return [_shown(rule) for rule in (await self._rules()).rules]

    async def _answered(self, running: Running, word: str, answer: dict[str, Any]) -> dict[str, Any]:
        await running.fire(f"{ROOM}/{word}", {"reactors": await self._listed(), "result": answer})
        return answer

    async def _leader(self, running: Running) -> bool:
        await running.fire(f"{ROOM}/leader/value", {"reactors": await self._listed(), "result": self._book.leads})
        return self._book.leads


def _shown(rule: Rule) -> dict[str, list[str]]:
    return {rule.glob: list(rule.paths)}
