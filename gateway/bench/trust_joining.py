"""Joining, for ``bench trust``: a device asks with a token, a station accepts it, the device judges the answer."""

from __future__ import annotations

import secrets

from device_agent.errors import Refused
from device_agent.trust.device_certificate import sign_device_certificate
from device_agent.trust.join import Request, read_request, request, tag_fits
from device_agent.trust.join_answer import Accepted, NotYet, Terms, accept, open_response
from gateway.bench.trust_fleet import EPOCH, SITE, Fleet, Keys, new_keys
from gateway.bench.trust_sizes import of_joining, of_proofs, of_root_list
from gateway.bench.trust_turn import Turn, Watch
from gateway.broker.passwords import new_password

DEVICE_SECONDS = 365 * 86_400
PORT = 8883

Token = tuple[bytes, bytes]
"""Id and secret."""


class Joining:
    """Both ends of it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def turn(self, turn: Turn, watch: Watch) -> None:
        """So many devices join."""
        devices = [(new_keys(), (secrets.token_bytes(8), secrets.token_bytes(16))) for _ in range(turn.count)]
        with watch.on("enroll"):
            requests = [self._ask(keys, token) for keys, token in devices]
        with watch.on("accept"):
            answers = [
                self._accept(asked.payload, secret, place)
                for place, (asked, (_, (_, secret))) in enumerate(zip(requests, devices, strict=True))
            ]
        with watch.on("enroll"):
            opened = [
                open_response(answer, asked, keys.kem, site=SITE, pinned=self._fleet.pin, floor=float(self._fleet.now))
                for answer, asked, (keys, _) in zip(answers, requests, devices, strict=True)
            ]
        watch.ok(sum(map(self._belongs, opened, requests)), "enroll", "accept")
        watch.made(of_joining(requests[0], answers[0], devices[0][0].kem))
        watch.made(of_root_list(self._fleet.root_lists[0]))
        watch.made(of_proofs(site_certificate=self._fleet.site_certificate))

    def _ask(self, keys: Keys, token: Token) -> Request:
        """As ``device_agent.joining`` does it."""
        nonce = secrets.token_bytes(16)
        return request(keys.sig, keys.kem.public, nonce=nonce, serial="BENCH-000000000001", model="bench", token=token)

    def _accept(self, payload: bytes, secret: bytes, place: int) -> bytes:
        """As ``gateway.devices.admission`` does it."""
        fleet = self._fleet
        asked = read_request(payload)
        if not tag_fits(asked, secret):
            raise Refused("bad_tag")
        certificate = sign_device_certificate(
            fleet.site.sig,
            site=SITE,
            sig=asked.sig,
            kem=asked.kem,
            name=f"cam-{place}",
            issued=fleet.now,
            expires=fleet.now + DEVICE_SECONDS,
        )
        return accept(
            fleet.site.sig,
            asked,
            root_lists=fleet.root_lists,
            site_certificate=fleet.site_certificate,
            device_certificate=certificate,
            site=SITE,
            terms=Terms(
                issued=fleet.now,
                epoch=EPOCH,
                group_key=fleet.group_key,
                index=place,
                password=new_password(),
                port=PORT,
            ),
            secret=secret,
        )

    def _belongs(self, answer: Accepted | NotYet, asked: Request) -> bool:
        return (
            isinstance(answer, Accepted)
            and answer.certificate.did_text == asked.did
            and answer.site.body == self._fleet.site_certificate
            and answer.terms.group_key == self._fleet.group_key
        )
