"""Devices that ask to join: what lets them in, what does not, and what is on disk afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from device_agent.errors import UsageInvalid
from device_agent.protocol.messages import Hello
from device_agent.trust import join
from device_agent.trust.join_answer import Accepted, NotYet
from device_agent.trust.keys import KemKey
from device_agent.trust.policy import SitePolicy
from device_agent.trust.token import JoinToken
from gateway.broker.passwords import fits
from gateway.devices.enrollment_ports import Entrance
from tests.peers.clock import HandClock
from tests.peers.joining import ALICE, JoinSite, a_device, hand, opened_site, told
from tests.peers.waiting import until


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[JoinSite]:
    async with opened_site(tmp_path) as opened:
        yield opened


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_device_with_a_token_is_in_with_a_name_a_place_and_a_password(site: JoinSite) -> None:
    device = a_device("cam-1")
    accepted = await site.join(device, await site.token(name="gate-{serial}"))
    assert (accepted.certificate.name, accepted.certificate.unproven) == ("gate-cam-1", False)
    assert (accepted.terms.index, accepted.terms.port, accepted.terms.epoch) == (0, 1884, 1)
    enrolled = site.enrollment.by_name("gate-cam-1")
    assert enrolled is not None
    assert (enrolled.did, enrolled.proof, enrolled.accepted_by) == (device.did, "token", "alice")
    assert fits(accepted.terms.password, enrolled.password_hash)
    await until(lambda: site.broker.users == {device.did: enrolled.password_hash}, what="the broker knows it")
    known = site.registry.own_device("gate-cam-1")
    assert known is not None
    assert (known.place, known.present, known.certificate) == (0, False, enrolled.certificate)
    assert site.registry.hello("mqtt", "gate-cam-1", Hello("1" * 16, "0.1.0", {})) == 0
    assert (known.present, known.state) == (True, "accepted")


async def test_of_two_devices_with_one_token_exactly_one_is_in(site: JoinSite) -> None:
    token = await site.token()
    devices = [a_device(f"cam-{number}") for number in range(8)]
    for device in devices:
        await site.enrollment.request(device.request(token))
    await site.enrollment.settled()
    answers = [device.opened(site.answers[device.did][-1], site.fleet) for device in devices]
    assert [type(answer) for answer in answers].count(Accepted) == 1
    assert {answer.state for answer in answers if isinstance(answer, NotYet)} == {"token_used"}
    assert site.look("SELECT left FROM join_tokens") == [(0,)]
    assert list(site.states().values()) == ["accepted"]


async def test_what_the_disk_says_of_a_token_counts_more_than_what_is_remembered(site: JoinSite) -> None:
    token = await site.token()
    await site.writer.commit([("UPDATE join_tokens SET left = 0", [()])])
    assert await told(site, token=token) == "token_used"
    assert site.states() == {}
    assert site.registry.own_device("cam-1") is None


async def test_a_token_for_three_lets_three_in(site: JoinSite) -> None:
    token = await site.token(uses=3)
    for number in range(3):
        await site.join(a_device(f"cam-{number}"), token)
    assert await told(site, "cam-3", token) == "token_used"


async def test_a_tag_that_does_not_fit_leaves_the_token_unused(site: JoinSite) -> None:
    token = await site.token()
    forged = JoinToken(token.root, token.id, bytes(16), token.site, token.address)
    assert await told(site, "mallory", forged) == "window_closed"
    await site.window()
    assert await told(site, "mallory", forged) == "pending"
    assert site.look("SELECT left FROM join_tokens") == [(1,)]
    waiting = site.enrollment.by_did(a_device("mallory").did)
    assert waiting is not None
    assert token.id.hex() in waiting.detail
    assert site.metrics.refusals["enrollment", "bad_tag"] == 2
    await site.join(a_device("cam-1"), token)


async def test_a_token_for_one_serial_number_lets_no_other_in(site: JoinSite) -> None:
    token = await site.token(serial="B8A44F")
    assert await told(site, "cam-1", token) == "token_other_serial"
    await site.join(a_device("cam-2", serial="B8A44F"), token)


async def test_a_token_that_has_expired_lets_nobody_in(site: JoinSite) -> None:
    token = await site.token(seconds=60.0)
    hand(site).move(60.0)
    assert await told(site, token=token) == "token_expired"


async def test_a_token_that_was_revoked_or_never_made_here_lets_nobody_in(site: JoinSite) -> None:
    token = await site.token()
    await site.enrollment.doors.revoke_token(token.id.hex(), ALICE)
    assert await told(site, token=token) == "token_unknown"
    stranger = JoinToken(token.root, bytes(8), token.secret, token.site, token.address)
    assert await told(site, token=stranger) == "token_unknown"


async def test_a_token_of_the_site_that_this_station_was_before_lets_nobody_in(tmp_path: Path) -> None:
    async with opened_site(tmp_path) as site:
        token = await site.token()
    (tmp_path / "site-certificate").unlink()
    async with opened_site(tmp_path, site="porto") as site:
        assert await told(site, token=token) == "token_other_site"


async def test_a_token_that_does_not_count_waits_where_a_window_is_open_and_says_why(site: JoinSite) -> None:
    token = await site.token()
    await site.join(a_device("cam-1"), token)
    await site.window()
    assert await told(site, "cam-2", token) == "token_used"
    waiting = site.enrollment.by_did(a_device("cam-2").did)
    assert waiting is not None
    assert (waiting.state, token.id.hex() in waiting.detail) == ("pending", True)
    assert ("denied", False) in [(event["act"], event["result"]) for event in site.events("salt/auth")]
    assert site.deeds()[-1] == (a_device("cam-2").did, "keys.join", "deny")


async def test_the_secret_of_a_token_is_gone_when_its_last_device_has_confirmed(site: JoinSite) -> None:
    device, token = a_device(), await site.token()
    assert isinstance(await site.ask(device, token), Accepted)
    await site.enrollment.doors.tidy()
    assert site.look("SELECT secret FROM join_tokens") == [(token.secret,)]
    # The answer was lost: the next one is tagged as well.
    assert isinstance(await site.ask(device, token), Accepted)
    await site.confirm(device)
    await until(lambda: site.look("SELECT secret FROM join_tokens") == [(b"",)], what="the secret is gone")


# --- asking again -----------------------------------------------------------------------------------------------------


async def test_a_device_that_lost_its_answer_gets_another_with_the_same_name_and_place(site: JoinSite) -> None:
    device = a_device()
    first = await site.join(device, await site.token())
    again = await site.join(device)
    assert (again.certificate.name, again.terms.index) == (first.certificate.name, first.terms.index)
    assert again.terms.password != first.terms.password
    enrolled = site.enrollment.by_did(device.did)
    assert enrolled is not None
    assert fits(again.terms.password, enrolled.password_hash)


async def test_the_same_request_gets_the_same_answer(site: JoinSite) -> None:
    device = a_device()
    first = await site.ask(device, await site.token())
    assert device.asked is not None
    again = await site.hand_in(device, device.asked.payload)
    assert isinstance(first, Accepted)
    assert isinstance(again, Accepted)
    assert first.terms == again.terms


async def test_a_password_counts_only_when_the_device_says_that_it_has_it(site: JoinSite) -> None:
    device = a_device()
    first = await site.join(device, await site.token())
    # Anybody who recorded a request can send it again; nobody else can confirm the answer.
    recorded = device.request()
    await site.hand_in(device, recorded)
    enrolled = site.enrollment.by_did(device.did)
    assert enrolled is not None
    assert fits(first.terms.password, enrolled.password_hash)


async def test_a_request_that_was_confirmed_is_not_answered_again_nor_is_its_confirmation(site: JoinSite) -> None:
    device = a_device()
    await site.join(device, await site.token())
    assert device.asked is not None
    old, old_word = device.asked.payload, device.confirmation()
    newest = await site.join(device)
    assert await site.hand_in(device, old) is None
    await site.enrollment.request(old_word)
    await site.enrollment.settled()
    assert site.metrics.refusals["enrollment", "replayed"] == 1
    assert site.metrics.refusals["enrollment", "not_asked"] == 1
    enrolled = site.enrollment.by_did(device.did)
    assert enrolled is not None
    assert fits(newest.terms.password, enrolled.password_hash)


async def test_nobody_confirms_for_another(site: JoinSite) -> None:
    device, mallory = a_device(), a_device("mallory")
    await site.ask(device, await site.token())
    assert device.asked is not None
    word = bytearray(device.confirmation())
    word[-1] ^= 1
    await site.enrollment.request(bytes(word))
    await site.enrollment.request(join.confirm(mallory.key, site="lisbon", request_body=device.asked.body))
    await site.enrollment.request(join.confirm(device.key, site="porto", request_body=device.asked.body))
    await site.enrollment.settled()
    enrolled = site.enrollment.by_did(device.did)
    assert enrolled is not None
    assert enrolled.confirmed_at is None
    assert site.broker.users == {}


async def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    clock = HandClock()
    known, lost = a_device("cam-1"), a_device("cam-2")
    async with opened_site(tmp_path, clock=clock) as site:
        token = await site.token(uses=2)
        await site.join(known, token)
        await site.ask(lost, token)
        await site.window(most=5)
        await site.ask(a_device("cam-3"))
        before = sorted(site.enrollment.all(), key=lambda device: device.did)
        view = site.enrollment.doors.view()
    async with opened_site(tmp_path, clock=clock) as site:
        assert sorted(site.enrollment.all(), key=lambda device: device.did) == before
        assert site.enrollment.doors.view() == view
        assert list(site.broker.users) == [known.did]
        assert site.broker.is_open is True
        assert await told(site, "cam-4", token) == "token_used"
        again = await site.join(lost, token)
        assert (again.certificate.name, again.terms.index) == ("cam-2", 1)
        assert (await site.join(a_device("cam-5"), await site.token())).terms.index == 2


# --- names and room ---------------------------------------------------------------------------------------------------


async def test_a_name_that_is_taken_leaves_the_device_waiting_with_its_token_unused(site: JoinSite) -> None:
    await site.join(a_device("cam-1"), await site.token())
    token = await site.token()
    twin = a_device("cam-2", serial="cam-1")
    answer = await site.ask(twin, token)
    assert isinstance(answer, NotYet)
    assert (answer.state, "--name" in answer.text) == ("pending", True)
    waiting = site.enrollment.by_did(twin.did)
    assert waiting is not None
    assert a_device("cam-1").did in waiting.detail
    assert site.look("SELECT left FROM join_tokens WHERE id = ?", token.id.hex()) == [(1,)]


async def test_many_devices_at_once_get_names_and_places_of_their_own(site: JoinSite) -> None:
    token = await site.token(uses=40, name="cam-{number:03}")
    devices = [a_device(f"device-{number}", serial="0") for number in range(40)]
    for device in devices:
        await site.enrollment.request(device.request(token))
    await site.enrollment.settled()
    enrolled = [site.enrollment.by_did(device.did) for device in devices]
    assert {device.name for device in enrolled if device} == {f"cam-{number:03}" for number in range(1, 41)}
    assert {device.place for device in enrolled if device} == set(range(40))


async def test_a_site_takes_no_more_devices_than_its_certificate_says(tmp_path: Path) -> None:
    async with opened_site(tmp_path, policy=SitePolicy(devmax=1)) as site:
        token = await site.token(uses=2)
        await site.join(a_device("cam-1"), token)
        assert await told(site, "cam-2", token) == "full"
        assert site.look("SELECT left FROM join_tokens") == [(1,)]


async def test_a_station_without_a_fleet_lets_nobody_in(tmp_path: Path) -> None:
    async with opened_site(tmp_path, joined=False) as site:
        await site.window()
        answer = await site.ask(a_device())
        assert isinstance(answer, NotYet)
        assert (answer.state, answer.verified) == ("pending", False)


async def test_who_is_refused_again_and_again_uses_up_no_place(site: JoinSite) -> None:
    token = await site.token()
    for number in range(3):
        # A key of small order: nothing can be sealed to it.
        weak = a_device(f"weak-{number}")
        weak.kem = cast("KemKey", SimpleNamespace(public=bytes(32)))
        assert isinstance(await site.ask(weak, token), NotYet)
    assert site.metrics.refusals["enrollment", "bad_key"] == 3
    assert (await site.join(a_device("cam-1"), token)).terms.index == 0


async def test_many_devices_cannot_have_one_name(site: JoinSite) -> None:
    with pytest.raises(UsageInvalid, match="many devices cannot have one name"):
        await site.token(uses=2, name="gate")
    await site.token(uses=2, name="gate-{did}")
    await site.token(name="gate")


async def test_who_must_say_where_the_broker_is_hears_the_port(site: JoinSite, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Entrance(port=1884, enrollment_port=1885)
    monkeypatch.setattr(site.enrollment.doors, "_entrance", lambda: nowhere)
    with pytest.raises(UsageInvalid) as error:
        await site.token(name="gate")
    assert error.value.hint == "outstation keys token new --address HOST:1885"
