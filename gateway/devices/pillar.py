"""Pillar: each device's own data, compiled where the roots are, and told to that device and to nobody else.

A station with ``pillar_roots``, or with sources outside, compiles; one without asks its master for its devices, keeps
the answer sealed, and tells it on while the master cannot be asked. What is in a pillar is never logged, counted,
fired or put into an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from device_agent.clock import Clock
from device_agent.errors import NotFound, OutstationError, Refused
from device_agent.parts import Part
from device_agent.protocol.messages import check_plain, decode_bounded
from device_agent.protocol.pillar import OF, PillarOfWanted, PillarTold, PillarWanted
from device_agent.protocol.questions import ANSWER_BYTES, QUESTION_BYTES
from device_agent.protocol.target_terms import Known
from device_agent.protocol.targeting import Target
from device_agent.questions import Unanswered
from gateway.devices.device import Device
from gateway.devices.enrolled import Enrolled
from gateway.devices.pillar_cache import Leaf, PillarCache
from gateway.devices.pillar_kept import PillarKept, forgetting
from gateway.devices.pillar_merge import merge
from gateway.devices.pillar_settings import PillarSettings
from gateway.devices.pillar_sources import PillarSources, Said
from gateway.devices.pillar_tree import PillarTree
from gateway.devices.registry import REVOKED, Registry
from gateway.metrics import Metrics
from gateway.render import Rendered, Renderer
from gateway.render_frames import Problem, Task, Tree
from gateway.render_pillar import Rules
from gateway.render_reads import Question, answered, digest
from gateway.store.writer import Statement

log = logging.getLogger(__name__)

REFUSED_SECONDS: Final = 60.0
"""So long a pillar that could not be compiled in its bounds is not tried again for the same input."""

EMPTY: Final = msgspec.msgpack.encode({})
PROBLEMS_LOGGED: Final = 10
LOOKS_AT_ONCE: Final = 16
MOST_BYTES: Final = ANSWER_BYTES - 64
"""What one answer to a device can carry."""

_wanted: Final = msgspec.msgpack.Decoder(PillarWanted)
_of_wanted: Final = msgspec.msgpack.Decoder(PillarOfWanted)
_told: Final = msgspec.msgpack.Decoder(PillarTold)


class Above(Protocol):
    """The masters, as far as they can be asked."""

    async def ask(self, about: str, body: bytes = b"") -> bytes:
        """The body of an answer. Raises ``Refused`` and ``Unanswered``."""


class Pillar(Struct, frozen=True):
    """A device's pillar as msgpack, what went wrong in it, from where it is, and how old where it was kept."""

    body: bytes
    problems: Sequence[Problem] = ()
    source: str = "here"
    age: float = 0.0

    def __repr__(self) -> str:
        """Nothing of what is in it."""
        return f"Pillar({len(self.body)} bytes from {self.source})"

    def value(self) -> dict[Any, Any]:
        """The pillar itself."""
        found: dict[Any, Any] = msgspec.msgpack.decode(self.body, strict=False)
        return found


