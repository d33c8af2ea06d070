"""What the service manager is told of a station: its state in one sentence, and whether it still works.

``systemctl status`` shows the sentence, and so it is what somebody reads who knows nothing yet: whether the station has
joined, who is here, what waits; then the gravest thing that is wrong, with what mends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from device_agent.clock import Clock
from device_agent.exhausted import shortage
from device_agent.notify import Notifier
from device_agent.service_reports import Judge, ServiceReports
from device_agent.trust.root_list import MasterKey
from gateway.broker.part import BrokerPart
from gateway.checks import broker, certificates, clock, disk, store, trust
from gateway.checks.finding import Facts, Finding
from gateway.devices.authority import Authority
from gateway.downlinks.mqtt import MqttDownlink
from gateway.fleet.join_words import NOT_JOINED
from gateway.rooms import Rooms
from gateway.site_rooms import SiteRooms
from gateway.store.watch import PULSE
from gateway.store.writer import StoreFailed, Writer

CHECKS: Final = (store.check, disk.check, clock.check, broker.check, trust.check, certificates.check)
"""Those whose errors leave a station of little use."""

SILENT_SECONDS: Final = 60.0


async def sentence(facts: Facts, authority: Authority) -> str:
    """The state of a station."""
    view = await facts.station_view()
    text = _master(view) if view["role"] == "master" else _gateway(view, facts.fleet_view(), authority)
    for check in CHECKS:
        for finding in await check(facts):
            if finding.severity == "error":
                return f"{text}; {_wrong(finding)}"
    return text


def _gateway(view: Mapping[str, Any], fleet: Mapping[str, Any], authority: Authority) -> str:
    masters = authority.anchor.masters
    uplink = view["uplink"] or {"state": "no masters", "master": ""}
    if not view["joined"] and authority.lapsed:
        # What became of its certificate, and what to type, the check of it says behind this.
        return f"{view['name']}: {_uplink(uplink, masters)}"
    if not view["joined"]:
        if fleet["root"] is None and uplink["state"] == "no masters":
            return f"{view['name']}: {NOT_JOINED}"
        return (
            f"{view['name']}: not joined yet: {_uplink(uplink, masters)}; "
            f"on the master: outstation keys accept {view['name']} --fingerprint {view['fingerprint']}"
        )
    return (
        f"{view['name']}: {view['present']} of {view['devices']} devices here, {_uplink(uplink, masters)}, "
        f"{view['spool_pending']} waiting to go up"
    )


def _uplink(uplink: Mapping[str, Any], masters: Iterable[MasterKey]) -> str:
    if uplink["state"] == "no masters":
        return "no master"
    address = uplink["master"]
    name = next((master.name for master in masters if address in master.addresses), address)
    if uplink["state"] == "connected":
        return f"master {name}"
    return f"master {name} not reached ({uplink['last_error'] or uplink['state']})"


def _master(view: Mapping[str, Any]) -> str:
    if not view["joined"]:
        return (
            f"{view['name']}: in no fleet yet: outstation master init, "
            "then where the root keys are: outstation fleet add-master"
        )
    return (
        f"{view['name']}: {view['present']} of {view['devices']} devices here, {view['sites']} sites, "
        f"{view['jobs_open']} jobs open"
    )


def _wrong(finding: Finding) -> str:
    return f"{finding.check}: {finding.finding}; try: {finding.fix}"


class StoreJudge:
    """Whether the store still commits. One that refuses has answered: a full disk is not mended by a restart."""

    def __init__(self, writer: Writer, now: Callable[[], float]) -> None:
        self._writer = writer
        self._now = now
        self._seen = -1

    async def __call__(self) -> str | None:
        """None when it committed since the last time, by itself or because it was asked to; else it does not return."""
        if self._writer.commits == self._seen:
            try:
                await self._writer.commit([(PULSE, [(str(int(self._now())),)])])
            except StoreFailed:
                return None
        self._seen = self._writer.commits
        return None


class LinkJudge:
    """Whether the link to the broker lives: the broker answers on it, or the link is on its way to one that does.

    A broker that is silent for long is told apart by whoever started it (``BrokerPart.silent``).
    """

    def __init__(self, downlink: MqttDownlink, broker: BrokerPart, clock: Clock) -> None:
        self._downlink = downlink
        self._broker = broker
        self._clock = clock
        self._silent_since: float | None = None

    async def __call__(self) -> str | None:
        """Why it does not."""
        now = self._clock.monotonic()
        if self._downlink.connected:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = now
        elif now - self._silent_since > SILENT_SECONDS:
            if (short := shortage()) is not None:
                # A new process has its descriptors back; the broker is not at fault.
                return short.what
            if reason := await self._broker.silent():
                return reason
            self._silent_since = now
        return await self._downlink.stuck()


def reports_of(rooms: Rooms, notifier: Notifier, site: SiteRooms | None, clock: Clock) -> ServiceReports:
    """The part that speaks for a station, which is entered last."""
    judges: dict[str, Judge] = {"store": StoreJudge(rooms.writer, clock.wall)}
    if site is not None:
        judges["broker link"] = LinkJudge(site.downlink, site.broker, clock)
    return ServiceReports(notifier, lambda: sentence(rooms.facts, rooms.authority), judges)
