"""A gateway in this process that reaches devices over SSH: its own rooms on a real store, and no broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from device_agent.clock import Clock
from device_agent.parts import leaves
from device_agent.protocol.messages import decode_stored
from device_agent.trust.policy import SitePolicy
from device_agent.trust.root_list import MASTER_ROLES
from gateway.cli.views import OutcomeView
from gateway.config import BrokerSettings, SshSettings, StationSettings
from gateway.devices.device import Device
from gateway.devices.enrollment_journal import Asker
from gateway.devices.ssh_book import Wanted
from gateway.devices.ssh_device import SshDevice, host_key_fingerprint
from gateway.devices.ssh_secrets import Secret
from gateway.downlinks.ssh import SshDownlink
from gateway.jobs.accept import JobRequest
from gateway.jobs.recover import recover
from gateway.kept_rooms import KeptRooms
from gateway.rooms import Rooms
from gateway.site_rooms import SiteRooms
from tests.peers.database import look
from tests.peers.fleet import SITE, Fleet, Party
from tests.peers.waiting import until
from upstream.curve import key_bytes

GRANTED = ("test.*", "cmd.*", "sys.*", "grains.*", "config.*", "saltutil.*", "cp.*", "pillar.*")
ALICE = Asker("alice")
QUICK = SshSettings(connect_seconds=20.0, keepalive_seconds=5.0)


class SshSite:
    """What a test asks of it."""

    def __init__(self, rooms: Rooms, kept: KeptRooms, site: SiteRooms, path: Path) -> None:
        self.rooms = rooms
        self.kept = kept
        self.site = site
        self.path = path

    @property
    def ssh(self) -> SshDownlink:
        """The downlink."""
        return self.site.ssh

    async def add(
        self, name: str, port: int, host_keys: tuple[str, ...], secret: Secret, *, known: bool = True, **changes: Any
    ) -> None:
        """A device at this port, known by these host keys, or by their fingerprints alone."""
        facts: dict[str, Any] = {
            "user": "root",
            "host": "127.0.0.1",
            "port": port,
            "host_keys": host_keys if known else (),
            "fingerprints": tuple(map(host_key_fingerprint, host_keys)),
            "login": "key" if secret.private_key else "password",
            **changes,
        }
        await self.site.ssh_book.put([Wanted(SshDevice(name, **facts), secret)], ALICE)

    def device(self, name: str) -> Device:
        """As the registry knows it."""
        found = self.rooms.registry.own_device(name)
        assert found is not None
        return found

    async def here(self, *names: str) -> None:
        """Wait until these are here."""
        for name in names:
            await until(lambda: self.device(name).present, what=f"{name} is here: {self.ssh.view(name)}")  # noqa: B023 - awaited in the same turn

    async def away(self, name: str, why: str) -> None:
        """Wait until this one is known to be away for this reason."""
        await until(lambda: self.device(name).away.startswith(why), what=f"{name} is away: {why}")
        assert not self.device(name).present

    async def start(self, fun: str, *names: str, arg: list[Any] | None = None, **changed: Any) -> str:
        """Order a job; its id."""
        meant = {"tgt": ",".join(names), "tgt_type": "list", **changed}
        request = JobRequest(fun=fun, arg=arg or [], **meant)
        return await self.rooms.acceptance.submit(request, "ops")

    async def outcomes(self, jid: str) -> dict[str, OutcomeView]:
        """How it ended on each device, once it has on all."""
        await until(lambda: self.rooms.open_jobs.get(jid) is None, what=f"the end of {jid}")
        rows = look(
            self.path, f"SELECT device, outcome, retcode, value, why, executions FROM outcomes WHERE jid='{jid}'"
        )
        return {
            device: OutcomeView(
                id=device,
                outcome=outcome,
                retcode=retcode,
                value=None if value is None else decode_stored(value),
                why=why,
                executions=executions,
            )
            for device, outcome, retcode, value, why, executions in rows
        }

    async def run(self, fun: str, *names: str, arg: list[Any] | None = None, **changed: Any) -> dict[str, OutcomeView]:
        """Order a job and wait for its end."""
        return await self.outcomes(await self.start(fun, *names, arg=arg, **changed))

    def under_way(self, name: str) -> list[str]:
        """The jobs that this device runs, or that wait to."""
        return self.ssh._steads[name].jobs.under_way()

    def events(self, tag: str) -> list[dict[str, Any]]:
        """The data of the events with this tag, a glob, oldest first."""
        rows = look(self.path, f"SELECT data FROM events WHERE tag GLOB '{tag}' ORDER BY rowid")
        return [decode_stored(data) for (data,) in rows]


@asynccontextmanager
async def ssh_site(
    folder: Path,
    settings: SshSettings = QUICK,
    fleet: Fleet | None = None,
    *,
    granted: tuple[str, ...] = GRANTED,
    **other: Any,
) -> AsyncIterator[SshSite]:
    """A gateway that its fleet lets order anything, or so much, for as long as the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    clock = Clock()
    table = StationSettings(name=SITE, ssh=settings, **other)
    rooms = Rooms("gateway", table, folder, clock)
    kept = KeptRooms(rooms, table, folder, clock)
    site = SiteRooms(rooms, kept.to_devices, BrokerSettings(mode="embedded"), settings, SITE, folder, clock)
    site.custom = kept.custom
    if not rooms.authority.joined:
        await _certify(rooms, fleet or Fleet(now=clock.wall()), granted)
    try:
        async with AsyncExitStack() as stack:
            for part in rooms.parts_before_recovery():
                await stack.enter_async_context(part)
            await recover(rooms.open_jobs, rooms.reader, clock)
            await rooms.doubted.end_past()
            for part in [*rooms.parts_after_recovery(), *kept.parts(), *site.parts_before_broker()]:
                await stack.enter_async_context(part)
            *_, downlink = site.parts_after_broker()
            rooms.downlinks[downlink.name] = rooms.facts.ssh = site.ssh
            for part in [downlink, *kept.parts_with_devices(site)]:
                await stack.enter_async_context(part)
            yield SshSite(rooms, kept, site, folder / "station.sqlite")
    except BaseExceptionGroup as crashed:
        # Each part wraps what passes through it; what is of interest is in the middle.
        raise leaves(crashed)[0] from None


async def _certify(rooms: Rooms, fleet: Fleet, granted: tuple[str, ...]) -> None:
    authority = rooms.authority
    mighty = (*MASTER_ROLES, "root-shell")
    fleet.next_root(masters=(fleet.a.as_master(mighty), fleet.b.as_master(mighty)))
    await authority.join(fleet.fingerprint, [])
    holder = Party(SITE, authority.signing, authority.kem, key_bytes(authority.curve.public))
    certificate = fleet.certify_site(holder, policy=SitePolicy(fun=granted))
    await authority.install(root_lists=fleet.chain, certificate=certificate)
