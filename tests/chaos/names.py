"""A name server for a chaos run: a program with nothing but the standard library (RFC 1035, section 4).

    python names.py ADDRESS NAME=IP[,IP]…

It answers A and AAAA for its names, and that there is no such name for any other. SIGSTOP makes it silent.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from collections.abc import Mapping, Sequence

A, AAAA, IN = 1, 28, 1
ANSWER, NO_SUCH_NAME = 0x8580, 0x8583
HEADER = struct.Struct("!HHHHHH")
TTL_SECONDS = 0
PORT = 53


def answer(question: bytes, names: Mapping[str, Sequence[str]]) -> bytes | None:
    """The answer to a datagram; None for one that is no question."""
    try:
        number, _, questions, _, _, _ = HEADER.unpack_from(question)
        labels, place = [], HEADER.size
        while length := question[place]:
            labels.append(question[place + 1 : place + 1 + length].decode("ascii").lower())
            place += 1 + length
        kind, family = struct.unpack_from("!HH", question, place + 1)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    if questions != 1 or family != IN:
        return None
    known = names.get(".".join(labels))
    addresses = [ipaddress.ip_address(text) for text in known or ()]
    found = [each for each in addresses if kind == (A if each.version == 4 else AAAA)]
    # The name of each record is that of the question, which begins behind the header.
    records = [struct.pack("!HHHIH", 0xC00C, kind, IN, TTL_SECONDS, len(each.packed)) + each.packed for each in found]
    head = HEADER.pack(number, NO_SUCH_NAME if known is None else ANSWER, 1, len(records), 0, 0)
    return head + question[HEADER.size : place + 5] + b"".join(records)


def main(words: Sequence[str]) -> None:
    """Answer for ever."""
    names = {name: found.split(",") for name, _, found in (word.partition("=") for word in words[1:])}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind((words[0], PORT))
        while True:
            question, asker = door.recvfrom(512)
            if (said := answer(question, names)) is not None:
                door.sendto(said, asker)


if __name__ == "__main__":
    main(sys.argv[1:])
