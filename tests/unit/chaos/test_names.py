"""tests/chaos/names.py: what the name server of a chaos run answers."""

from __future__ import annotations

import struct

import pytest

from tests.chaos.names import AAAA, A, answer

NAMES = {"master-a.chaos": ["10.77.1.2", "fd77:1::2"]}


def question(name: str, kind: int) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


@pytest.mark.parametrize(("kind", "end"), [(A, bytes([10, 77, 1, 2])), (AAAA, b"\xfd\x77\0\1" + bytes(11) + b"\2")])
def test_a_name_has_an_address_of_each_family(kind: int, end: bytes) -> None:
    said = answer(question("master-a.chaos", kind), NAMES)
    assert said is not None
    assert said.endswith(end)
    assert struct.unpack_from("!HHHH", said) == (7, 0x8580, 1, 1)


def test_any_other_name_does_not_exist() -> None:
    said = answer(question("elsewhere.chaos", A), NAMES)
    assert said is not None
    assert struct.unpack_from("!HHHH", said) == (7, 0x8583, 1, 0)


@pytest.mark.parametrize("datagram", [b"", b"\0" * 12, question("master-a.chaos", A)[:20]])
def test_what_is_no_question_is_not_answered(datagram: bytes) -> None:
    assert answer(datagram, NAMES) is None
