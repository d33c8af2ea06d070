"""The wheel of keys, over the enrollment of a site: what it lists, lets in, turns away and puts out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from device_agent.errors import PolicyRefused
from gateway.calls.call import About, CallFailed
from gateway.calls.running import Running
from gateway.devices.policy import Operator, Role
from gateway.reactor.about import about
from gateway.wheels.key import KeyWheel
from tests.peers.joining import JoiningDevice, JoinSite, a_device, opened_site
from upstream.curve import load_or_make


class NoSites:
    """A gateway without sites below it."""

    def views(self) -> list[dict[str, Any]]:
        return []


def by(*roles: str, about: About | None = None) -> Running:
    """A call of somebody with these roles, perhaps one that an event of a device set off."""
    operator = Operator("ada", cast("frozenset[Role]", frozenset(roles)))
    call = SimpleNamespace(about=about)
    return cast("Running", SimpleNamespace(jid="20261121031500000000", operator=operator, call=call))


def judged(site: JoinSite, device: JoiningDevice) -> Running:
    """The call of a reaction to the newest event of a device's key."""
    said = next(each for each in reversed(site.events("salt/auth")) if each["did"] == device.did)
    event = site.bus.event("salt/auth", said)
    return by("admin", about=about(event, "lisbon"))


ADMIN, APPROVER = by("admin"), by("approver")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[JoinSite]:
    async with opened_site(tmp_path) as opened:
        await opened.window()
        yield opened


@pytest.fixture
def wheel(site: JoinSite, tmp_path: Path) -> KeyWheel:
    async def revoke(*_: str) -> None:
        raise AssertionError

    keys = load_or_make(tmp_path / "curve.key")
    made = KeyWheel(keys=keys, site_keys=cast("Any", NoSites()), revoke_site=revoke)
    made.enrollment = site.enrollment
    return made


async def waiting(site: JoinSite, *names: str) -> list[str]:
    devices = [a_device(name) for name in names]
    for device in devices:
        await site.ask(device)
    return [device.did for device in devices]


async def test_a_device_that_waits_is_let_in_under_its_name_and_marked_as_unproven(
    site: JoinSite, wheel: KeyWheel
) -> None:
    first, second = await waiting(site, "cam-1", "cam-2")
    assert (await wheel.list_(ADMIN, "pre"))["minions_pre"] == sorted([first, second])
    fingers = await wheel.finger(ADMIN, first)
    assert list(fingers["minions_pre"]) == [first]
    told = await wheel.accept(APPROVER, first)
    (name,) = told["minions"]
    accepted = site.enrollment.verdicts.find(first)[0]
    assert (accepted.state, accepted.unproven, accepted.label) == ("accepted", True, name)
    listed = await wheel.list_all(ADMIN)
    assert (listed["minions"], listed["minions_pre"], listed["minions_rejected"]) == ([name], [second], [])
    assert await wheel.name_match(ADMIN, name) == {"minions": [name]}
    assert await wheel.accept(APPROVER, "nobody") == {"minions": []}


async def test_a_glob_lets_in_only_while_a_window_is_open(site: JoinSite, wheel: KeyWheel) -> None:
    dids = await waiting(site, "cam-1", "cam-2", "cam-3")
    await wheel.reject_dict(APPROVER, {"minions_pre": [dids[2]]})
    await site.enrollment.doors.close_window(asker=cast("Any", SimpleNamespace(user="ada", door="socket")))
    with pytest.raises(PolicyRefused, match="open join window"):
        await wheel.accept(APPROVER, "*")
    await site.window()
    assert len((await wheel.accept(APPROVER, "*"))["minions"]) == 2
    with pytest.raises(CallFailed, match="by his fingerprint"):
        await wheel.accept(APPROVER, dids[2], include_rejected=True)
    assert (await wheel.list_(ADMIN, "rej"))["minions_rejected"] == [dids[2]]


async def test_only_an_admin_puts_out_who_belongs_here(site: JoinSite, wheel: KeyWheel) -> None:
    inside, outside = await waiting(site, "cam-1", "cam-2")
    (name,) = (await wheel.accept(APPROVER, inside))["minions"]
    with pytest.raises(PolicyRefused, match="only an admin"):
        await wheel.delete(APPROVER, name)
    assert (await wheel.delete(APPROVER, outside))["minions_rejected"] == [outside]
    assert (await wheel.delete(ADMIN, name))["minions"] == []
    assert site.enrollment.verdicts.find(inside)[0].state == "revoked"
    with pytest.raises(CallFailed, match="there is no state"):
        await wheel.list_(ADMIN, "whatever")


# --- what an event of a device set off --------------------------------------------------------------------------------


