"""A bare syndic: what a stock Salt master makes anybody do that answers for many devices, and nothing else.

    python -m tests.peers.salt_bare HOST:PORT --devices N --folder DIR

It signs in, hears, announces and answers at once for devices that it makes up: no device is asked, nothing is written
down, nothing is told twice. It prints a line when it hears what the master publishes.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from device_agent.clock import Clock
from gateway.salt.pace import CHUNK, LINES
from upstream.salt import publishes, wire
from upstream.salt.box import new_nonce
from upstream.salt.rsa_keys import GatewayKey, load_or_make
from upstream.salt.sign_in import PROTOCOL, Session, SignIn
from upstream.salt.terms import SaltRules

NAME = "bare"
PREFIX = "raw-"
"""As long as the names of the devices that answer behind a gateway."""

READY = "hears"
PATIENCE_MILLISECONDS = 120_000


def names(devices: int) -> list[str]:
    """The ids it answers for."""
    return [f"{PREFIX}{number:05d}" for number in range(devices)]


class BareSyndic:
    """Signed in at a master that accepts its key by itself."""

    def __init__(self, address: str, folder: Path) -> None:
        self._address = address
        self._context = zmq.Context()
        self._own = threading.local()
        self._clock = Clock()
        self._rules = SaltRules(id=NAME)
        self._key: GatewayKey = load_or_make(folder / "key.pem", self._rules.keysize)
        self._session = self._signed_in()

    def heard(self) -> zmq.Socket[bytes]:
        """A socket on which the master is heard."""
        socket = self._context.socket(zmq.SUB)
        for beginning in publishes.SUBSCRIPTIONS:
            socket.subscribe(beginning)
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        socket.connect(f"tcp://{self._address.rpartition(':')[0]}:{self._session.publish_port}")
        recv_monitor_message(monitor)
        return socket

    def order(self, frames: list[bytes]) -> dict[str, Any]:
        """What was published."""
        return publishes.opened(publishes.signed_box(frames, self._session.master), self._session.aes)

    def request(self, cmd: str, fields: dict[str, Any]) -> None:
        """Tell the master something, on this thread's own connection; it has it when this returns."""
        nonce, rules = new_nonce(), self._rules
        own = {"cmd": cmd, "nonce": nonce, "ts": int(self._clock.wall()), "tok": self._key.token, "id": rules.id}
        sealed = self._session.box.seal(wire.pack({**fields, **own}))
        how = {"enc_algo": rules.encryption_algorithm, "sig_algo": rules.signing_algorithm}
        reply = self._asked(wire.pack({"enc": "aes", "version": PROTOCOL, "id": rules.id, **how, "load": sealed}))
        said = wire.unpack(self._session.box.open(wire.envelope(reply), nonce))
        assert said is None, f"{cmd}: {said!r}"

    def _signed_in(self) -> Session:
        sign_in = SignIn(self._rules, self._key, None, new_nonce())
        found = sign_in.outcome(self._asked(sign_in.request()))
        assert isinstance(found, Session), f"{NAME} is not let in: {found}"
        return found

    def _asked(self, request: bytes) -> bytes:
        if not hasattr(self._own, "socket"):
            self._own.socket = self._context.socket(zmq.REQ)
            self._own.socket.rcvtimeo = PATIENCE_MILLISECONDS
            self._own.socket.connect(f"tcp://{self._address}")
        self._own.socket.send(request)
        reply: bytes = self._own.socket.recv()
        return reply


def returns(order: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    """What devices say that were pinged, in the form in which a gateway tells it."""
    pong = {"return": True, "retcode": 0, "success": True, "fun_args": []}
    entry = {"id": NAME, "jid": order["jid"], "fun": order["fun"], "load": {}, "return": dict.fromkeys(ids, pong)}
    return {"load": [entry | ({"master_id": order["master_id"]} if "master_id" in order else {})]}


def serve(bare: BareSyndic, devices: Sequence[str]) -> None:
    """Answer every ping of these devices, for ever."""
    socket = bare.heard()
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()
    with ThreadPoolExecutor(LINES) as connections:
        while True:
            order = bare.order(socket.recv_multipart())
            if order["fun"] != "test.ping" or not str(order["tgt"]).startswith(PREFIX):
                continue
            jid = order["jid"]
            said = {"tag": jid, "data": {"jid": jid, "minions": list(devices)}}
            told = [connections.submit(bare.request, "_minion_event", {"pretag": f"syndic/{NAME}", "events": [said]})]
            for first in range(0, len(devices), CHUNK):
                answers = returns(order, devices[first : first + CHUNK])
                told.append(connections.submit(bare.request, "_syndic_return", answers))
            for each in told:
                each.result()


def main() -> None:
    """Answer until killed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("address")
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    typed = parser.parse_args()
    serve(BareSyndic(typed.address, typed.folder), names(typed.devices))


if __name__ == "__main__":
    main()
