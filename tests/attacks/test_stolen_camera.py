"""A camera is stolen, and its flash is read: the thief has all that stands in its file ``identity``, and hears all that
the broker carries. He reads what is said to every camera until its theft is known, and nothing else; he signs nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.identity import Identity, IdentityFile
from device_agent.protocol import topics
from device_agent.trust import codec
from device_agent.trust.cose import FindKey
from device_agent.trust.deliveries import JobDelivery, job_delivery, read_delivery
from device_agent.trust.join import request
from device_agent.trust.join_answer import NotYet, open_response
from device_agent.trust.notices import read_bundle
from device_agent.trust.sessions import open_prekey, open_session
from device_agent.trust.signed_job import ALL, JobHeader, Order, open_group, open_single, read_job, seal_for_group
from tests.peers.canaries import Canary, found_in
from tests.peers.forgeries import Forger
from tests.peers.hacked_broker import hacked_broker, tapped
from tests.peers.system import System, whole_system
from tests.peers.tap import Message, Tap, lets_in

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE, OTHER = "lisbon", "cam-yard"
JID = "20200101000000000000"


class Theft:
    """The site, a camera that nobody has touched, and a tap on the broker."""

    def __init__(self, system: System, tap: Tap, door: int) -> None:
        self.system = system
        self.tap = tap
        self._door = door
        self.grain = Canary("a grain of the other camera")
        system.add_agent(OTHER, SITE, secret=self.grain.text)
        system.until(lambda: system.is_here(OTHER, SITE), f"{OTHER} is here")

    def steal(self, name: str) -> Identity:
        """Another camera joins, and somebody reads its flash."""
        system = self.system
        system.add_agent(name, SITE)
        system.until(lambda: system.is_here(name, SITE), f"{name} is here")
        copy = system.folder / f"flash of {name}"
        copy.mkdir()
        shutil.copy(system.folder / name / "identity", copy)
        found = IdentityFile(copy).load()
        assert found is not None
        return found

    def echo(self, tgt: str, *, sealed: bool = False) -> Canary:
        """A canary that went to these cameras and came back."""
        canary = Canary(f"to {tgt}{', sealed' if sealed else ''}")
        # One whose password he used was thrown out, and comes back.
        self.system.until(lambda: all(each["present"] for each in self.devices()), "every camera is here")
        ended = self.system.ended(SITE, self.system.issue(SITE, tgt, "test.echo", canary.text, sealed=sealed))
        assert {(each.outcome, each.value) for each in ended.outcomes} == {("ok", canary.text)}, ended
        return canary

    def devices(self) -> list[dict[str, Any]]:
        """The devices of the site."""
        found: list[dict[str, Any]] = self.system.view(SITE, "/devices")["devices"]
        return found

    @property
    def trust(self) -> bytes:
        """What the site says of itself, and the broker keeps for who comes later."""
        with tapped(self._door, topics.trust(SITE)) as late:
            return late.heard()[-1][1]


@pytest.fixture(scope="module")
def theft() -> Iterator[Theft]:
    with whole_system() as system:
        with hacked_broker(system.temporary()) as door:
            system.add_gateway(SITE)
        with tapped(door) as tap:
            yield Theft(system, tap, door)


def read_by(thief: Identity, said: list[Message]) -> bytes:
    """Everything that his keys open, of everything that was said by somebody who may."""
    opened = []
    for topic, payload in said:
        if not topic.endswith("/job") or payload[:1] == b"\1":
            continue
        delivery = read_delivery(payload)
        if isinstance(delivery, JobDelivery):
            with suppress(Refused):
                unverified = read_job(delivery.job)
                sealed = unverified.verified(site_key(thief)(unverified.kid))
                group = sealed.header.epoch is not None
                opened.append(
                    repr(open_group(sealed, thief.groups.newest) if group else open_single(sealed, thief.kem))
                )
    return "\n".join(opened).encode()


def site_key(thief: Identity) -> FindKey:
    """Whom he believes."""
    return lambda kid: thief.anchor.issuer(kid, "job", SITE, Clock().wall()).public


def test_he_reads_what_is_for_all_and_nothing_that_is_for_another_or_comes_from_it(theft: Theft) -> None:
    thief = theft.steal("cam-read")
    to_all, to_one = theft.echo("cam-*"), theft.echo(OTHER, sealed=True)
    asked = theft.system.ended(SITE, theft.system.issue(SITE, OTHER, "grains.get", "secret"))
    assert asked.outcomes[0].value == theft.grain.text
    said = theft.tap.heard()
    canaries = [to_all, to_one, theft.grain]
    # What goes to all comes back from each: of that he reads the order.
    assert found_in(canaries, read_by(thief, said)) == [to_all.name]
    assert [topic for topic, payload in said if found_in(canaries, payload)] == []


def test_he_signs_no_job_and_no_word_of_the_site(theft: Theft) -> None:
    """He has the group key, so what he seals opens; his camera's key is not one that orders."""
    thief, harm = theft.steal("cam-sign"), theft.system.folder / "harm"
    now = int(Clock().wall())
    header = JobHeader(
        sub=ALL, site=SITE, issued=now, expires=now + 300, jid=JID, seq=now * 1000, tgt="*", epoch=thief.groups.epoch
    )
    order = Order(fun="cmd.run", arg=[f"touch {harm}"], user="ops")
    job = seal_for_group(thief.sig, header, order, thief.groups.newest, os.urandom(16))
    site = thief.anchor.site_certificate(SITE)
    assert site is not None
    forged = [job, job.replace(thief.sig.kid, site.kid), codec.encode([job])]
    forger = Forger(SITE)
    forger.key, forger.kem, forger.did = thief.sig, thief.kem, thief.did
    other = IdentityFile(theft.system.folder / OTHER).load()
    assert other is not None
    own = topics.device_job(SITE, other.did)
    made = [
        *((topic, job_delivery(body, 300.0, None)) for topic in (topics.group_job(SITE), own) for body in forged),
        *forger.to_everybody(theft.trust, JID),
        *forger.to_one(other.did, bytes(8), JID),
    ]
    # With the rights of his camera nobody hears him; with those of the broker nobody believes him.
    for topic, payload in made:
        with Tap(theft.system.ports[SITE], username=thief.did, password=thief.password) as speaker:
            speaker.try_to_say(topic, payload)
    assert not [topic for topic, payload in theft.tap.heard() if payload in {body for _, body in made}]
    theft.tap.say(made)
    theft.echo(OTHER)
    refused = theft.system.log(OTHER)
    for reason in ("unknown_issuer", "bad_signature"):
        assert f"refused reason={reason} " in refused
    assert not harm.exists()
    assert theft.system.ask(SITE, "GET", f"/jobs/{JID}")[0] == 404


