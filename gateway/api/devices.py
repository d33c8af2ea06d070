"""Devices in the API: list by target, show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, cast, get_args

from device_agent.errors import NotFound, Refused, UsageInvalid
from device_agent.protocol.messages import TargetType
from device_agent.protocol.targeting import compile_target
from device_agent.trust.device_certificate import read_device_certificate
from device_agent.trust.keys import fingerprint
from gateway.api.operation import Answer, Asked, Operation, whole
from gateway.devices.device import Device
from gateway.devices.enrolled import Enrolled
from gateway.devices.registry import Registry
from gateway.devices.sites import SiteBook

PAGE = 1000
ENROLLED_FACTS = (
    "did",
    "fingerprint",
    "state",
    "serial",
    "model",
    "proof",
    "unproven",
    "accepted_by",
    "accepted_at",
    "confirmed_at",
)

ByName = Callable[[str], Enrolled | None]
RefusedOf = Callable[[], Mapping[str, Mapping[str, int]]]
"""What was refused of whom since the start: by the name or the did of a peer, and by reason."""


class DevicesApi:
    """Operations on devices."""

    def __init__(
        self, *, registry: Registry, site_book: SiteBook, enrolled: ByName, refused_of: RefusedOf = dict
    ) -> None:
        self._registry = registry
        self._refused_of = refused_of
        self._enrolled = enrolled
        self._site_book = site_book

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation(
                "GET",
                "/devices",
                "Known devices, by site and id",
                self._list,
                query={
                    "tgt": "only those a target matches",
                    "tgt_type": "glob (default), list, pcre, grain, compound",
                    "site": "only those of this site",
                    "limit": "at most so many, up to 1000; default 1000",
                    "after": "the cursor of the page before",
                },
            ),
            Operation(
                "GET",
                "/devices/{id}",
                "One device, at each site that knows the id",
                self._show,
                query={"site": "only there"},
            ),
        ]

    async def _list(self, asked: Asked) -> Answer:
        kind = asked.query.get("tgt_type", "glob")
        if kind not in get_args(TargetType):
            raise UsageInvalid(
                "no such target type", where="tgt_type", found=kind, allowed=", ".join(get_args(TargetType))
            )
        target = compile_target(asked.query.get("tgt", "*"), cast("TargetType", kind))
        site, after = asked.query.get("site"), asked.query.get("after", "")
        limit = whole(asked, "limit", PAGE, PAGE)
        found = sorted(
            (
                device
                for device in self._registry.everything()
                if (site is None or device.site == site)
                and _cursor(device) > after
                and target.matches(device.id, device.grains)
            ),
            key=_cursor,
        )
        page = found[:limit]
        more = _cursor(page[-1]) if page and len(found) > len(page) else None
        return {"devices": [self._view(device) for device in page], "next": more}

    async def _show(self, asked: Asked) -> Answer:
        wanted, site = asked.path["id"], asked.query.get("site")
        found = [
            device
            for device in self._registry.everything()
            if device.id == wanted and (site is None or device.site == site)
        ]
        if not found:
            raise NotFound(f"no device {wanted!r}", error_id="device.unknown", hint="outstation devices list")
        refused = self._refused_of()
        views = [self._view(device) for device in found]
        return {
            "devices": [
                {**view, "refused": refused_by(refused, view["id"], view.get("did")), "refused_there": device.refused}
                for device, view in zip(found, views, strict=True)
            ]
        }

    def _view(self, device: Device) -> dict[str, Any]:
        own = self._registry.own_device(device.id) is device
        return {
            "id": device.id,
            "site": device.site,
            "link": device.link,
            # What a dark site last said of a device is no longer known to be true.
            "present": device.present and (own or self._site_book.get(device.link).connected),
            "last_seen": device.last_seen,
            "first_seen": device.first_seen,
            "agent": device.agent,
            "grains": device.grains,
            **self._enrollment(device, own=own),
        }

    def _enrollment(self, device: Device, *, own: bool) -> dict[str, Any]:
        """By which key it belongs here, who let it in, and when; of devices below what their site has told."""
        enrolled = self._enrolled(device.id) if own else None
        if enrolled is not None:
            view = enrolled.view(device.site)
            return {name: view[name] for name in ENROLLED_FACTS}
        if not device.state:
            return {}
        facts: dict[str, Any] = {
            "state": device.state,
            "accepted_by": device.accepted_by,
            "accepted_at": device.accepted_at,
        }
        try:
            certificate = read_device_certificate(device.certificate)
        except Refused:
            return facts
        return {
            **facts,
            "did": certificate.did_text,
            "fingerprint": fingerprint(certificate.sig),
            "unproven": certificate.unproven,
        }


def refused_by(refused: Mapping[str, Mapping[str, int]], *names: str | None) -> dict[str, int]:
    """By reason, for a device that is counted under its name, and under its did while it has none."""
    counts = Counter[str]()
    for name in {name for name in names if name}:
        counts.update(refused.get(name, {}))
    return dict(counts)


def _cursor(device: Device) -> str:
    return f"{device.site}/{device.id}"
