"""Targets in the API: which devices one means, those that are away too, and why each is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, Struct

from device_agent.protocol.stations import meanable
from device_agent.protocol.targeting import Because, Target, compile_target
from gateway.api.operation import Answer, Asked, Operation
from gateway.devices.device import Device
from gateway.devices.policy import Operator
from gateway.devices.registry import Registry
from gateway.devices.sites import SiteBook
from gateway.jobs.nodegroups import Nodegroups, TypedKind

PAGE = 1000
REASONS = 32
VALUE_CHARACTERS = 500


Targeting = Callable[[Operator, Target], None]
"""Raises ``PolicyRefused`` for a target that an operator may not look up."""


class MatchRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target to look at; nothing is done to any device."""

    tgt: str
    tgt_type: TypedKind = "glob"
    delimiter: Annotated[str, Meta(min_length=1, max_length=1)] = ":"
    site: str | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE)] = PAGE
    after: str = ""


class MatchApi:
    """The operation on targets. It is asked with a body, since a target may be longer than an address can be."""

    def __init__(
        self, *, registry: Registry, site_book: SiteBook, nodegroups: Nodegroups, targeting: Targeting
    ) -> None:
        self._registry = registry
        self._site_book = site_book
        self._nodegroups = nodegroups
        self._targeting = targeting

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/nodegroups", "The names for targets, each as the target it stands for", self._groups),
            Operation(
                "POST",
                "/match",
                "Which devices a target means, and why",
                self._match,
                body=MatchRequest,
                needs="view",
            ),
        ]

    async def _groups(self, _: Asked) -> Answer:
        return {"nodegroups": self._nodegroups.compounds()}

    async def _match(self, asked: Asked) -> Answer:
        wanted: MatchRequest = asked.body
        tgt, tgt_type = self._nodegroups.signed(wanted.tgt, wanted.tgt_type, wanted.delimiter)
        target = compile_target(tgt, tgt_type)
        self._targeting(asked.operator, target)
        await self._registry.know(target)
        everything = meanable(self._registry.everything(), tgt)
        known = [device for device in everything if wanted.site in (None, device.site)]
        meant = sorted((device for device in known if target.matches(device.id, device.grains)), key=_cursor)
        here = sum(is_present(device, self._registry, self._site_book) for device in meant)
        left = [device for device in meant if _cursor(device) > wanted.after]
        page = left[: wanted.limit]
        return {
            "tgt": tgt,
            "tgt_type": tgt_type,
            "known": len(known),
            "matched": len(meant),
            "present": here,
            "devices": [self._view(device, target.why(device.id, device.grains)) for device in page],
            "next": _cursor(page[-1]) if len(left) > len(page) else None,
        }

    def _view(self, device: Device, why: list[Because]) -> dict[str, Any]:
        return {
            "id": device.id,
            "site": device.site,
            "link": device.link,
            "present": is_present(device, self._registry, self._site_book),
            "last_seen": device.last_seen,
            "why": [{"term": because.term, "value": _cut(because.value)} for because in why[:REASONS]],
        }


def is_present(device: Device, registry: Registry, site_book: SiteBook) -> bool:
    """Whether it is here now. What a dark site last said of a device is no longer known to be true."""
    own = registry.own_device(device.id) is device
    return device.present and (own or site_book.get(device.link).connected)


def _cut(value: Any) -> Any:
    """A grain's value, or the beginning of a long one as text."""
    text = value if isinstance(value, str) else repr(value)
    return value if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}…"


def _cursor(device: Device) -> str:
    return f"{device.site}/{device.id}"