def test_after_its_revocation_he_comes_in_nowhere_and_reads_nothing_more(theft: Theft) -> None:
    system, port = theft.system, theft.system.ports[SITE]
    thief = theft.steal("cam-out")
    assert found_in([canary := theft.echo("cam-*")], read_by(thief, theft.tap.heard())) == [canary.name]
    prekey = open_prekey(read_bundle(theft.trust).prekey, site_key(thief), site=SITE, now=0.0)
    system.command("keys", "revoke", "cam-out", "--why", "stolen", "--yes", station=SITE, status=0)
    system.until(lambda: not lets_in(port, client_id=thief.did, username=thief.did, password=thief.password), "out")
    said = len(theft.tap.heard())

    opening = open_session(
        thief.sig, prekey, nonce=os.urandom(16), secret=os.urandom(32), version=0, epoch=1, marks=[], now=0.0
    )
    asked = request(thief.sig, thief.kem.public, nonce=os.urandom(16), serial="cam-out", model="x")
    theft.tap.say([(topics.device_up(SITE, thief.did, "ses"), opening.body)])
    system.until(lambda: system.refusals(SITE)["mqtt", "revoked"], "his opening is refused")
    response = topics.enrol_response(SITE, thief.did)

    def answered() -> bool:
        # A device that asks twice within a second is not looked at the second time.
        theft.tap.say([(topics.enrol_request(SITE), asked.payload)])
        return any(topic == response for topic, _ in theft.tap.heard()[said:])

    system.until(answered, "his request is answered")
    answer = next(payload for topic, payload in reversed(theft.tap.heard()) if topic == response)
    judged = open_response(answer, asked, thief.kem, site=SITE, pinned=thief.anchor.pinned, floor=0.0)
    assert isinstance(judged, NotYet)
    assert (judged.state, judged.verified) == ("revoked", True)

    system.stop("cam-out")
    canary = theft.echo("cam-*")
    after = theft.tap.heard()[said:]
    assert read_by(thief, after) == b""
    assert [topic for topic, payload in after if found_in([canary], payload)] == []
    to_him = {topic for topic, _ in after if thief.did in topic}
    assert to_him <= {topics.device_up(SITE, thief.did, "ses"), topics.device_up(SITE, thief.did, "bye"), response}
