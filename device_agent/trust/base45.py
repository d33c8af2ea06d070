"""Base45 (RFC 9285): two bytes as three characters of those that a QR code packs tightest."""

from __future__ import annotations

from typing import Final

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"
_VALUES: Final = {character: value for value, character in enumerate(ALPHABET)}


def encode(body: bytes) -> str:
    """Bytes as text."""
    text = []
    for place in range(0, len(body), 2):
        piece = body[place : place + 2]
        number = int.from_bytes(piece)
        for _ in range(len(piece) + 1):
            number, value = divmod(number, 45)
            text.append(ALPHABET[value])
    return "".join(text)


def decode(text: str) -> bytes:
    """Bytes from text. Raises ``ValueError`` for text that no bytes have."""
    body = bytearray()
    for place in range(0, len(text), 3):
        piece = text[place : place + 3]
        try:
            number = sum(_VALUES[character] * 45**power for power, character in enumerate(piece))
        except KeyError as error:
            raise ValueError(f"{error.args[0]!r} is no character of base45") from None
        if len(piece) == 1 or number >= 256 ** (len(piece) - 1):
            raise ValueError(f"{piece!r} stands for no bytes")
        body += number.to_bytes(len(piece) - 1)
    return bytes(body)