class Pillars(Part):
    """Compiles, asks above, keeps and tells."""

    name: ClassVar[str] = "pillar"
    drain_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        *,
        site: str,
        roots: Mapping[str, list[str]],
        settings: PillarSettings,
        nodegroups: Callable[[], dict[str, str]],
        renderer: Renderer,
        kept: PillarKept,
        registry: Registry,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._site = site
        self._settings = settings
        self._nodegroups = nodegroups
        self._compiles = bool(roots) or bool(settings.ext)
        self._tree = PillarTree(roots)
        self._renderer = renderer
        self._kept = kept
        self._registry = registry
        self._clock = clock
        self._metrics = metrics
        self._cache = PillarCache()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._logged: set[tuple[str, Problem]] = set()
        self._sources = PillarSources(
            settings.ext, site=site, kept=kept, renderer=renderer, clock=clock, metrics=metrics
        )
        self.above: Callable[[], Above | None] = _nobody
        """Whom to ask where nothing is compiled here; None on a station without masters."""

    async def open(self) -> None:
        """Forget what is kept of devices that are none any more."""
        await self._kept.forget_others(self._belongs)

    def leaving(self, device: Enrolled) -> list[Statement]:
        """What is kept of a device goes with it when it is revoked."""
        return [forgetting([(self._site, device.name)])]

    def left(self, device: Enrolled) -> None:
        """A device was revoked."""
        self._sources.forget(self._site, device.name)

    def _belongs(self, site: str, device: str) -> bool:
        known = self._registry.known(site, device)
        return known is not None and known.state != REVOKED

    # --- who asks --------------------------------------------------------------------------------------------------

    async def to_device(self, asker: str, body: bytes) -> bytes:
        """A device asks for its own."""
        wanted = decode_bounded(_wanted, body or b"\x80", QUESTION_BYTES)
        check_plain(wanted.given)
        device = self._registry.own_device(asker)
        if device is None:
            raise NotFound(f"{asker} has not said hello yet")
        # One after another: who asks much waits for himself.
        async with self._turns.setdefault(asker, asyncio.Lock()):
            found = await self.of(device, wanted.env, wanted.given)
        return msgspec.msgpack.encode(PillarTold(found.body, found.age))

    async def to_site(self, asker: str, body: bytes) -> bytes:
        """A site asks for the pillar of one of its own devices, and of no other site's."""
        wanted = decode_bounded(_of_wanted, body, QUESTION_BYTES)
        check_plain(wanted.given)
        check_plain(wanted.grains)
        known = self._registry.known(wanted.site, wanted.device)
        if known is None or known.state == REVOKED or self._registry.own_device(wanted.device) is known:
            raise NotFound(f"{wanted.device} of {wanted.site} is not known here yet")
        if known.link != asker:
            raise Refused("foreign_device", f"{wanted.device} of {wanted.site} is not one of {asker}'s devices")
        # A site says what the grains of its devices are, and not that one of them is another.
        grains = {**wanted.grains, "id": wanted.device}
        found = await self._of(wanted.site, wanted.device, grains, wanted.env, wanted.given)
        return msgspec.msgpack.encode(PillarTold(found.body, found.age))

    async def of(self, device: Device, env: str | None = None, given: Mapping[str, Any] | None = None) -> Pillar:
        """The pillar of a device of this station or below. Raises ``Refused``, ``NotFound`` and ``Unanswered``."""
        grains = {**device.grains, "id": device.id}
        return await self._of(device.site, device.id, grains, env, dict(given or {}))

    async def know(self, target: Target) -> None:
        """Look at the pillar of each device before they are held against a target by it.

        A device whose pillar cannot be had is not meant.
        """
        if not target.needs_pillar:
            return
        left = iter(list(self._registry.everything()))
        values: dict[bytes, dict[Any, Any]] = {}

        async def look() -> None:
            for device in left:
                try:
                    found = await self.of(device)
                except OutstationError as error:
                    self._metrics.refused("pillar", "unknown_for_target", device.id, error.error_id)
                    device.grains = dict(device.grains)
                    continue
                value = values.get(found.body)
                if value is None:
                    value = values[found.body] = found.value()
                device.grains = Known(device.grains, value)

        async with asyncio.TaskGroup() as group:
            for _ in range(LOOKS_AT_ONCE):
                group.create_task(look())

    async def _of(
        self, site: str, device: str, grains: dict[str, Any], env: str | None, given: dict[str, Any]
    ) -> Pillar:
        if self._compiles:
            found = await self._compiled(site, device, grains, env, given)
            if len(found.body) > MOST_BYTES:
                raise Refused("too_large", f"the pillar of {device} has {len(found.body)} bytes, at most {MOST_BYTES}")
            return found
        above = self.above()
        if above is None:
            return Pillar(msgspec.msgpack.encode(given) if given else EMPTY)
        return await self._from_above(above, PillarOfWanted(site, device, grains, env, given))

    # --- from above ------------------------------------------------------------------------------------------------

    async def _from_above(self, above: Above, wanted: PillarOfWanted) -> Pillar:
        plain = wanted.env is None and not wanted.given
        try:
            told = decode_bounded(_told, await above.ask(OF, msgspec.msgpack.encode(wanted)), 2 * QUESTION_BYTES)
            told.value()
        except (Unanswered, Refused) as error:
            if isinstance(error, Refused) and error.reason not in {"not_found", "busy", "unknown_question"}:
                raise
            kept = await self._kept.find("", wanted.site, wanted.device) if plain else None
            if kept is None:
                raise
            age = max(0.0, self._clock.wall() - kept.told)
            self._metrics.add("pillar_served_from_before")
            return Pillar(kept.body, source="kept", age=age)
        if plain and not told.age:
            await self._kept.keep("", wanted.site, wanted.device, told.pillar)
        return Pillar(told.pillar, source="master", age=told.age)

    # --- compiled here ---------------------------------------------------------------------------------------------

    async def _compiled(
        self, site: str, device: str, grains: dict[str, Any], env: str | None, given: dict[str, Any]
    ) -> Pillar:
        tree = await self._tree.now()
        said = await self._sources.of(site, device, grains) if self._settings.ext else Said([], [])
        before = given
        if self._settings.ext_first:
            # Over what came with the question: who asks does not choose what the files of his device are told.
            for each in said.pillars:
                before = self._merge(before, each) if before else each
        task = Task(tree.digest, device, grains, self._rules(), before, env, site=site)
        # What somebody lays over his own would only push out what is kept for all.
        rendered = await (self._renderer.render(tree, task) if env or given else self._rendered(tree, task))
        if rendered.refused:
            raise Refused(rendered.refused, f"the pillar of {device}: {rendered.why}")
        self._log(device, rendered.problems)
        if not (said.pillars or said.errors or given):
            return Pillar(rendered.data, rendered.problems)
        pillar: dict[Any, Any] = msgspec.msgpack.decode(rendered.data, strict=False)
        for each in () if self._settings.ext_first else said.pillars:
            pillar = self._merge(pillar, each)
        if said.errors:
            pillar["_errors"] = [*pillar.get("_errors", []), *said.errors]
        return Pillar(msgspec.msgpack.encode(self._merge(pillar, given)), rendered.problems)

    async def _rendered(self, tree: Tree, task: Task) -> Rendered:
        """From what was compiled of the same input before, or compiled now; one compilation for all who wait for it."""
        root = digest([tree.digest, msgspec.to_builtins(task.rules)])
        while True:
            place = self._cache.find(root, lambda question: _answer(question, task), self._clock.monotonic())
            if isinstance(place, Rendered):
                self._metrics.add("pillar_cached")
                return place
            others = self._cache.others(place)
            if others is not None:
                await others.wait()
                continue
            try:
                self._metrics.add("pillar_compiled")
                rendered = await self._renderer.render(tree, task)
                asked: list[Question] = [("given",), *rendered.reads]
                answers = [_answer(each, task) for each in asked]
                until = self._clock.monotonic() + REFUSED_SECONDS if rendered.refused else None
                self._cache.put(root, asked, answers, Leaf(rendered, until))
                return rendered
            finally:
                self._cache.done(place)

    def _rules(self) -> Rules:
        settings = self._settings
        return Rules(
            settings.source_merging_strategy,
            settings.merge_lists,
            settings.includes_override_sls,
            self._nodegroups(),
        )

    def _merge(self, below: dict[Any, Any], above: Mapping[Any, Any]) -> dict[Any, Any]:
        if not above:
            return below
        return merge(below, dict(above), self._settings.source_merging_strategy, lists=self._settings.merge_lists)

    def _log(self, device: str, problems: Sequence[Problem]) -> None:
        """Each problem once, by its place and its kind: what it says may hold values."""
        for problem in problems[:PROBLEMS_LOGGED]:
            key = ("", problem)
            if key not in self._logged:
                if len(self._logged) >= 1000:
                    self._logged.clear()
                self._logged.add(key)
                log.error(
                    "pillar does not render file=%s line=%d kind=%s device=%s; outstation pillar show %s says more",
                    problem.file,
                    problem.line,
                    problem.kind,
                    device,
                    device,
                )


def _answer(question: Question, task: Task) -> str:
    return answered(question, task.device, task.grains, task.given, task.site)


def _nobody() -> Above | None:
    """Until there is an uplink."""
    return None
