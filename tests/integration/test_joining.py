"""Sites join a fleet over the real rope: token, acceptance, certificate, group key; a second master; a relay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import PolicyRefused, Refused, UsageInvalid
from device_agent.trust.policy import DEFAULT_GRANTS
from device_agent.trust.site_certificate import sign_site_certificate
from device_agent.trust.site_request import sign_site_request
from device_agent.trust.token import SiteToken
from gateway.devices.site_certifying import RENEW_SECONDS
from gateway.fleet.grants import Grant
from gateway.fleet.joining import join_with_bundle, join_with_token
from tests.peers.clock import HandClock
from tests.peers.fleet import signing_key
from tests.peers.rope import new_keys, played_site
from tests.peers.two_stations import GatewayStation, Holders, MasterStation, joined, token_of
from tests.peers.waiting import until
from upstream import frames
from upstream.curve import key_bytes
from upstream.uplink import MasterAddress

DAY = 86_400


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


async def test_a_site_joins_a_running_master_with_a_token_while_both_run(tmp_path: Path, clock: HandClock) -> None:
    async with (
        MasterStation(tmp_path / "m", "central", clock) as master,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        assert gateway.uplink.status()["state"] == "no masters"
        assert not gateway.authority.may("job")
        await joined(master, gateway, functions=("camera.reboot",))
        assert gateway.connected_to == master.address
        certificate = gateway.authority.certificate
        assert certificate is not None
        assert certificate.policy.fun == (*DEFAULT_GRANTS, "camera.reboot")
        assert certificate.expires - certificate.issued == 30 * DAY
        assert all(gateway.authority.may(role) for role in ("job", "enrol", "revoke", "epoch"))
        assert not gateway.authority.may("site-ca")
        await until(lambda: master.trust.group_key("lisbon") is not None, what="the group key")
        assert master.trust.group_key("lisbon") == (1, gateway.groups.key)
        assert gateway.refused() == master.refused() == {}
    # What was agreed outlives a restart of both, without a new word.
    async with MasterStation(tmp_path / "m", "central", clock, master.port) as master:
        assert master.trust.group_key("lisbon") == (1, gateway.groups.key)
        again = GatewayStation(tmp_path / "g", "lisbon", clock)
        assert again.authority.certificate == certificate
        assert [found.address for found in again.masters()] == [master.address]


async def test_without_a_fleet_a_site_is_accepted_and_gets_no_certificate_until_there_is_one(
    tmp_path: Path, clock: HandClock
) -> None:
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        above = MasterAddress(master.address, master.curve.public)
        async with GatewayStation(tmp_path / "g", "lisbon", clock, settings=(above,)) as gateway:
            await until(lambda: master.states() == {"lisbon": "pending"}, what="the knock")
            with pytest.raises(PolicyRefused, match="may not certify"):
                await master.keys.accept("lisbon", None, Grant(("camera.*",)))
            assert master.states() == {"lisbon": "pending"}
            await master.keys.accept("lisbon", None)
            await until(lambda: gateway.connected_to, what="the link")
            assert not gateway.authority.joined
            holders = Holders(tmp_path / "fleet", clock, master)
            await holders.publish(master)
            await until(lambda: gateway.authority.may("job"), what="the certificate")
            await until(lambda: master.trust.group_key("lisbon") is not None, what="the group key")
            assert gateway.uplink.status()["masters"] == [master.address]


async def test_a_token_of_another_fleet_or_a_made_up_one_changes_nothing(tmp_path: Path, clock: HandClock) -> None:
    async with (
        MasterStation(tmp_path / "m", "central", clock) as master,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        holders = Holders(tmp_path / "fleet", clock, master)
        await holders.publish(master)
        with pytest.raises(UsageInvalid, match="no token"):
            await join_with_token(gateway.authority, "NOTHING")
        with pytest.raises(UsageInvalid, match="a master does not join"):
            await join_with_token(master.authority, token_of(master))
        # Right master, wrong fleet: it is asked, and what it says is refused.
        wrong = SiteToken(bytes(16), key_bytes(master.curve.public), (master.address,))
        await join_with_token(gateway.authority, wrong.text())
        await until(lambda: master.states() == {"lisbon": "pending"}, what="the knock")
        await master.keys.accept("lisbon", None)
        await until(lambda: gateway.refused().get("wrong_root"), what="the refusal")
        assert gateway.authority.anchor.root is None
        assert gateway.authority.certificate is None
        await join_with_token(gateway.authority, token_of(master))
        async with GatewayStation(tmp_path / "g", "lisbon", clock) as again:
            await until(lambda: again.authority.may("job"), what="the right token")
            with pytest.raises(UsageInvalid, match="another fleet") as error:
                await join_with_token(again.authority, wrong.text())
            assert "root-lists" in str(error.value.hint)


async def test_a_second_master_of_the_root_list_takes_the_site_over_without_another_accept(
    tmp_path: Path, clock: HandClock
) -> None:
    async with (
        MasterStation(tmp_path / "b", "backup", clock) as second,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        async with MasterStation(tmp_path / "a", "central", clock) as first:
            holders = Holders(tmp_path / "fleet", clock, first, second)
            await holders.publish(first, second)
            await joined(first, gateway, functions=("camera.*",), days=20)
            # It knows of the second from the root list alone.
            assert gateway.uplink.status()["masters"] == [first.address, second.address]
        await until(lambda: gateway.connected_to == second.address, what="the second master")
        assert second.states() == {"lisbon": "accepted"}
        await until(lambda: second.trust.group_key("lisbon") is not None, what="the group key")
        # Weeks later it renews what the first one granted.
        clock.move(RENEW_SECONDS)
        await second.trust.site_welcome("lisbon")
        await until(lambda: _issuer(gateway) == second.authority.signing.kid, what="the renewal")
        renewed = gateway.authority.certificate
        assert renewed is not None
        assert renewed.policy.fun == (*DEFAULT_GRANTS, "camera.*")
        assert renewed.expires - renewed.issued == 20 * DAY


def _issuer(gateway: GatewayStation) -> bytes:
    certificate = gateway.authority.certificate
    return certificate.issuer if certificate is not None else b""


async def test_a_master_that_was_dropped_may_nothing_and_what_it_certified_is_certified_anew(
    tmp_path: Path, clock: HandClock
) -> None:
    async with (
        MasterStation(tmp_path / "a", "central", clock) as first,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        # The second one is away while the site joins, and does not hear of it.
        async with MasterStation(tmp_path / "b", "backup", clock) as second:
            holders = Holders(tmp_path / "fleet", clock, first, second)
            await holders.publish(first, second)
        await joined(first, gateway)
        holders.drop("central")
        # The dropped one hears of it too, and tells its sites.
        await holders.publish(first)
        assert first.authority.master is None
        assert not first.authority.may("job")
        await until(lambda: gateway.authority.anchor.root == holders.ceremony.current(), what="the news")
        assert not gateway.authority.may("job")
        async with MasterStation(tmp_path / "b", "backup", clock, second.port) as back:
            with pytest.raises(Refused, match="rollback"):
                await back.authority.install(root_lists=holders.ceremony.chain()[:2])
            await holders.publish(back)
            gateway.uplink.replace_masters([MasterAddress(back.address, back.curve.public)])
            # Its certificate counts no more, so here it must be accepted again.
            await until(lambda: back.states() == {"lisbon": "pending"}, what="the knock")
            await back.keys.accept("lisbon", None)
            await until(lambda: gateway.authority.may("job"), what="the new certificate")


async def test_a_master_that_stood_by_certifies_anew_what_a_dropped_one_certified(
    tmp_path: Path, clock: HandClock
) -> None:
    async with (
        MasterStation(tmp_path / "a", "central", clock) as first,
        MasterStation(tmp_path / "b", "backup", clock) as second,
        GatewayStation(tmp_path / "g", "lisbon", clock) as gateway,
    ):
        holders = Holders(tmp_path / "fleet", clock, first, second)
        await holders.publish(first, second)
        await joined(first, gateway)
        # It let the site in by the certificate while that still counted, over the link that stands by.
        await until(lambda: second.states() == {"lisbon": "accepted"}, what="the second link")
        holders.drop("central")
        await holders.publish(first, second)
        await until(lambda: _issuer(gateway) == second.authority.signing.kid, what="its certificate")
        assert gateway.authority.may("job")


async def test_a_bundle_brings_a_site_into_the_fleet_that_has_never_seen_a_master(
    tmp_path: Path, clock: HandClock
) -> None:
    gateway = GatewayStation(tmp_path / "g", "lisbon", clock)
    other = GatewayStation(tmp_path / "o", "porto", clock)
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        (view,) = await master.keys.accept_request(gateway.authority.request(), "lisbon", Grant(("camera.*",)))
        assert (view["state"], view["key"]) == ("accepted", gateway.curve.public)
        bundle = master.keys.bundle("lisbon")
        with pytest.raises(UsageInvalid, match="no request of site 'porto'"):
            await master.keys.accept_request(gateway.authority.request(), "porto")
        imitation = GatewayStation(tmp_path / "i", "lisbon", clock)
        with pytest.raises(UsageInvalid, match="another key is accepted"):
            await master.keys.accept_request(imitation.authority.request(), "lisbon")
        with pytest.raises(UsageInvalid, match="does not take this bundle") as error:
            await join_with_bundle(other.authority, bundle)
        assert "site porto" in str(error.value.allowed)
        with pytest.raises(UsageInvalid, match="not what belongs here"):
            await join_with_bundle(gateway.authority, bundle.replace("os-bundle", "os-request"))
        await join_with_bundle(gateway.authority, bundle)
        assert gateway.authority.may("job")
        # And the day it sees the master, it is known there.
        async with gateway:
            await until(lambda: gateway.connected_to == master.address, what="the link")
            assert master.states() == {"lisbon": "accepted"}


@pytest.mark.parametrize("who", ["another site's request", "an identity of its own", "no request at all"])
async def test_a_stolen_link_key_is_not_enough_to_be_the_site(who: str, tmp_path: Path, clock: HandClock) -> None:
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        async with GatewayStation(tmp_path / "g", "lisbon", clock) as gateway:
            await joined(master, gateway)
        other = GatewayStation(tmp_path / "o", "lisbon", clock)
        request = {
            "another site's request": other.authority.request(),
            "an identity of its own": _request(other, key_bytes(gateway.curve.public)),
            "no request at all": b"",
        }[who]
        reason = "foreign_request" if who == "another site's request" else "other_identity"
        async with played_site(master.address, master.curve.public, gateway.curve) as thief:
            await thief.hello("lisbon", request=request)
            refusal = await thief.hears(frames.SiteRefused)
            assert refusal.state == "denied"
            # A frame of the site that was on its way when it left may come after its goodbye.
            assert {why: count for why, count in master.refused().items() if why != "no_hello"} == {reason: 1}
        # The site itself is not hurt by it.
        assert master.states() == {"lisbon": "accepted"}
        async with GatewayStation(tmp_path / "g", "lisbon", clock) as gateway:
            await until(lambda: gateway.connected_to, what="the link")


def _request(station: GatewayStation, curve: bytes) -> bytes:
    """A request of this station that claims another link key."""
    return sign_site_request(
        station.authority.signing,
        site=station.name,
        kem=station.authority.kem.public,
        curve=curve,
        nonce=bytes(16),
        issued=1,
    )


async def test_a_certificate_that_is_no_acceptance_leaves_the_key_pending(tmp_path: Path, clock: HandClock) -> None:
    """Signed by somebody else, for another site, for another link key: each is refused and counted, and no more."""
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        stranger, keys = GatewayStation(tmp_path / "g", "lisbon", clock), new_keys()
        given: dict[str, Any] = {
            "site": "lisbon",
            "sig": stranger.authority.signing.public,
            "kem": stranger.authority.kem.public,
            "curve": key_bytes(keys.public),
            "issued": int(clock.wall()),
            "expires": int(clock.wall()) + DAY,
        }
        good = master.authority.signing
        certificates = {
            "unknown_issuer": sign_site_certificate(signing_key("nobody"), **given),
            "wrong_site": sign_site_certificate(good, **{**given, "site": "porto"}),
            "foreign_certificate": sign_site_certificate(good, **{**given, "curve": bytes(32)}),
            "expired": sign_site_certificate(good, **{**given, "issued": 1, "expires": 2}),
        }
        for certificate in certificates.values():
            async with played_site(master.address, master.curve.public, keys) as played:
                request = _request(stranger, key_bytes(keys.public))
                await played.hello("lisbon", request=request, certificate=certificate)
                assert (await played.hears(frames.SiteRefused)).state == "pending"
        assert master.refused() == dict.fromkeys(certificates, 1)
        async with played_site(master.address, master.curve.public, keys) as played:
            await played.hello(
                "lisbon",
                request=_request(stranger, key_bytes(keys.public)),
                certificate=sign_site_certificate(good, **given),
            )
            await played.hears(frames.SiteWelcome)
            assert (await played.hears(frames.SiteTrust)).root_lists == master.authority.anchor.root_lists
