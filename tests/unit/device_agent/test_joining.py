"""How a device comes into its site: what it joins by, whose answer it believes, and what it never gives up again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from device_agent.config import AgentSettings, BrokerSettings
from device_agent.errors import ConfigInvalid, Refused
from device_agent.identity import Identity, new_identity
from device_agent.joining import Invitation, Joining, invitation, invited_by_token
from device_agent.trust.join_answer import NotYet
from device_agent.trust.revocations import sign_revocations
from tests.peers.clock import HandClock
from tests.peers.fleet import Fleet, signing_key
from tests.peers.guarded import joined
from tests.peers.trusted_site import TrustedSite

DAY = 86_400


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def site(clock: HandClock) -> TrustedSite:
    return TrustedSite(clock=clock)


def refusal(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments)
    return caught.value.reason


def asking(identity: Identity, invited: Invitation, clock: HandClock) -> Joining:
    return Joining(identity, invited, "SN-1", "dome-2", clock)


def answer(site: TrustedSite, joining: Joining) -> bytes:
    answered = site.answered(joining.request()[1])
    assert answered is not None
    return answered[1]


# --- answers ---------------------------------------------------------------------------------------------------------


def test_an_accepted_device_knows_all_it_needs_and_confirms(site: TrustedSite, clock: HandClock) -> None:
    site.terms = {"port": 2001, "tls_port": 2002, "authority": b"a" * 32}
    identity = new_identity()
    token = replace(site.token("broker.example:1885"), tls=True)
    joining = asking(identity, invited_by_token(token), clock)
    assert joining.judge(answer(site, joining)) is None
    assert identity.joined
    assert (identity.site, identity.name, identity.index) == ("lisbon", "SN-1", 0)
    assert (identity.host, identity.join_port, identity.port) == ("broker.example", 1885, 2001)
    assert (identity.tls, identity.tls_port, identity.authority) == (True, 2002, b"a" * 32)
    assert identity.password == site.passwords[identity.did]
    assert (identity.groups.epoch, identity.groups.newest) == (1, site.group_key)
    assert identity.anchor.pinned == site.fleet.fingerprint
    assert identity.floor.now(clock.monotonic()) == site.now()
    assert site.answered(joining.confirmation()[1]) is None
    assert site.confirmed == [identity.did]


def test_a_gateway_that_does_not_know_the_token_is_refused(site: TrustedSite, clock: HandClock) -> None:
    identity = new_identity()
    joining = asking(identity, invited_by_token(replace(site.token(), secret=b"another secret!!")), clock)
    body = site.token()
    plain = asking(identity, replace(invited_by_token(body), token=None), clock)
    assert refusal(joining.judge, answer(site, plain)) == "bad_tag"
    assert not identity.joined


def test_a_gateway_of_another_fleet_is_refused(site: TrustedSite, clock: HandClock) -> None:
    thief = Fleet()
    thief.roots = [signing_key(f"thief {number}") for number in range(3)]
    thief.chain = []
    thief.root = replace(thief.root, version=0, roots=tuple(root.public for root in thief.roots))
    thief.next_root()
    rogue = TrustedSite(thief, clock)
    identity = new_identity()
    joining = asking(identity, invited_by_token(site.token()), clock)
    assert refusal(joining.judge, answer(rogue, joining)) == "wrong_root"
    assert not identity.joined
    # Without a pin and with leave to do so, the first that answers is believed.
    first = asking(identity, Invitation("lisbon", "broker", 1885, None), clock)
    assert first.judge(answer(rogue, first)) is None
    assert identity.anchor.pinned == thief.fingerprint


def test_an_answer_to_another_request_is_refused(site: TrustedSite, clock: HandClock) -> None:
    identity = new_identity()
    first = asking(identity, invited_by_token(site.token()), clock)
    recorded = answer(site, first)
    second = asking(identity, invited_by_token(site.token()), clock)
    assert refusal(second.judge, recorded) == "bad_tag"
    stranger = asking(new_identity(), invited_by_token(site.token()), clock)
    assert refusal(stranger.judge, recorded) == "bad_tag"


def test_an_answer_that_is_not_acceptance_says_why_and_who_says_so(site: TrustedSite, clock: HandClock) -> None:
    identity = new_identity()
    joining = asking(identity, invited_by_token(site.token()), clock)
    site.state = "pending"
    told = joining.judge(answer(site, joining))
    assert isinstance(told, NotYet)
    assert (told.state, told.text, told.verified) == ("pending", "says the test", True)
    site.state = None
    assert joining.judge(answer(site, joining)) is None


def test_a_time_outside_the_sites_certificate_is_a_lie(site: TrustedSite, clock: HandClock) -> None:
    identity = new_identity()
    joining = asking(identity, invited_by_token(site.token()), clock)
    site.terms = {"issued": site.now() + 31 * DAY}
    assert refusal(joining.judge, answer(site, joining)) == "wrong_time"
    assert not identity.joined


def test_every_change_of_one_byte_of_an_answer_is_refused(site: TrustedSite, clock: HandClock) -> None:
    identity = new_identity()
    joining = asking(identity, invited_by_token(site.token()), clock)
    body = answer(site, joining)
    for place in range(0, len(body), 7):
        with pytest.raises(Refused):
            joining.judge(body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :])
    assert not identity.joined


# --- a device that belongs to a site already -------------------------------------------------------------------------


def test_a_replaced_gateway_gives_a_new_password_to_the_same_identity(site: TrustedSite, clock: HandClock) -> None:
    identity = joined(site, clock)
    before = (identity.did, identity.password)
    clock.move(100)
    site.replace_gateway()
    again = asking(identity, invitation(AgentSettings(), None, identity), clock)
    assert again.judge(answer(site, again)) is None
    assert identity.did == before[0]
    assert identity.password != before[1]
    assert identity.groups.newest == site.group_key


def test_a_gateway_that_the_device_knows_to_be_revoked_is_not_believed_again(
    site: TrustedSite, clock: HandClock
) -> None:
    identity = joined(site, clock)
    identity.anchor.take_revocations(
        sign_revocations(site.fleet.a.key, version=1, kids=[site.key.kid], issued=site.now())
    )
    before = identity.to_bytes()
    again = asking(identity, invitation(AgentSettings(), None, identity), clock)
    assert refusal(again.judge, answer(site, again)) in {"revoked", "issuer_revoked"}
    assert identity.to_bytes() == before


def test_an_older_root_list_brings_no_dropped_master_back(site: TrustedSite, clock: HandClock) -> None:
    identity = joined(site, clock)
    old = list(site.fleet.chain)
    site.fleet.next_root(masters=(site.fleet.b.as_master(),))
    identity.anchor.take_root_lists(site.fleet.chain)
    site.fleet.chain = old
    again = asking(identity, invitation(AgentSettings(), None, identity), clock)
    assert refusal(again.judge, answer(site, again)) in {"unknown_issuer", "issuer_revoked"}


# --- what a device joins by ------------------------------------------------------------------------------------------


def table(**fields: Any) -> AgentSettings:
    return AgentSettings(**fields)


def test_a_token_has_everything_and_the_settings_may_say_another_way_to_the_broker(site: TrustedSite) -> None:
    token = site.token("[2001:db8::1]:1885")
    found = invitation(table(), token, new_identity())
    assert found == Invitation("lisbon", "2001:db8::1", 1885, site.fleet.fingerprint, (token.id, token.secret), False)
    through = table(broker=BrokerSettings(host="nat.example", port=9, tls=True))
    moved = invitation(through, token, new_identity())
    assert (moved.host, moved.port, moved.tls) == ("nat.example", 9, True)


def test_without_a_token_the_settings_must_say_it_all(site: TrustedSite) -> None:
    root = site.fleet.fingerprint.hex()
    broker = BrokerSettings(host="broker.example", port=1885)
    found = invitation(table(site="lisbon", broker=broker, root=root), None, new_identity())
    assert (found.root, found.token) == (site.fleet.fingerprint, None)
    assert invitation(table(site="lisbon", broker=broker, trust_on_first_use=True), None, new_identity()).root is None
    for lacking in (
        table(),
        table(site="lisbon", broker=broker),
        table(broker=broker, root=root),
        table(site="lisbon", root=root),
    ):
        with pytest.raises(ConfigInvalid, match="belongs to no site yet"):
            invitation(lacking, None, new_identity())


@pytest.mark.parametrize(
    ("fields", "where"), [({"site": "porto"}, "site"), ({"root": "00" * 16}, "root")], ids=["site", "root"]
)
def test_settings_token_and_identity_that_contradict_each_other_stop_it(
    site: TrustedSite, clock: HandClock, fields: dict[str, Any], where: str
) -> None:
    for token, identity in ((site.token(), new_identity()), (None, joined(site, clock))):
        with pytest.raises(ConfigInvalid) as raised:
            invitation(table(**fields), token, identity)
        assert raised.value.where == where


def test_root_keys_that_followed_the_pinned_ones_are_the_same_fleet(site: TrustedSite, clock: HandClock) -> None:
    identity = joined(site, clock)
    pinned = identity.anchor.pinned
    fresh = signing_key("a root key in place of a lost one")
    roots = (*(root.public for root in site.fleet.roots[:2]), fresh.public)
    site.fleet.next_root(roots=roots)
    # Until the device has the list that proves it, these are keys of anybody.
    with pytest.raises(ConfigInvalid, match="belong together"):
        invitation(table(root=site.fleet.fingerprint.hex()), None, identity)
    identity.anchor.take_root_lists(site.fleet.chain)
    assert site.fleet.fingerprint != pinned
    for given in (site.token(), None):
        invited = invitation(table(root=site.fleet.fingerprint.hex()), given, identity)
        assert invited.root == pinned
    # A device that belongs nowhere yet pins what it is given.
    assert invitation(table(), site.token(), new_identity()).root == site.fleet.fingerprint
