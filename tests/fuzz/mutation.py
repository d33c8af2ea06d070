"""Changes to an input that keep it readable: one value in it becomes another, also inside of what it carries as bytes.

Bytes changed at random rarely are CBOR any more, still less the only way to write it; these mostly are.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from device_agent.trust import claims, codec
from device_agent.trust.cose import SIGN1_TAG
from device_agent.trust.cose_sign import SIGN_TAG
from tests.fuzz import budget

DEPTH: Final = 12

LEAVES: Final[tuple[Any, ...]] = (
    *(0, 1, -1, 23, 24, 255, 256, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**64)),
    *(b"", bytes(8), bytes(16), bytes(20), bytes(32), bytes(64), b"\xff" * 32, b"00000000000000000000"),
    *("", "all", "*", "[", "a" * 26, "a" * 300, "\n", "\x00", "é", "🦀", "job", "lisbon", "-" * 64, "٣" * 20),
    *(None, True, False, 0.0, -0.0, 1.5, 1e300, float("inf"), float("nan")),
    *([], {}, [[]], [None] * 40, {"": None}, {1: 2}),
)


class Mutator:
    """For one encoding; ``leading`` bytes choose the reader and stay."""

    def __init__(self, loads: Callable[[bytes], Any], dumps: Callable[[Any], bytes], leading: int = 1) -> None:
        self._loads = loads
        self._dumps = dumps
        self._leading = leading

    def __call__(self, body: bytes, most: int, chance: random.Random) -> bytes | None:
        """The input with one to three values changed; None when it is nothing that can be read."""
        head, rest = body[: self._leading], body[self._leading :]
        tag = next((tag for tag in (SIGN_TAG, SIGN1_TAG) if rest.startswith(tag)), b"")
        try:
            value = self._loads(rest[len(tag) :])
            for _ in range(chance.randint(1, 3)):
                value = self._changed(value, chance, 0)
            changed = head + tag + self._dumps(value)
        # A seed need not be of this encoding, and not every value can be written in it.
        except Exception:  # noqa: BLE001 - each encoding has errors of its own, and lets Python's through
            return None
        return changed if len(changed) <= most else None

    def _changed(self, value: Any, chance: random.Random, depth: int) -> Any:
        if depth < DEPTH and chance.random() < 0.94:
            if isinstance(value, dict) and value:
                return self._in_map(value, chance, depth)
            if isinstance(value, list) and value:
                return self._in_list(value, chance, depth)
            if isinstance(value, bytes) and len(value) > 8:
                return self._in_bytes(value, chance, depth)
        if isinstance(value, int) and chance.random() < 0.3:
            return value + chance.choice((-1, 1, 2**32, -(2**32)))
        if isinstance(value, str | bytes) and value and chance.random() < 0.4:
            place = chance.randrange(len(value))
            return chance.choice((value[:place], value[place:], value[:1] * 65, value[place:] * 2))
        return chance.choice(LEAVES)

    def _in_map(self, value: dict[Any, Any], chance: random.Random, depth: int) -> dict[Any, Any]:
        changed = dict(value)
        (key,) = chance.choices(list(changed), weights=[_leaves(inner) for inner in changed.values()])
        match chance.randrange(16):
            case 0:
                del changed[key]
            case 1:
                # Under another name in the same place, so that what comes last still does.
                other = chance.choice(list(claims.NAMES))
                changed = {other if each == key else each: inner for each, inner in changed.items()}
            case 2:
                changed[key] = changed.pop(key)
            case 3:
                other = chance.choice(list(changed))
                changed[key], changed[other] = changed[other], changed[key]
            case _:
                changed[key] = self._changed(changed[key], chance, depth + 1)
        return changed

    def _in_list(self, value: list[Any], chance: random.Random, depth: int) -> list[Any]:
        changed = list(value)
        (place,) = chance.choices(range(len(changed)), weights=[_leaves(inner) for inner in changed])
        match chance.randrange(16):
            case 0:
                del changed[place]
            case 1:
                changed.insert(place, changed[chance.randrange(len(changed))])
            case 2:
                changed = self._repeated(changed, chance.choice((2, 17, 65)))
            case _:
                changed[place] = self._changed(changed[place], chance, depth + 1)
        return changed

    def _repeated(self, value: list[Any], times: int) -> list[Any]:
        """Repeated so often, unless that would take more than any input has: it is the reader whose memory counts."""
        return value * times if len(self._dumps(value)) * times <= budget.INPUT_BYTES else value

    def _in_bytes(self, value: bytes, chance: random.Random, depth: int) -> bytes:
        tag = next((tag for tag in (SIGN_TAG, SIGN1_TAG) if value.startswith(tag)), b"")
        try:
            inner = self._loads(value[len(tag) :])
            return tag + self._dumps(self._changed(inner, chance, depth + 1))
        except Exception:  # noqa: BLE001 - most byte strings carry no other value
            place = chance.randrange(len(value))
            return value[:place] + bytes([value[place] ^ 1 << chance.randrange(8)]) + value[place + 1 :]


def _leaves(value: Any) -> int:
    """How many values there are to change in it, so that each has the same chance."""
    if isinstance(value, dict):
        return 1 + sum(map(_leaves, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_leaves, value))
    return 1


MUTATORS: Final = {
    **dict.fromkeys(("envelopes", "proofs", "signed_claims"), Mutator(codec.decode, codec.encode)),
    **dict.fromkeys(("messages", "uplink", "file_questions"), Mutator(msgspec.msgpack.decode, msgspec.msgpack.encode)),
}
"""By target; one that is not here is changed byte by byte alone."""
