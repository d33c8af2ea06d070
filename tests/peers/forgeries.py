"""What somebody says to a site who knows the protocol, and has no key that counts there."""

from __future__ import annotations

import os
import random
import secrets
from typing import Any

import msgspec

from device_agent.clock import Clock
from device_agent.protocol import topics
from device_agent.trust import codec
from device_agent.trust.deliveries import cancel_delivery, job_delivery
from device_agent.trust.epochs import seal_epoch
from device_agent.trust.join import confirm, request
from device_agent.trust.keys import KemKey, SigningKey, did_text, new_private
from device_agent.trust.notices import bundle, read_bundle, sign_ack, sign_cancel
from device_agent.trust.sessions import (
    Prekey,
    SessionOk,
    open_session,
    sign_bye,
    sign_prekey,
    sign_roll_call,
    sign_session_ok,
)
from device_agent.trust.signed_job import ALL, JobHeader, Order, seal_for_device, seal_for_group

Message = tuple[str, bytes]

SESSION = "0" * 16
JID = "20200101000000000000"
SEED = 20_260_101
WALL = Clock()
pack = msgspec.msgpack.encode


def nested(depth: int) -> object:
    """A value that deep."""
    value: object = "bottom"
    for _ in range(depth):
        value = [value]
    return value


def rubbish() -> list[bytes]:
    """Payloads that are no message of any release, here or on any other topic; the same ones each time."""
    randomness = random.Random(SEED)
    return [
        b"",
        b"\xc1",
        b"\x00" * 1000,
        b"\x91" * 100_000,
        b"\x81" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff\xa1",
        b"\xc6\xff\xff\xff\xffx",
        b"\x9f" * 1000,
        b"\xd2\x84" + b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xd2\x84\x5b\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\xc2\x5a\x00\x01\x00\x00" + b"\xff" * 65_536,
        b"\xd9\x01\x02" * 50,
        codec.encode([]),
        codec.encode([None] * 4),
        codec.encode({1: 2}),
        b'{"type": "return"}',
        *(randomness.randbytes(randomness.randrange(1, 200)) for _ in range(200)),
    ]


def of_the_release_before(jid: str) -> list[bytes]:
    """What stations and devices said to each other when nothing was signed or sealed."""
    job = pack({"type": "job", "jid": jid, "tgt": "*", "fun": "cmd.run", "arg": ["false"], "user": "x", "issued": 0.0})
    return [
        pack({"type": "hello", "session": SESSION, "agent": "0", "grains": {"id": "x"}}),
        pack({"type": "beat", "session": SESSION, "running": [jid] * 1000}),
        pack({"type": "gone", "session": SESSION}),
        pack({"type": "running", "jid": jid}),
        pack({"type": "return", "jid": jid, "fun": "test.ping", "outcome": "failed"}),
        pack({"type": "deliver", "job": job, "remaining": 60.0}),
        pack({"type": "cancel", "jid": jid, "bitmap": b"\xff" * 1000}),
        pack({"type": "confirm", "jids": [jid] * 900}),
        pack({"type": "welcome", "session": SESSION, "index": 5}),
        pack({"type": "rollcall", "x": nested(400)}),
    ]


class Forger:
    """Somebody with keys of his own, who signs what a station or a device of this site would."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.key = SigningKey(new_private())
        self.kem = KemKey(new_private())
        self.did = did_text(self.key.did)

    def _header(self, jid: str, **fields: Any) -> JobHeader:
        now = int(WALL.wall())
        given = {"sub": ALL, "site": self.site, "issued": now, "expires": now + 300, "jid": jid, "tgt": "*"}
        return JobHeader(**{**given, "seq": now * 1000, **fields})

    def to_everybody(self, trust: bytes, jid: str) -> list[Message]:
        """Orders and words for all devices; ``trust`` is what the site really says."""
        now, site, order = int(WALL.wall()), self.site, Order(fun="test.ping", user="mallory")
        job = seal_for_group(self.key, self._header(jid, epoch=1), order, os.urandom(32), os.urandom(16))
        true = read_bundle(trust)
        prekey = sign_prekey(self.key, site=site, public=self.kem.public, issued=now, instance=os.urandom(8))
        return [
            (topics.group_job(site), job_delivery(job, 300.0, None)),
            (topics.group_job(site), cancel_delivery(sign_cancel(self.key, site=site, jid=jid, issued=now), None)),
            (topics.group_ack(site), sign_ack(self.key, site=site, jids=[jid], bitmap=b"\xff" * 100, issued=now)),
            (topics.trust(site), bundle(true.root_lists, true.site_certificates, prekey, true.revocations)),
        ]

    def to_one(self, did: str, sid: bytes, jid: str) -> list[Message]:
        """Orders and words for one device; ``sid`` is that of its session, which everybody can read."""
        now, site = int(WALL.wall()), self.site
        order = Order(fun="test.ping", user="mallory")
        job = seal_for_device(self.key, self._header(jid, sub=did), order, self.kem.public)
        word = SessionOk(issued=now, epoch=1, version=0, index=0)
        epoch = seal_epoch(
            self.key,
            device=did,
            site=site,
            issued=now,
            epoch=9,
            revocation=True,
            group_key=os.urandom(32),
            kem_public=self.kem.public,
        )
        return [
            (topics.device_job(site, did), job_delivery(job, 300.0, None)),
            (
                topics.device_job(site, did),
                cancel_delivery(sign_cancel(self.key, site=site, jid=jid, issued=now), None),
            ),
            (topics.device_sok(site, did), sign_roll_call(self.key, device=did, site=site, sid=sid, issued=now)),
            (
                topics.device_sok(site, did),
                sign_session_ok(self.key, device=did, site=site, nonce=secrets.token_bytes(16), word=word),
            ),
            (topics.device_ep(site, did), epoch),
        ]

    def opening(self) -> bytes:
        """An opening by a device that nobody let in."""
        now = int(WALL.wall())
        prekey = Prekey(self.site, now, now + 3600, self.kem.public, os.urandom(8), self.key.kid, b"")
        fields: dict[str, Any] = {"nonce": secrets.token_bytes(16), "secret": secrets.token_bytes(32), "now": 0.0}
        return open_session(self.key, prekey, version=0, epoch=1, marks=[], **fields).body

    def bye(self) -> bytes:
        """The last will of a device that nobody let in."""
        return sign_bye(self.key, site=self.site, nonce=secrets.token_bytes(16))

    def wish_to_join(self, serial: str = "stranger", token: tuple[bytes, bytes] | None = None) -> bytes:
        """A request to join, with a token's id and what is not its secret."""
        nonce = secrets.token_bytes(16)
        return request(self.key, self.kem.public, nonce=nonce, serial=serial, model="x", token=token).payload

    def confirmation(self) -> bytes:
        """The word that an answer was taken which was never given."""
        return confirm(self.key, site=self.site, request_body=b"none")