async def test_what_a_device_goes_by_in_the_event_is_the_name_that_it_is_let_in_under(
    site: JoinSite, wheel: KeyWheel
) -> None:
    ink, plain = a_device("ink-7"), a_device("cam-1", serial="B8 A4 4F")
    for device, named in ((ink, "ink-7"), (plain, plain.did)):
        await site.ask(device)
        assert site.events("salt/auth")[-1]["id"] == named
        assert await wheel.accept(judged(site, device), named) == {"minions": [named]}
        assert [event["id"] for event in site.events("salt/key")][-1] == named
        (found,) = site.enrollment.verdicts.find(named)
        assert (found.did, found.name, found.state, found.unproven) == (device.did, named, "accepted", True)


async def test_of_two_that_say_the_same_name_the_one_that_was_judged_comes_in(site: JoinSite, wheel: KeyWheel) -> None:
    judge_first, other = a_device("one", serial="ink-7"), a_device("two", serial="ink-7")
    await site.ask(other)
    await site.ask(judge_first)
    assert {event["id"] for event in site.events("salt/auth")} == {"ink-7"}
    late = judged(site, other)
    assert await wheel.accept(judged(site, judge_first), "ink-7") == {"minions": ["ink-7"]}
    assert site.states() == {judge_first.did: "accepted", other.did: "pending"}
    with pytest.raises(CallFailed, match="ink-7 is the device"):
        await wheel.accept(late, "ink-7")
    with pytest.raises(CallFailed, match="ink-7 is the device"):
        await wheel.accept_dict(late, {"minions_pre": ["ink-7"]})
    # The names of one device never reach another, to put it out as little as to let it in.
    assert "ink-7" in (await wheel.delete(late, "ink-7"))["minions"]
    assert site.states() == {judge_first.did: "accepted", other.did: "rejected"}


async def test_a_name_that_nobody_judged_lets_nobody_in(site: JoinSite, wheel: KeyWheel) -> None:
    device = a_device("ink-7")
    await site.ask(device)
    assert await wheel.accept(ADMIN, "ink-7") == {"minions": []}
    elsewhere = by("admin", about=About("", "ink-7"))
    assert await wheel.accept(elsewhere, "ink-7") == {"minions": []}
    assert await wheel.accept(by("admin", about=About("a" * 26, "ink-7")), "ink-7") == {"minions": []}
    assert site.states() == {device.did: "pending"}


@pytest.mark.parametrize("proposal", ["cam-1", "lisbon-station", "ink-7@198.51.100.7", "a" * 26, "ink*", "ink 7", ""])
async def test_a_name_that_is_not_its_own_to_say_names_no_device(
    proposal: str, site: JoinSite, wheel: KeyWheel
) -> None:
    inside, hostile = a_device("cam-1"), a_device("mallory", serial=proposal)
    await site.ask(inside)
    await wheel.accept(judged(site, inside), "cam-1")
    await site.ask(hostile)
    assert site.events("salt/auth")[-1]["id"] == hostile.did
    await wheel.reject(judged(site, hostile), hostile.did)
    assert site.states() == {inside.did: "accepted", hostile.did: "rejected"}


async def test_who_says_another_name_meanwhile_is_let_in_under_the_one_that_was_judged(
    site: JoinSite, wheel: KeyWheel
) -> None:
    device = a_device("ink-7")
    await site.ask(device)
    before = judged(site, device)
    await site.ask(device, serial="door-1")
    assert [event["id"] for event in site.events("salt/auth")] == ["ink-7", "door-1"]
    assert await wheel.accept(before, "ink-7") == {"minions": ["ink-7"]}
    assert site.enrollment.by_name("door-1") is None


async def test_a_camera_in_the_place_of_another_is_told_of_again_when_the_name_is_free(
    site: JoinSite, wheel: KeyWheel
) -> None:
    old, new = a_device("old", serial="ink-7"), a_device("new", serial="ink-7")
    await site.ask(old)
    await wheel.accept(judged(site, old), "ink-7")
    await site.ask(new)
    assert site.events("salt/auth")[-1]["id"] == new.did
    await wheel.delete(ADMIN, "ink-7")
    for _ in range(3):
        await site.ask(new)
    told = [event["id"] for event in site.events("salt/auth") if event["did"] == new.did]
    assert told == [new.did, "ink-7"]
    assert await wheel.accept(judged(site, new), "ink-7") == {"minions": ["ink-7"]}


async def test_another_sites_word_about_its_keys_is_about_nobody_here(site: JoinSite) -> None:
    said = {"id": "ink-7", "did": "a" * 26}
    for tag in ("salt/auth", "salt/key"):
        assert about(site.bus.event(tag, dict(said)), "lisbon") == About("a" * 26, "ink-7")
        assert about(site.bus.event(tag, dict(said)), "porto") == About("", "ink-7")
        assert about(site.bus.event(tag, {"id": "porto"}), "lisbon") is None
    assert about(site.bus.event("site/auth", dict(said)), "lisbon") is None
