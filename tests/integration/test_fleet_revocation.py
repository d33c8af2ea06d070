"""What a master revokes on the word of its sites, and that this leaves room for what its operators revoke."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.errors import PolicyRefused
from device_agent.trust.revocations import KIDS_MAX, read_revocations
from gateway.audit.book import AuditBook
from gateway.devices.fleet_revocation import DEVICES_LISTED, FleetRevocation
from gateway.spool.queue import Spool
from tests.peers.clock import HandClock
from tests.peers.two_stations import GatewayStation, Holders, MasterStation, joined


async def test_a_site_that_revokes_all_it_can_does_not_keep_itself_from_being_revoked(
    tmp_path: Path,
) -> None:
    clock = HandClock()
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
        await fleet.devices_revoked("lisbon", frozenset(number.to_bytes(8, "big") for number in range(KIDS_MAX)))
        (listed,) = map(read_revocations, master.authority.anchor.revocation_lists())
        assert len(listed.kids) == DEVICES_LISTED
        await fleet.revoke_site("lisbon", "ops", "socket", "stolen")
        assert master.authority.anchor.device_revoked(gateway.authority.signing.kid)
        # Nobody lets it in again by mistake.
        (view,) = master.keys.views()
        assert view["state"] == "revoked"
        with pytest.raises(PolicyRefused, match="revoked, and that is for ever"):
            await master.keys.accept("lisbon", view["fingerprint"])
        with pytest.raises(PolicyRefused, match="revoked, and that is for ever"):
            await master.keys.accept_request(gateway.authority.request(), "lisbon")
