"""Devices in the API: list by target, show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, get_args

from device_agent.errors import NotFound, Refused
from device_agent.protocol.messages import TargetType
from device_agent.protocol.stations import WORD, meanable
from device_agent.protocol.targeting import compile_target
from device_agent.trust.device_certificate import read_device_certificate
from device_agent.trust.keys import fingerprint
from gateway.api.match import MatchApi, Targeting, is_present
from gateway.api.operation import Answer, Asked, Operation, whole
from gateway.devices.device import Device
from gateway.devices.enrolled import Enrolled
from gateway.devices.registry import Registry
from gateway.devices.sites import SiteBook
from gateway.devices.ssh_device import SshDevice
from gateway.jobs.nodegroups import Nodegroups

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

OTHER_KINDS = [*get_args(TargetType)[1:], "nodegroup"]
ByName = Callable[[str], Enrolled | None]
SshByName = Callable[[str], SshDevice | None]
SshLink = Callable[[str], Mapping[str, Any] | None]
"""Whether a device (its name) is reached over SSH now, and why not."""
RefusedOf = Callable[[], Mapping[str, Mapping[str, int]]]
"""What was refused of whom since the start: by the name or the did of a peer, and by reason."""


def called(registry: Registry, asked: Asked) -> list[Device]:
    """The devices that have the name in the path, of every site or of the one in the query. Raises ``NotFound``."""
    wanted, site = asked.path["id"], asked.query.get("site")
    found = [each for each in registry.everything() if each.id == wanted and (site is None or each.site == site)]
    if not found:
        raise NotFound(f"no device {wanted!r}", error_id="device.unknown", hint="outstation devices list")
    return found


class DevicesApi:
    """Operations on devices."""

    def __init__(
        self,
        *,
        registry: Registry,
        site_book: SiteBook,
        enrolled: ByName,
        targeting: Targeting,
        refused_of: RefusedOf = dict,
        ssh: SshByName | None = None,
        ssh_link: SshLink | None = None,
        nodegroups: Nodegroups | None = None,
    ) -> None:
        self._ssh = ssh
        self._ssh_link = ssh_link
        self._nodegroups = nodegroups or Nodegroups()
        self._registry = registry
        self._refused_of = refused_of
        self._enrolled = enrolled
        self._targeting = targeting
        self._site_book = site_book

    def operations(self) -> list[Operation]:
        """The table, with that of targets."""
        match = MatchApi(
            registry=self._registry,
            site_book=self._site_book,
            nodegroups=self._nodegroups,
            targeting=self._targeting,
        )
        return [
            *match.operations(),
            Operation(
                "GET",
                "/devices",
                "Known devices, by site and id",
                self._list,
                query={
                    "tgt": "only those a target matches",
                    "tgt_type": f"glob (default), {', '.join(OTHER_KINDS)}",
                    "delimiter": "for targets by grain: what is between key and value; default ':'",
                    "site": "only those of this site",
                    "stations": "true: stations too, where the target does not say the word",
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
        typed, kind = asked.query.get("tgt", "*"), asked.query.get("tgt_type", "glob")
        target = compile_target(*self._nodegroups.signed(typed, kind, asked.query.get("delimiter", ":")))
        self._targeting(asked.operator, target)
        await self._registry.know(target)
        site, after = asked.query.get("site"), asked.query.get("after", "")
        limit, words = whole(asked, "limit", PAGE, PAGE), target.tgt
        if asked.query.get("stations") == "true":
            words += WORD
        found = sorted(
            (
                device
                for device in meanable(self._registry.everything(), words)
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
        found = called(self._registry, asked)
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
        ssh = self._ssh(device.id) if own and self._ssh is not None else None
        return {
            "id": device.id,
            "site": device.site,
            "link": device.link,
            "present": is_present(device, self._registry, self._site_book),
            "last_seen": device.last_seen,
            "first_seen": device.first_seen,
            "agent": device.agent,
            "grains": device.grains,
            **self._enrollment(device, own=own),
            **({"ssh": {**ssh.view(), **self._link_of(device.id)}} if ssh is not None else {}),
        }

    def _link_of(self, name: str) -> Mapping[str, Any]:
        return (self._ssh_link(name) if self._ssh_link is not None else None) or {}

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
