"""The gateway's end of the rope when its list of masters changes, and when jobs need new seals."""

from __future__ import annotations

import pytest

from tests.peers.ports import Below
from tests.peers.rope import connected, played_master, uplink_part
from tests.peers.waiting import until
from upstream import frames
from upstream.uplink import Uplink


@pytest.fixture
def below() -> Below:
    return Below()


def roles(uplink: Uplink) -> list[str]:
    """What each link is, in the order of the list."""
    return [link["role"] for link in uplink.status()["links"]]


async def test_without_any_master_it_waits_to_be_told_of_one(below: Below) -> None:
    async with uplink_part(below) as uplink, played_master() as master:
        await until(lambda: uplink.status()["state"] == "no masters", what="the wait")
        assert (uplink.status()["master"], uplink.status()["masters"]) == ("", [])
        uplink.replace_masters([master.address])
        await until(lambda: connected(uplink), what="the link")
        uplink.replace_masters([])
        await until(lambda: uplink.status()["state"] == "no masters", what="the end of it")
        uplink.replace_masters([master.address])
        await until(lambda: master.hellos == 2 and connected(uplink), what="the second link")


async def test_another_list_costs_no_link_whose_master_stays(below: Below) -> None:
    async with played_master() as first, played_master() as second, uplink_part(below, first.address) as uplink:
        await until(lambda: connected(uplink), what="the first")
        uplink.replace_masters([first.address, second.address])
        assert uplink.status()["masters"] == [first.address.address, second.address.address]
        await until(lambda: roles(uplink) == ["active", "standby"], what="the second stands by")
        # A role that changes before it is told is never told.
        await until(lambda: (first.roles, second.roles) == ([True], [False]), what="both know what they are")
        uplink.replace_masters([second.address, first.address])
        await until(lambda: second.roles == [False, True], what="the second is active")
        await until(lambda: first.roles == [True, False], what="the first stands by")
        assert roles(uplink) == ["active", "standby"]
        assert (first.hellos, second.hellos) == (1, 1)
        uplink.replace_masters([first.address])
        await until(lambda: any(isinstance(frame, frames.Bye) for frame in second.heard), what="the goodbye")
        await until(lambda: first.roles == [True, False, True], what="the first is active again")
        assert (first.hellos, second.hellos) == (1, 1)


async def test_new_seals_are_asked_for_while_there_is_a_link_and_not_remembered_without(below: Below) -> None:
    jid = "20261121031500000000"

    def asked() -> list[frames.Reseal]:
        return [frame for frame in master.heard if isinstance(frame, frames.Reseal)]

    async with played_master() as master:
        async with uplink_part(below) as alone:
            await alone.reseal("lisbon", jid, "stale_epoch")
        async with uplink_part(below, master.address) as uplink:
            await until(lambda: connected(uplink), what="the link")
            await uplink.reseal("lisbon", jid, "stale_epoch")
            await until(asked, what="the question")
    assert asked() == [frames.Reseal(jid=jid, site="lisbon", reason="stale_epoch")]
