"""What an event would set off: its rules, what their files say to it, and the reactions. Nothing is done here."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from device_agent.protocol import tags
from device_agent.protocol.messages import Event
from gateway.event_shape import salt_data
from gateway.reactor.rules import Rule
from gateway.reactor.settings import ReactionSettings
from gateway.reactor.sls import Compiled, Reaction, RenderedFile, Trouble, all_or_none, compiled
from gateway.reactor.sources import ENVIRONMENT, Known, Sources, label
from gateway.reactor.throttle import Bounded, throttle_of
from gateway.render import Call, Renderer
from gateway.render_frames import Task
from gateway.render_sls import COLLECTED, NESTED

REWRITTEN: Final = "rewritten"
Pair = tuple[str, str]
"""The glob of a rule and one of its files."""


class Plan(Struct, frozen=True):
    """The rules that match, what each of their files said, and what comes of it all."""

    rules: list[Rule]
    files: list[RenderedFile]
    compiled: Compiled


class Planner:
    """Renders and compiles; each file harms at most itself."""

    def __init__(
        self, sources: Sources, renderer: Renderer, settings: ReactionSettings, call: Call | None = None
    ) -> None:
        self.sources = sources
        self._renderer = renderer
        self._settings = settings
        self._call = call

    async def bounded(self, event: Event) -> list[Bounded]:
        """The files of the rules for an event that have a throttle."""
        # As the matching saw them, which has just looked.
        known = self.sources.known or await self.sources.now()
        if not known.throttles:
            return []
        pairs = {(rule.glob, file) for rule in known.map.matching(event.tag) for file in known.of(rule.paths)}
        found = [(glob, file, throttle_of(known.throttles, glob, file)) for glob, file in sorted(pairs)]
        return [Bounded(glob, file, throttle) for glob, file, throttle in found if throttle is not None]

    async def plan(
        self,
        event: Event,
        *,
        without: AbstractSet[Pair] = frozenset(),
        alone: Pair | None = None,
        collected: Sequence[dict[str, Any]] = (),
        known: Known | None = None,
    ) -> Plan:
        """For an event, of all that matches or of one file of a rule ``alone``; ``collected`` is what came before it.

        ``known`` are the rules that count, where they are not those of the station as they are now.

        Raises ``Refused`` (``busy``) when too many renderings wait.
        """
        known = known or await self.sources.now()
        rules = known.map.matching(event.tag)
        files: list[RenderedFile] = []
        troubles = [known.troubles[path] for rule in rules for path in rule.paths if path in known.troubles]
        if alone is not None:
            troubles = []
        for rule in rules:
            for file in known.of(rule.paths):
                if (rule.glob, file) in without or alone not in (None, (rule.glob, file)):
                    continue
                said = await self._rendered(known, file, event, troubles, collected)
                if isinstance(said, Trouble):
                    troubles.append(said)
                else:
                    files.append(RenderedFile(file, rule.glob, said))
        found = compiled(files, self._settings.order)
        if self._settings.wrong_id == "event":
            found = all_or_none(found)
        placed = [_placed(trouble, known) for trouble in (*troubles, *found.troubles)]
        reactions = [replace(each, several=True) for each in found.reactions] if collected else found.reactions
        return Plan(rules, files, Compiled(reactions, placed))

    async def checked(self, known: Known, rule: Rule, event: Event | None) -> Compiled:
        """The files of a rule and what is wrong with them: with an event as they say it, without one as written."""
        reactions: list[Reaction] = []
        troubles = [known.troubles[path] for path in rule.paths if path in known.troubles]
        for file in known.of(rule.paths):
            said = await self._rendered(known, file, event, troubles)
            if isinstance(said, Trouble):
                troubles.append(said)
            else:
                found = compiled([RenderedFile(file, rule.glob, said)], self._settings.order)
                reactions += found.reactions
                troubles += found.troubles
        return Compiled(reactions, [_placed(trouble, known) for trouble in troubles])

    async def _rendered(
        self,
        known: Known,
        file: str,
        event: Event | None,
        notes: list[Trouble],
        collected: Sequence[dict[str, Any]] = (),
    ) -> Any:
        """What one file says, or the trouble with it. Without an event it is only looked at."""
        digest = known.tree.digest
        context: dict[str, Any] = {}
        if event is not None:
            # What a device or an operator put under data is that, of whatever but a beacon.
            flat = tags.is_flat(event.tag) and ("data" not in event.data or event.tag.startswith(tags.BEACON))
            nested = self._settings.nested_data and flat
            data = salt_data(event)
            context = {"tag": event.tag, "data": data, NESTED: nested}
            context[COLLECTED] = [*collected, {"tag": event.tag, "data": data}]
        task = Task(digest, ENVIRONMENT, {}, env=ENVIRONMENT, path=label(file), context=context, reaction=True)
        answer = await self._renderer.render(known.tree, task, self._call)
        if not answer.refused:
            if (NESTED,) in answer.reads:
                what = "data['data'] was read as the data itself, as Salt's pages show it; its master has it in data"
                notes.append(Trouble(file=file, what=what, level="note"))
            for question in answer.reads:
                if question[0] == REWRITTEN:
                    _, line, text = question
                    words = f"{text} is read as a number that is written otherwise; quote it if it is a name"
                    if not _can_stand_in(text_of(known, file), int(line), text):
                        words = f"{words} (a line of what was rendered)"
                    notes.append(Trouble(file=file, what=words, line=int(line), level="note"))
            return answer.value()
        if not answer.problems:
            return Trouble(file=file, what=f"it was not rendered ({answer.refused}): {answer.why}")
        problem = answer.problems[0]
        named = problem.file.partition(":")[2]
        where = next((each for each in _every(known) if label(each) == named), file)
        what = f"{problem.what} (a line of what was rendered)" if problem.rendered and context else problem.what
        if answer.refused != "unrenderable":
            what = f"it was not rendered ({answer.refused}): {what}"
        return Trouble(file=where, what=what, line=problem.line, text=problem.text)


def text_of(known: Known, file: str) -> str:
    """The text of a file of a rule, as it was read."""
    return known.tree.environments[ENVIRONMENT].get(label(file), b"").decode(errors="replace")


def _can_stand_in(source: str, line: int, text: str) -> bool:
    """Whether a rendered value can come from this line of the source, and not from a line that a loop has moved."""
    lines = source.split("\n")
    return 0 < line <= len(lines) and (text in lines[line - 1] or "{{" in lines[line - 1])


def _placed(trouble: Trouble, known: Known) -> Trouble:
    """With the line at which its id stands, where it has an id and no line."""
    if not trouble.id or trouble.line:
        return trouble
    for number, text in enumerate(text_of(known, trouble.file).splitlines(), start=1):
        if text.startswith((f"{trouble.id}:", f"'{trouble.id}':", f'"{trouble.id}":')):
            return replace(trouble, line=number, text=text.strip())
    return trouble


def _every(known: Known) -> list[str]:
    return list(dict.fromkeys(file for files in known.files.values() for file in files))
