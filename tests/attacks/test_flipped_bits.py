"""Whoever carries a proof turns one bit of it over: of a master's description on a stick, of a group key on the uplink.

Each bit is tried by itself, at the door where the proof is believed; the other proofs are tried beside their readers.
"""

from __future__ import annotations

from pathlib import Path

from device_agent.errors import Refused, UsageInvalid
from device_agent.trust.root_list import MasterKey
from gateway.fleet import armor
from gateway.fleet.description import describe, read_description
from tests.peers.clock import HandClock
from tests.peers.fleet import party
from tests.peers.flips import flipped, reasons_of_flips
from tests.peers.joined_site import JoinedSite
from tests.peers.rope import PlayedSite, played_site
from tests.peers.two_stations import Holders, MasterStation
from tests.peers.waiting import until
from upstream import frames

UNDER_WAY = 8
"""Frames that are sent before the master is waited for: it ends a connection that brings too many at once."""


def test_no_bit_of_a_masters_description_may_change(tmp_path: Path) -> None:
    """Also when its check was made anew, which anybody can: it is there for what was copied badly."""
    master = party("master-a").as_master(())
    file = tmp_path / "central.master"

    def carried(body: bytes) -> MasterKey:
        file.write_text(armor.wrap("os-master", body), encoding="ascii")
        try:
            return read_description(armor.typed(str(file)))
        except UsageInvalid as error:
            if error.error_id != "fleet.bad_description":
                raise
            raise Refused(str(error.found).partition(":")[0]) from None

    body = armor.unwrap("os-master", describe(party("master-a").key, master))
    assert carried(body) == master
    reasons = reasons_of_flips(body, carried)
    assert reasons >= {"bad_signature", "unknown_issuer", "wrong_kind", "wrong_algorithm", "malformed"}


async def test_no_bit_of_a_group_key_on_the_uplink_may_change(tmp_path: Path) -> None:
    """A relay carries the group keys of the sites behind it. Here each bit is turned over on the way to a real master,
    which knows no group key of the site before: any that it takes would be the first.
    """
    clock, site = HandClock(), JoinedSite("lisbon")
    async with MasterStation(tmp_path / "m", "central", clock) as master:
        await Holders(tmp_path / "fleet", clock, master).publish(master)
        async with played_site(master.address, master.curve.public, site.curve) as line:
            await line.hello("lisbon", request=site.request())
            await until(lambda: master.states().get("lisbon") == "pending", what="the knock")
            await master.keys.accept("lisbon", None)
            await line.hears(frames.SiteWelcome)
            while not (site.certificate and site.root):
                site.take(await line.hears(frames.SiteTrust))
            group = site.group_keys()
            body = frames.encode(frames.SiteTells([group]))
            before = sum(master.refused().values())
            await turned_over(master, line, body, before)
            assert {"bad_signature", "wrong_site", "malformed", "wrong_type", "unknown_issuer"} <= set(master.refused())

            # As it is, it is taken.
            await line.say(body)
            await until(lambda: master.trust.group_key("lisbon") is not None, what="the group key")
            entry = master.trust.get("lisbon")
            assert entry is not None
            assert entry.group == group


async def turned_over(master: MasterStation, line: PlayedSite, body: bytes, before: int) -> None:
    for number, changed in enumerate(flipped(body), start=1):
        await line.say(changed)
        if number % UNDER_WAY == 0 or number == len(body) * 8:
            what = f"a refusal for each of {number} bits, the last of byte {(number - 1) // 8}: {changed.hex()}"
            await until(lambda: sum(master.refused().values()) - before == number, what=what)  # noqa: B023 - called at once
    assert [entry.site for entry in master.trust.entries()] == ["lisbon"]
    assert all(entry.group is None for entry in master.trust.entries())
