"""Somebody stands between a gateway and a stock master: what he makes up is refused and counted, and stops nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.peers.exposition import read_exposition
from tests.peers.salt_between import SaltBetween, between
from tests.peers.salt_double import SaltDouble
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_site import NAME, SaltSite, salt_site
from tests.peers.salt_sockets import ping
from upstream.salt import wire
from upstream.salt.publishes import PUBLISH_BYTES, SUBSCRIPTIONS
from upstream.salt.subscription import MESSAGE_CEILING_BYTES

DEVICES = 3
LINE_DOWN = "the line of a salt master's publishes is down"


@pytest.fixture(scope="module")
def line(master: SaltMaster) -> Iterator[SaltBetween]:
    with between(master) as found:
        yield found


@pytest.fixture(scope="module")
def site(master: SaltMaster, line: SaltBetween) -> Iterator[SaltSite]:
    with salt_site(master, devices=DEVICES, masters=[line.address], publish_port=line.publish_port) as started:
        connected(started)
        yield started


def connected(site: SaltSite) -> None:
    site.system.until(
        lambda: [link["state"] for link in site.links().values()] == ["connected"], "the gateway is signed in"
    )


def refused(site: SaltSite) -> dict[str, float]:
    """What the gateway has refused of Salt masters, by reason."""
    page = read_exposition(site.system.ask(NAME, "GET", "/metrics")[1].decode())
    samples = page["outstation_refused_total"].samples if "outstation_refused_total" in page else []
    return {labels["reason"]: count for _, labels, count in samples if labels["link"] == "salt"}


def counted(site: SaltSite, reason: str, before: dict[str, float]) -> None:
    site.system.until(lambda: refused(site).get(reason, 0) > before.get(reason, 0), f"a refusal: {reason}")


def signed_by_another(genuine: bytes) -> bytes:
    """The box of a real publish, with a signature of somebody else."""
    outer = wire.unpack(genuine)
    return wire.pack({**outer, b"sig": SaltDouble("other").sign(outer[b"load"], "PKCS1v15-SHA1")})


def bent(genuine: bytes) -> bytes:
    """With one bit of its box changed."""
    outer = wire.unpack(genuine)
    return wire.pack({**outer, b"load": outer[b"load"][:-1] + bytes([outer[b"load"][-1] ^ 1])})


def unsigned(genuine: bytes) -> bytes:
    return wire.pack({key: value for key, value in wire.unpack(genuine).items() if key not in (b"sig", b"sig_algo")})


def large(size: int) -> bytes:
    """A map with one value of so many bytes."""
    return b"\x81\xa1a\xc6" + size.to_bytes(4, "big") + bytes(size)


PUBLISHES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "garbage": (lambda _: b"\x81\xc1", "malformed"),
    "replayed": (lambda genuine: genuine, "replayed"),
    "signed by another": (signed_by_another, "bad_signature"),
    "bent": (bent, "bad_signature"),
    "unsigned": (unsigned, "unsigned"),
    "another master's": (lambda _: SaltDouble("other").publish(ping(1)), "bad_signature"),
    "too large": (lambda _: large(PUBLISH_BYTES), "too_large"),
}


@pytest.mark.parametrize("kind", PUBLISHES)
def test_a_hostile_publish_is_counted_and_the_next_order_taken(
    kind: str, site: SaltSite, line: SaltBetween, master: SaltMaster
) -> None:
    make, reason = PUBLISHES[kind]
    site.answered(master)
    before, subscribed = refused(site), line.subscribed
    line.say(*line.published[-1][:-1], make(line.published[-1][-1]))
    counted(site, reason, before)
    site.answered(master)
    assert site.links()[line.address]["state"] == "connected"
    assert line.subscribed == subscribed, "the next order came over the same line"


def test_a_publish_beyond_all_bounds_costs_the_line_for_a_moment(
    site: SaltSite, line: SaltBetween, master: SaltMaster
) -> None:
    """Of such a one nothing is taken in: the line over which it comes is dropped, which is said, and dialled again."""
    site.answered(master)
    before, subscribed = site.system.log(NAME).count(LINE_DOWN), line.subscribed
    line.say(large(2 * MESSAGE_CEILING_BYTES))
    site.system.until(lambda: site.system.log(NAME).count(LINE_DOWN) > before, "the log says that the line is down")
    site.system.until(lambda: line.subscribed >= subscribed + len(SUBSCRIPTIONS), "the gateway listens again")
    site.answered(master)
    assert site.links()[line.address]["state"] == "connected"


def is_sign_in(reply: bytes) -> bool:
    return b"clear" in reply


REPLIES: dict[str, tuple[Callable[[SaltBetween, bytes], bytes | None], str]] = {
    "garbage": (lambda _line, _reply: b"\xc1", "malformed"),
    "bent": (lambda _line, reply: reply[:-1] + bytes([reply[-1] ^ 1]), "bad_mac"),
    "replayed": (lambda line, _reply: next(old for old in line.replied if not is_sign_in(old)), "wrong_nonce"),
    "too large": (lambda _line, _reply: large(wire.MOST_BYTES), "too_large"),
    "a sign-in that is bent": (lambda _line, reply: reply[:-1] + bytes([reply[-1] ^ 1]), "bad_signature"),
}


@pytest.mark.parametrize("kind", REPLIES)
def test_a_hostile_reply_is_counted_and_no_answer_is_lost(
    kind: str, site: SaltSite, line: SaltBetween, master: SaltMaster
) -> None:
    make, reason = REPLIES[kind]
    sign_ins = "sign-in" in kind
    site.answered(master)
    before = refused(site)
    line.bend = lambda reply: make(line, reply) if is_sign_in(reply) is sign_ins else reply
    try:
        jid = master.ordered("cam-*", "test.echo", "hello")
        if sign_ins:
            site.cut()
            assert site.system.ask(NAME, "POST", "/spool/drill/end")[0] == 200
        counted(site, reason, before)
    finally:
        line.bend = lambda reply: reply
    connected(site)
    master.until(lambda: master.returned(jid) == dict.fromkeys(site.ids, "hello"), "every answer")
    site.balanced()
    site.answered(master)
