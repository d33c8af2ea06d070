"""What a master keeps of its sites, over the real rope: grants, renewals, group keys, replacements and relays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from device_agent.errors import NotFound, PolicyRefused, Refused, UsageInvalid
from device_agent.protocol.messages import encode_value
from device_agent.trust.device_certificate import sign_device_certificate
from device_agent.trust.policy import DEFAULT_GRANTS
from device_agent.trust.revocations import sign_revocations
from device_agent.trust.site_certificate import read_site_certificate
from device_agent.trust.site_request import sign_site_request
from gateway.audit.book import AuditBook
from gateway.devices.fleet_revocation import FleetRevocation
from gateway.devices.site_certifying import RENEW_SECONDS
from gateway.fleet.grants import Grant
from gateway.fleet.joining import join_with_bundle, join_with_token
from gateway.spool.queue import Spool
from tests.peers.broker import free_port
from tests.peers.clock import HandClock
from tests.peers.fleet import kem_key, signing_key
from tests.peers.two_stations import GatewayStation, Holders, MasterStation, joined, token_of
from tests.peers.waiting import until
from upstream import frames
from upstream.curve import key_bytes
from upstream.uplink import MasterAddress

DAY = 86_400


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


async def test_more_is_granted_to_a_site_that_is_accepted_and_it_hears_at_once(
    tmp_path: Path, clock: HandClock
) -> None:
    async with (
        MasterStation(tmp_path / "m", "central", clock) as master,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        await joined(master, gateway)

        async def grants(grant: Grant, expected: Callable[[], bool]) -> None:
            await master.keys.accept("lisbon", None, grant)
            await until(expected, what="the new certificate")

        def has(*functions: str) -> Callable[[], bool]:
            def probe() -> bool:
                certificate = gateway.authority.certificate
                return certificate is not None and certificate.policy.fun == functions

            return probe

        await grants(Grant(("state.apply",)), has(*DEFAULT_GRANTS, "state.apply"))
        await grants(Grant(("camera.*",)), has(*DEFAULT_GRANTS, "state.apply", "camera.*"))
        await grants(Grant(("test.*",), only=True), has("test.*"))
        for shell in ("cmd.*", "file.*", "pkg.install", "shell"):
            with pytest.raises(PolicyRefused, match="as good as a root shell"):
                await master.keys.accept("lisbon", None, Grant((shell,)))
        await grants(Grant(("changes",), only=True), has("changes"))
        await grants(Grant(("test.*",), only=True), has("test.*"))
        with pytest.raises(UsageInvalid, match="cannot be granted"):
            await master.keys.accept("lisbon", None, Grant(("*.*",)))
        with pytest.raises(NotFound):
            await master.keys.accept("lisbon", None)
        assert has("test.*")()


async def test_a_rejected_site_is_certified_no_more(tmp_path: Path, clock: HandClock) -> None:
    async with (
        MasterStation(tmp_path / "m", "central", clock) as master,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        await joined(master, gateway)
        await until(lambda: master.trust.group_key("lisbon") is not None, what="the group key")
        await master.keys.reject("lisbon", None)
        clock.move(RENEW_SECONDS)
        await master.trust.site_welcome("lisbon")
        assert master.trust.group_key("lisbon") is None
        assert master.trust.tells("lisbon").certificate == b""
        # A certificate that it still has does not bring it back here, where somebody has decided.
        await until(lambda: "rejected" in str(gateway.uplink.status()["last_error"]), what="the refusal")
        await master.keys.accept("lisbon", gateway_fingerprint(master))
        await until(lambda: gateway.connected_to, what="the link")
        await until(lambda: master.trust.group_key("lisbon") is not None, what="the group key")


def gateway_fingerprint(master: MasterStation) -> str:
    (view,) = master.keys.views()
    return str(view["fingerprint"])


async def test_a_new_group_key_and_a_new_master_are_told_without_being_asked(tmp_path: Path, clock: HandClock) -> None:
    async with (
        MasterStation(tmp_path / "m", "central", clock) as master,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        holders = Holders(tmp_path / "fleet", clock, master)
        await holders.publish(master)
        await joined(master, gateway)
        gateway.groups.epoch = 7
        gateway.above_trust.touch()
        await until(lambda: master.trust.group_key("lisbon") == (7, gateway.groups.key), what="the seventh epoch")
        newcomer = MasterStation(tmp_path / "n", "newcomer", clock)
        holders.add(newcomer)
        await holders.publish(master)

        def sealed_to() -> set[bytes]:
            entry = master.trust.get("lisbon")
            return {kid for kid, _ in entry.group.keys} if entry is not None and entry.group is not None else set()

        wanted = {master.authority.signing.kid, newcomer.authority.signing.kid}
        await until(lambda: sealed_to() == wanted, what="the key for both")


async def test_a_site_behind_a_relay_is_certified_by_the_master(tmp_path: Path, clock: HandClock) -> None:
    async with (
        MasterStation(tmp_path / "m", "central", clock) as master,
        GatewayStation(tmp_path / "r", "region", clock, port=free_port()) as relay,
    ):
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        await joined(master, relay)
        above = MasterAddress(relay.address, relay.curve.public)
        async with GatewayStation(tmp_path / "g", "lisbon", clock, settings=(above,)) as leaf:
            await until(lambda: relay.states() == {"lisbon": "pending"}, what="the knock at the relay")
            assert master.states() == {"region": "accepted"}
            with pytest.raises(PolicyRefused, match="may not certify"):
                await relay.keys.accept("lisbon", None, Grant(("camera.*",)))
            await relay.keys.accept("lisbon", None)
            await until(lambda: master.states().get("lisbon") == "pending", what="the request above")
            assert not leaf.authority.joined
            (view,) = [view for view in master.keys.views() if view["site"] == "lisbon"]
            assert view["address"] == "behind region"
            await master.keys.accept("lisbon", None, Grant(("camera.*",)))
            await until(lambda: leaf.authority.may("job"), what="the certificate below")
            certificate = leaf.authority.certificate
            assert certificate is not None
            assert (certificate.issuer, certificate.policy.fun[-1]) == (master.authority.signing.kid, "camera.*")
            await until(lambda: master.trust.group_key("lisbon") is not None, what="the group key")
            assert master.trust.group_key("lisbon") == (1, leaf.groups.key)
            # The relay passes the group key on, and cannot open it.
            assert relay.trust.group_key("lisbon") is None
            # Jobs go to the relay alone: the site behind it never connects here.
            assert master.keys.accepted_sites() == ["region"]
            resealed: list[tuple[str, str, str]] = []
            master.sites.on_reseal(_into(resealed))
            relay.sites.on_reseal(relay.uplink.reseal)
            await leaf.uplink.reseal("lisbon", "20261121031500000000", "stale_epoch")
            await until(lambda: resealed == [("lisbon", "20261121031500000000", "stale_epoch")], what="the question")
            assert (master.refused(), relay.refused(), leaf.refused()) == ({}, {}, {})
            # It knows the master from the root list, and comes to it when the relay does not answer.
            request, shown = leaf.above_trust.hello()
            assert await master.keys.judge("lisbon", leaf.curve.public, "192.0.2.1", request, shown) == "denied"
            assert master.refused() == {"behind_relay": 1}
            await master.keys.reject("lisbon", None)
            assert master.trust.group_key("lisbon") is None
            # Once it is behind that relay no more it may ask directly, and its certificate decides nothing now.
            assert await master.keys.judge("lisbon", leaf.curve.public, "192.0.2.1", request, shown) == "pending"
            await master.keys.accept("lisbon", None)
            assert master.keys.accepted_sites() == ["lisbon", "region"]


def _into(found: list[tuple[str, str, str]]) -> Callable[[str, str, str], Awaitable[None]]:
    async def keep(site: str, jid: str, reason: str) -> None:
        found.append((site, jid, reason))

    return keep


async def test_a_relay_cannot_put_a_group_key_of_its_own_in_a_sites_place(tmp_path: Path, clock: HandClock) -> None:
    async with (
        MasterStation(tmp_path / "m", "central", clock) as master,
        GatewayStation(tmp_path / "r", "region", clock) as relay,
    ):
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        await joined(master, relay)
        leaf = GatewayStation(tmp_path / "g", "lisbon", clock)
        await master.trust.told("region", frames.LeafRequest("lisbon", leaf.authority.request()))
        await master.keys.accept("lisbon", None)
        entry = master.trust.get("lisbon")
        assert entry is not None
        await leaf.authority.install(root_lists=master.authority.anchor.root_lists, certificate=entry.certificate)
        (good,) = leaf.above_trust.tells()
        assert isinstance(good, frames.GroupKeys)
        forged = frames.GroupKeys(
            site="lisbon",
            certificate=good.certificate,
            epoch=9,
            keys=relay.groups.for_masters()[1],
            signature=bytes(64),
        )
        for frame, reason in ((forged, "bad_signature"), (_moved(good), "wrong_site")):
            with pytest.raises(Refused) as refusal:
                await master.trust.told("region", frame)
            assert refusal.value.reason == reason
        await master.trust.told("region", good)
        leaf.groups.epoch = 2
        (second,) = leaf.above_trust.tells()
        await master.trust.told("region", second)
        with pytest.raises(Refused, match="old_epoch"):
            await master.trust.told("region", good)
        assert master.trust.group_key("lisbon") == (2, leaf.groups.key)
        # Nor does it speak for a site that is somebody else's.
        with pytest.raises(Refused, match="foreign_site"):
            await master.trust.told("porto", good)
        # And another gateway behind it does not become the site by asking under its name.
        imitation = GatewayStation(tmp_path / "i", "lisbon", clock)
        with pytest.raises(Refused, match="other_identity"):
            await master.trust.told("region", frames.LeafRequest("lisbon", imitation.authority.request()))
        await master.keys.reject("lisbon", None)
        assert master.states()["lisbon"] == "pending"
        kept = master.trust.get("lisbon")
        assert kept is not None
        assert kept.identity == imitation.authority.signing.public


def _moved(group: frames.GroupKeys) -> frames.GroupKeys:
    return frames.GroupKeys(
        site="region", certificate=group.certificate, epoch=group.epoch, keys=group.keys, signature=group.signature
    )


async def test_a_replacement_takes_the_place_of_the_gateway_before_it_and_keeps_its_grants(
    tmp_path: Path, clock: HandClock
) -> None:
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        async with GatewayStation(tmp_path / "old", "lisbon", clock) as old:
            await joined(master, old, functions=("camera.*",))
            await until(lambda: master.trust.group_key("lisbon") is not None, what="the group key")
        async with GatewayStation(tmp_path / "new", "lisbon", clock) as new:
            new.groups.epoch = 5
            await join_with_token(new.authority, token_of(master))
            await until(lambda: "denied" in str(new.uplink.status()["last_error"]), what="the refusal")
            await master.keys.reject("lisbon", _fingerprint(master, old))
            draft = master.trust.draft("lisbon", "lisbon", request=new.authority.request())
            assert (draft.group, read_site_certificate(draft.certificate).sig) == (None, new.authority.signing.public)
            await master.keys.accept("lisbon", _fingerprint(master, new))
            await until(lambda: new.authority.may("job"), what="the certificate")
            certificate = new.authority.certificate
            assert certificate is not None
            assert certificate.policy.fun[-1] == "camera.*"
            await until(lambda: master.trust.group_key("lisbon") == (5, new.groups.key), what="its group key")


def _fingerprint(master: MasterStation, gateway: GatewayStation) -> str:
    (view,) = [view for view in master.keys.views() if view["key"] == gateway.curve.public]
    return str(view["fingerprint"])


async def test_a_renewed_certificate_takes_over_at_another_master_and_the_older_key_does_not_come_back(
    tmp_path: Path, clock: HandClock
) -> None:
    """A master that knows the gateway before hears of its replacement from the certificate alone."""
    async with (
        MasterStation(tmp_path / "a", "central", clock) as first,
        MasterStation(tmp_path / "b", "backup", clock) as second,
    ):
        await Holders(tmp_path / "fleet", clock, first, second).publish(first, second)
        old, new = (GatewayStation(tmp_path / name, "lisbon", clock) for name in ("old", "new"))
        for station in (old, new):
            clock.move(10)
            for held in [view for view in first.keys.views() if view["state"] == "accepted"]:
                await first.keys.reject("lisbon", str(held["fingerprint"]))
            await first.keys.accept_request(station.authority.request(), "lisbon")
            await join_with_bundle(station.authority, first.keys.bundle("lisbon"))
        judged = []
        for station in (old, new, old):
            request, certificate = station.above_trust.hello()
            judged.append(await second.keys.judge("lisbon", station.curve.public, "192.0.2.1", request, certificate))
        assert judged == ["accepted", "accepted", "denied"]
        entry = second.trust.get("lisbon")
        assert entry is not None
        assert read_site_certificate(entry.certificate).sig == new.authority.signing.public


async def test_a_certificate_for_other_sealing_keys_is_signed_when_they_change(
    tmp_path: Path, clock: HandClock
) -> None:
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        station = GatewayStation(tmp_path / "g", "lisbon", clock)
        await master.keys.accept_request(station.authority.request(), "lisbon")
        fresh = kem_key("another").public
        request = sign_site_request(
            station.authority.signing,
            site="lisbon",
            kem=fresh,
            curve=key_bytes(station.curve.public),
            nonce=bytes(16),
            issued=1,
        )
        assert await master.keys.judge("lisbon", station.curve.public, "192.0.2.1", request) == "accepted"
        assert read_site_certificate(master.trust.tells("lisbon").certificate).kem == fresh


async def test_two_changes_of_one_site_at_once_lose_neither(tmp_path: Path, clock: HandClock) -> None:
    async with (
        MasterStation(tmp_path / "m", "central", clock) as master,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        await joined(master, gateway)
        gateway.groups.epoch = 2
        (group,) = gateway.above_trust.tells()
        async with asyncio.TaskGroup() as together:
            together.create_task(master.trust.told("lisbon", group))
            together.create_task(master.keys.accept("lisbon", None, Grant(("camera.*",))))
        entry = master.trust.get("lisbon")
        assert entry is not None
        assert entry.group == group
        assert read_site_certificate(entry.certificate).policy.fun[-1] == "camera.*"


async def test_what_a_site_has_revoked_stays_out_when_the_sites_own_key_counts_no_more(
    tmp_path: Path, clock: HandClock
) -> None:
    async with (
        MasterStation(tmp_path / "m", "central", clock) as master,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        await joined(master, gateway)
        spool = Spool(master.writer, master.reader, "0" * 16, enabled=False)
        fleet = FleetRevocation(
            authority=master.authority,
            reject_site=lambda site: master.keys.reject(site, None),
            revoked_sites=master.trust.revoked_sites,
            devices=master.registry.everything,
            audit=AuditBook(site="central", writer=master.writer, spool=spool, clock=clock),
        )
        master.trust.on_revocations(fleet.devices_revoked)
        stolen, foreign = signing_key("stolen"), signing_key("a camera of porto")
        await tells_of(
            master,
            "porto",
            sign_device_certificate(
                foreign, site="porto", sig=foreign.public, kem=kem_key("any").public, name="cam", issued=1, expires=2
            ),
        )
        # A gateway in the hands of a thief names a device of another site as well, which is not its to revoke.
        body = sign_revocations(
            gateway.authority.signing,
            version=1,
            kids=[stolen.kid, foreign.kid],
            issued=int(clock.wall()),
            site="lisbon",
        )
        await gateway.authority.install(revocations=[body])
        await until(lambda: master.authority.anchor.device_revoked(stolen.kid, "lisbon"), what="the list above")
        await until(lambda: master.authority.anchor.device_revoked(stolen.kid, "elsewhere"), what="the fleet's list")
        await master.keys.reject("lisbon", None)
        await until(lambda: not gateway.connected_to, what="the end of the link")
        await fleet.revoke_site("lisbon", "ops", "socket", "stolen")
        # It is turned away, and hears nevertheless that its own key counts no more.
        await until(lambda: gateway.authority.certificate is None, what="the list below")
        assert master.authority.anchor.device_revoked(stolen.kid, "lisbon")
        assert not master.authority.anchor.device_revoked(foreign.kid, "porto")


async def tells_of(master: MasterStation, site: str, certificate: bytes) -> None:
    """A site has told of a device with this certificate."""
    record = frames.DeviceRecord(
        id="cam",
        site=site,
        link="mqtt",
        agent="1",
        grains=encode_value({}),
        present=True,
        first_seen=0.0,
        last_seen=0.0,
        revision=1,
        certificate=certificate,
        state="accepted",
    )
    await master.registry.keep_records(site, [record], [])
