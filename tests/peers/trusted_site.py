"""A site's side of every proof, in memory: it accepts devices, opens sessions, seals jobs, and says whom to believe.

It is no gateway: it keeps nothing, bounds nothing and refuses little. What it says is real, and so is what it checks.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from dataclasses import replace
from typing import Any

from device_agent.clock import Clock
from device_agent.protocol import topics
from device_agent.protocol.messages import Certificate, Downward, Upward, decode_upward, encode
from device_agent.trust.deliveries import cancel_delivery, job_delivery
from device_agent.trust.device_certificate import sign_device_certificate
from device_agent.trust.epochs import seal_epoch
from device_agent.trust.join import JoinRequest, is_confirm, read_confirm, read_request, tag_fits
from device_agent.trust.join_answer import State, Terms, accept, refuse
from device_agent.trust.keys import KemKey, SigningKey, new_private
from device_agent.trust.notices import bundle, sign_ack, sign_cancel
from device_agent.trust.session_frames import Session
from device_agent.trust.sessions import (
    SessionOk,
    UnverifiedOpening,
    read_bye,
    read_session,
    sign_prekey,
    sign_roll_call,
    sign_session_ok,
)
from device_agent.trust.signed_job import ALL, JobHeader, Order, seal_for_device, seal_for_group
from device_agent.trust.token import JoinToken
from tests.peers.fleet import YEAR, Fleet, party

TOKEN_ID, TOKEN_SECRET = b"token id", b"a token's secret"


class TrustedSite:
    """The site of a fleet, and its masters where they have something to say to devices."""

    def __init__(self, fleet: Fleet | None = None, clock: Clock | None = None) -> None:
        self.fleet = fleet or Fleet()
        self.key: SigningKey = self.fleet.site.key
        self.site = self.fleet.site.name
        self.clock = clock or Clock()
        self.certificates = [self.fleet.site_certificate]
        self.revocations: list[bytes] = []
        self.state: State | None = None
        """What it answers to those who want to join, in place of accepting them."""
        self.epoch = 1
        self.group_key = os.urandom(32)
        self.requests: dict[str, JoinRequest] = {}
        self.confirmed: list[str] = []
        self.passwords: dict[str, str] = {}
        self.indices: dict[str, int] = {}
        self.openings: dict[str, list[UnverifiedOpening]] = defaultdict(list)
        self.sessions: dict[str, Session] = {}
        self.terms: dict[str, Any] = {}
        """Terms that differ from the usual."""
        self._began = self.clock.monotonic()
        self._digests: set[bytes] = set()
        self._seq: dict[bytes, int] = {}
        self.restart()

    def now(self) -> int:
        """The time at this site."""
        return self.fleet.now + int(self.clock.monotonic() - self._began)

    def restart(self) -> None:
        """Another start of the station: it knows no session and has another prekey."""
        self.prekey = KemKey(new_private())
        self.instance = os.urandom(8)
        self.sessions.clear()

    # --- joining -------------------------------------------------------------------------------------------------

    def token(self, address: str = "127.0.0.1:1883") -> JoinToken:
        """A token that is good for any number of devices."""
        return JoinToken(self.fleet.fingerprint, TOKEN_ID, TOKEN_SECRET, self.site, address)

    def answered(self, payload: bytes) -> tuple[str, bytes] | None:
        """The answer to what came on the topic of requests, and for which did."""
        if is_confirm(payload):
            word = read_confirm(payload, site=self.site)
            word.verified(self.requests[word.did].sig)
            self.confirmed.append(word.did)
            return None
        request = read_request(payload)
        self.requests[request.did] = request
        if request.token_id is not None:
            assert request.token_id == TOKEN_ID
            assert tag_fits(request, TOKEN_SECRET)
        return request.did, self.answer(request)

    def answer(self, request: JoinRequest) -> bytes:
        """Accept a device under its serial number, or say why not."""
        if self.state is not None:
            return refuse(
                self.key,
                request_body=request.body,
                device=request.did,
                site=self.site,
                issued=self.now(),
                state=self.state,
                text="says the test",
                root_lists=self.fleet.chain,
                site_certificate=self.certificates[-1],
            )
        did = request.did
        self.passwords[did] = os.urandom(12).hex()
        given = {
            "issued": self.now(),
            "epoch": self.epoch,
            "group_key": self.group_key,
            "index": self.indices.setdefault(did, len(self.indices)),
            "password": self.passwords[did],
            "port": 1884,
            **self.terms,
        }
        return accept(
            self.key,
            request,
            root_lists=self.fleet.chain,
            site_certificate=self.certificates[-1],
            device_certificate=self.certify(did, request.serial),
            site=self.site,
            terms=Terms(**given),
            secret=TOKEN_SECRET if request.token_id is not None else None,
        )

    def certify(self, did: str, name: str, **changes: Any) -> bytes:
        """A certificate for a device that has asked to join."""
        request = self.requests[did]
        fields = {"issued": self.now(), "expires": self.now() + YEAR, **changes}
        return sign_device_certificate(self.key, site=self.site, sig=request.sig, kem=request.kem, name=name, **fields)

    # --- to everybody --------------------------------------------------------------------------------------------

    def bundle(self, **changes: Any) -> bytes:
        """The retained message."""
        parts: dict[str, Any] = {
            "root_lists": self.fleet.chain,
            "site_certificates": self.certificates,
            "prekey": self.signed_prekey(),
            "revocations": self.revocations,
            **changes,
        }
        return bundle(**parts)

    def signed_prekey(self, **changes: Any) -> bytes:
        fields = {"public": self.prekey.public, "issued": self.now(), "instance": self.instance, **changes}
        return sign_prekey(self.key, site=self.site, **fields)

    def ack(self, *jids: str, bits: bytes, key: SigningKey | None = None, issued: int | None = None) -> bytes:
        return sign_ack(
            key or self.key, site=self.site, jids=jids, bitmap=bits, issued=self.now() if issued is None else issued
        )

    def cancel(self, jid: str, bits: bytes | None = None, key: SigningKey | None = None) -> bytes:
        return cancel_delivery(sign_cancel(key or self.key, site=self.site, jid=jid, issued=self.now()), bits)

    # --- jobs ----------------------------------------------------------------------------------------------------

    def next_seq(self, key: SigningKey) -> int:
        self._seq[key.kid] = max(self._seq.get(key.kid, 0) + 1, self.now() * 1000)
        return self._seq[key.kid]

    def sealed(
        self,
        number: int = 1,
        *,
        to: str = ALL,
        key: SigningKey | None = None,
        group: bytes | None = None,
        **fields: Any,
    ) -> bytes:
        """An ``os-job``, by master A unless ``key`` says otherwise; to a did, or to all under the present group key."""
        signer = key or self.fleet.a.key
        order = Order(
            fun=fields.pop("fun", "test.ping"),
            arg=fields.pop("arg", []),
            kwarg=fields.pop("kwarg", {}),
            user=fields.pop("user", "ops"),
            origin=fields.pop("origin", ""),
            folders=fields.pop("folders", ()),
        )
        header = JobHeader(
            **{
                "sub": to,
                "site": self.site,
                "issued": self.now(),
                "expires": self.now() + 300,
                "jid": f"{number:020d}",
                "tgt": "*",
                "epoch": self.epoch if to == ALL else None,
                **({} if "seq" in fields else {"seq": self.next_seq(signer)}),
                **fields,
            }
        )
        if to == ALL:
            return seal_for_group(signer, header, order, group or self.group_key, os.urandom(16))
        return seal_for_device(signer, header, order, self.requests[to].kem)

    def job(self, number: int = 1, *, remaining: float = 300.0, bits: bytes | None = None, **fields: Any) -> bytes:
        """A job as it is delivered."""
        return job_delivery(self.sealed(number, **fields), remaining, bits)

    # --- sessions ------------------------------------------------------------------------------------------------

    def opened(self, body: bytes, **changes: Any) -> tuple[str, bytes]:
        """Take an opening; the did and the word that it is open. Each opening is taken once."""
        opening = read_session(body, site=self.site)
        assert opening.digest not in self._digests, "an opening was sent twice"
        self._digests.add(opening.digest)
        did = opening.did
        self.openings[did].append(opening)
        prekey = self.prekey
        assert opening.prekey == hashlib.sha256(prekey.public).digest()[:8], "sealed to an older prekey"
        self.sessions[did] = opening.opened(self.requests[did].sig, prekey, self.clock.monotonic())
        return did, self.word(opening, **changes)

    def word(self, opening: UnverifiedOpening, *, key: SigningKey | None = None, **changes: Any) -> bytes:
        """The word on an opening."""
        did = opening.did
        word = SessionOk(issued=self.now(), epoch=self.epoch, version=0, index=self.indices[did])
        nonce = changes.pop("nonce", opening.nonce)
        return sign_session_ok(key or self.key, device=did, site=self.site, nonce=nonce, word=replace(word, **changes))

    def roll_call(self, did: str, sid: bytes | None = None, key: SigningKey | None = None) -> bytes:
        known = self.sessions[did].sid if sid is None else sid
        return sign_roll_call(key or self.key, device=did, site=self.site, sid=known, issued=self.now())

    def frame(self, did: str, message: Downward) -> bytes:
        """A message sealed for a device's session."""
        topic = topics.device_job(self.site, did)
        return self.sessions[did].seal(encode(message), topic, self.clock.monotonic())

    def renamed(self, did: str, name: str, **changes: Any) -> bytes:
        """A frame with another certificate for a device."""
        return self.frame(did, Certificate(self.certify(did, name, **changes)))

    def heard(self, did: str, frame: bytes) -> Upward:
        """What a device said in its session."""
        topic = topics.device_up(self.site, did, "f")
        return decode_upward(self.sessions[did].open(frame, topic, self.clock.monotonic()))

    def last_words(self, payload: bytes) -> tuple[str, bytes]:
        """The did and the nonce of a last will that its device signed."""
        bye = read_bye(payload, site=self.site)
        bye.verified(self.requests[bye.did].sig)
        return bye.did, bye.nonce

    # --- keys and certificates -----------------------------------------------------------------------------------

    def rotate(self, epoch: int | None = None) -> None:
        """Another group key."""
        self.epoch = self.epoch + 1 if epoch is None else epoch
        self.group_key = os.urandom(32)

    def epoch_for(self, did: str, *, key: SigningKey | None = None, **changes: Any) -> bytes:
        """The group key for one device."""
        fields = {
            "issued": self.now(),
            "epoch": self.epoch,
            "revocation": False,
            "group_key": self.group_key,
            "kem_public": self.requests[did].kem,
            **changes,
        }
        return seal_epoch(key or self.key, device=did, site=self.site, **fields)

    def replace_gateway(self, name: str = "lisbon again") -> None:
        """Another gateway for the same site, with a certificate by master A."""
        taken = replace(party(name), name=self.site)
        self.key = taken.key
        self.certificates = [self.fleet.certify_site(taken, issued=self.now(), expires=self.now() + 30 * 86_400)]
        self.epoch = 1
        self.group_key = os.urandom(32)
        self.restart()
