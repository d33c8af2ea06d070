"""Sessions, for ``bench trust``: devices open them, the station says so, and returns go up in their frames."""

from __future__ import annotations

import secrets

from device_agent.protocol import topics
from device_agent.protocol.jid import JidMaker
from device_agent.protocol.messages import Return, encode
from device_agent.trust.session_frames import Session
from device_agent.trust.sessions import (
    NONCE_BYTES,
    SECRET_BYTES,
    SessionOk,
    SessionOpening,
    open_prekey,
    open_session,
    open_session_ok,
    read_session,
    sign_session_ok,
)
from gateway.bench.trust_fleet import EPOCH, SITE, Fleet, Keys, new_keys
from gateway.bench.trust_sizes import of_frame, of_proofs
from gateway.bench.trust_turn import Turn, Watch

End = tuple[Session, Session, str]
"""A device's end of a session, the station's, and the device."""


class Sessions:
    """Both ends of them. All devices believe the same, so one stands for all."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._beliefs = fleet.beliefs(new_keys())
        jid = JidMaker().next(fleet.now)
        self._return = encode(Return(jid=jid, fun="test.ping", outcome="ok", value=True, duration=0.001, executions=1))

    def turn(self, turn: Turn, watch: Watch) -> None:
        """So many devices open a session, and send so many frames in it."""
        devices = [new_keys() for _ in range(turn.count)]
        with watch.on("session_device"):
            openings = [self._open(keys) for keys in devices]
        with watch.on("session_station"):
            taken = [self._take(opening.body, keys) for opening, keys in zip(openings, devices, strict=True)]
        with watch.on("session_device"):
            words = [
                open_session_ok(word, self._beliefs.site_key, device=keys.did, site=SITE, nonce=opening.nonce)
                for (_, word), opening, keys in zip(taken, openings, devices, strict=True)
            ]
        ends = [
            (opening.session, session, keys.did)
            for opening, (session, _), keys in zip(openings, taken, devices, strict=True)
        ]
        open_ends = [ours.sid == theirs.sid for ours, theirs, _ in ends]
        known = sum(word.epoch == EPOCH and is_open for word, is_open in zip(words, open_ends, strict=True))
        watch.ok(known, "session_device", "session_station")
        watch.made(
            of_proofs(prekey=self._fleet.prekey_body, opening=openings[0].body, session_ok=taken[0][1]),
        )
        self._frames(ends, turn.frames, watch)

    def _open(self, keys: Keys) -> SessionOpening:
        """As ``device_agent.guard`` does it at each connection, where the prekey comes first."""
        fleet = self._fleet
        prekey = open_prekey(fleet.prekey_body, self._beliefs.site_key, site=SITE, now=fleet.now)
        return open_session(
            keys.sig,
            prekey,
            nonce=secrets.token_bytes(NONCE_BYTES),
            secret=secrets.token_bytes(SECRET_BYTES),
            version=0,
            epoch=EPOCH,
            marks=[(fleet.master.sig.kid, fleet.now * 1000)],
            now=fleet.clock.monotonic(),
        )

    def _take(self, body: bytes, keys: Keys) -> tuple[Session, bytes]:
        """As ``gateway.devices.openings`` does it."""
        fleet = self._fleet
        read = read_session(body, site=SITE)
        session = read.opened(keys.sig.public, fleet.prekey, fleet.clock.monotonic())
        word = SessionOk(issued=fleet.now, epoch=EPOCH, version=read.version, index=0)
        return session, sign_session_ok(fleet.site.sig, device=read.did, site=SITE, nonce=read.nonce, word=word)

    def _frames(self, ends: list[End], frames: int, watch: Watch) -> None:
        clock, body = self._fleet.clock, self._return
        with_topics = [(*end[:2], topics.device_up(SITE, end[2], "f")) for end in ends]
        with watch.on("frame_seal"):
            sealed = [
                [device.seal(body, topic, clock.monotonic()) for _ in range(frames)] for device, _, topic in with_topics
            ]
        with watch.on("frame_open"):
            opened = [
                [station.open(frame, topic, clock.monotonic()) for frame in of_one]
                for of_one, (_, station, topic) in zip(sealed, with_topics, strict=True)
            ]
        watch.ok(sum(of_one.count(body) for of_one in opened), "frame_seal", "frame_open")
        watch.made(of_frame(sealed[0][0], with_topics[0][2]))
