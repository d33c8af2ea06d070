"""From where a client of our own broker connects, read off what the broker says of connections.

MQTT does not tell a subscriber who published. mosquitto says of each connection (``connection_messages true`` and
``log_type notice``) from which address a client id came; and a device that asks to join hears its answer only under its
did as client id. So a did has the address from which the holder of that client id connected last. Somebody outside
could borrow an address inside only with an accomplice there, who could as well have brought the device in.
"""

from __future__ import annotations

import re

from gateway.broker.rules import ENROLL_USER

CLIENTS = 4096

_came = re.compile(
    r"(?:\d+: )?New client connected from (?P<address>[0-9A-Fa-f:.]{2,45}):\d{1,5} as (?P<did>[a-z2-7]{26})"
    r" \(p\d, c\d, k\d{1,5}(?:, u'(?P<user>[^']{1,64})')?\)\.\s*\Z",
    re.ASCII,
)
_about_connections = re.compile(
    r"(?:\d+: )?(?:New connection from |New client connected from "
    r"|Client .* (?:disconnected|closed its connection|has exceeded timeout|already connected))"
)


class ClientAddresses:
    """The newest address of each client at the enrollment listener; the oldest give way."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}

    def line(self, text: str) -> bool:
        """Read one line of the broker's log; True when it told of a connection, and belongs in no other log."""
        found = _came.match(text)
        if found is not None and found["user"] == ENROLL_USER:
            self._addresses.pop(found["did"], None)
            self._addresses[found["did"]] = found["address"]
            if len(self._addresses) > CLIENTS:
                del self._addresses[next(iter(self._addresses))]
        return _about_connections.match(text) is not None

    def of(self, did: str) -> str:
        """The address that a did connected from last; empty when it is not known."""
        return self._addresses.get(did, "")
