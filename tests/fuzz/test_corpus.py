"""Every seed is a real object that its reader takes, nothing that broke a reader breaks it again, and none is costly.

This needs no fuzzer. ``make fuzz`` looks for more.
"""

from __future__ import annotations

import random
import tracemalloc
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import pytest

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust.cose import SIGN1_TAG
from device_agent.trust.cose_sign import SIGN_TAG
from tests.fuzz import __main__ as program
from tests.fuzz import budget, proofs
from tests.fuzz.choosing import Narrowed, Reader, accepted_again, chosen, for_reader, read_or_refused, reader_of
from tests.fuzz.corpus import all_seeds
from tests.fuzz.files import finds, seeds
from tests.fuzz.mutation import MUTATORS

TARGETS = list(budget.RUNS)
LENGTH = 4096

COSTLY_CBOR = {
    "lists in lists": b"\x81" * LENGTH,
    "maps in maps": b"\xa1\x00" * LENGTH,
    "a list that says it is huge": b"\x9b" + b"\xff" * 8,
    "bytes that say they are huge": b"\x5b" + b"\xff" * 8,
    "empty maps": b"\x9a" + LENGTH.to_bytes(4) + b"\xa0" * LENGTH,
    "a reference to itself": b"\xd8\x1c\x82\xd8\x1d\x00" * 40,
    "a number of any size": b"\xc2\x5a" + LENGTH.to_bytes(4) + b"\xff" * LENGTH,
    "a list of no end": b"\x9f" * LENGTH,
}
COSTLY_MSGPACK = {
    "lists in lists": b"\x91" * LENGTH,
    "maps in maps": b"\x81\xa0" * LENGTH,
    "a list that says it is huge": b"\xdd" + b"\xff" * 4,
    "bytes that say they are huge": b"\xc6" + b"\xff" * 4,
    "empty maps": b"\xdd" + LENGTH.to_bytes(4) + b"\x80" * LENGTH,
}
LONG = {"text": b"a" * LENGTH, "more than any message has": bytes(limits.UPLINK_FRAME_BYTES + 1), "nothing": b""}
COSTLY = {
    "envelopes": {
        f"{name} after {tag.hex()}": tag + body
        for name, body in (COSTLY_CBOR | LONG).items()
        for tag in (b"", SIGN1_TAG, SIGN_TAG)
    },
    # What these read has been through the same decoder.
    "proofs": {"empty maps": SIGN1_TAG + COSTLY_CBOR["empty maps"], "text": LONG["text"]},
    "signed_claims": {"empty maps": COSTLY_CBOR["empty maps"]},
    "messages": COSTLY_MSGPACK | LONG,
    "uplink": COSTLY_MSGPACK | LONG,
    "file_questions": COSTLY_MSGPACK | LONG,
    "salt": COSTLY_MSGPACK | LONG,
    "mqtt": {"empty messages": b"\x30\x03\x00\x01t" * LENGTH, "pings": b"\xd0\x00" * LENGTH, **LONG},
}


def readers(target: str) -> dict[str, Reader]:
    found: dict[str, Reader] = getattr(import_module(f"tests.fuzz.{target}"), "READERS", {})
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_every_seed_is_something_real_that_its_reader_takes(target: str) -> None:
    refused = {}
    for name, body in seeds(target).items():
        try:
            reader_of(target)(body)
        except Refused as refusal:
            refused[name] = str(refusal)
    assert not refused, "where that is meant: .venv/bin/python -m tests.fuzz.corpus"


def test_the_seeds_are_those_that_are_made_and_every_reader_has_one() -> None:
    made = all_seeds()
    assert list(made) == TARGETS
    for target in TARGETS:
        assert set(seeds(target)) == set(made[target]), "try: .venv/bin/python -m tests.fuzz.corpus"
        places = {body[0] for body in seeds(target).values()}
        assert not readers(target) or places == set(range(len(readers(target))))


@pytest.mark.parametrize("target", TARGETS)
def test_what_broke_a_reader_once_does_not_again(target: str) -> None:
    for body in finds(target).values():
        read_or_refused(reader_of(target), body)


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_takes_memory_out_of_proportion(target: str) -> None:
    read = reader_of(target)
    prefixes = [bytes([place]) for place in range(len(readers(target)))] or [b"\xff"]
    for body in seeds(target).values():
        # What a first use of it loads stays, and is no input's fault.
        read(body)
    tracemalloc.start()
    try:
        for prefix in prefixes:
            for name, costly in COSTLY[target].items():
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                read_or_refused(read, prefix + costly)
                _, peak = tracemalloc.get_traced_memory()
                allowed = budget.MEMORY_AROUND + budget.MEMORY_PER_BYTE * len(costly)
                assert peak - before < allowed, f"{name} for reader {prefix.hex()}"
    finally:
        tracemalloc.stop()


def test_a_proof_that_nobody_signed_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "_known", lambda name: frozenset())
    for name in proofs.WHOLLY_SIGNED:
        with pytest.raises(proofs.Forged, match=name):
            read_or_refused(proofs.read, for_reader(proofs.READERS, name, seeds("proofs")[name][1:]))


def test_whatever_is_raised_beside_a_refusal_would_be_found() -> None:
    broken: dict[str, Reader] = {"first": len, "second": Mock(side_effect=KeyError("claim"))}
    assert chosen(broken, b"\x02body") == 4
    with pytest.raises(KeyError):
        read_or_refused(lambda body: chosen(broken, body), b"\x01")
    with pytest.raises(Narrowed):
        accepted_again(Mock(side_effect=Refused("oversized")), b"")


@pytest.mark.parametrize("target", MUTATORS)
def test_most_changes_leave_something_that_can_be_read_further(target: str) -> None:
    chance = random.Random(1)
    changes = [
        (body, MUTATORS[target](body, budget.INPUT_BYTES, chance)) for body in seeds(target).values() for _ in range(20)
    ]
    made = [(body, changed) for body, changed in changes if changed is not None]
    assert all(len(changed) <= budget.INPUT_BYTES and changed[:1] == body[:1] for body, changed in made)
    assert sum(body != changed for body, changed in made) > len(changes) * 0.6


def fared(status: int, *found: Path) -> program.Outcome:
    log = "#7 NEW\nKeyError: 'claim'\nstat::number_of_executed_units: 1234\n"
    return program.Outcome(status, 2.0, log, list(found))


def test_a_find_is_shown_and_ends_in_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, int]] = []

    def stand_in(target: str, runs: int, seconds: int) -> program.Outcome:
        ran.append((target, runs))
        return fared(77, Path.cwd() / "tests/fuzz/finds/mqtt/crash-1") if target == "mqtt" else fared(0)

    monkeypatch.setattr(program, "fuzzed", stand_in)
    monkeypatch.setattr(program, "find_spec", lambda name: object())
    monkeypatch.setitem(budget.RUNS, "proofs", 617)
    assert program.main(["--times", "2"]) == 1
    assert ran == [(target, 2 * runs) for target, runs in budget.RUNS.items()]
    shown = capsys.readouterr()
    assert [line.split()[:4] for line in shown.out.splitlines()] == [
        [target, "1,234", "inputs", "617"] for target in TARGETS
    ]
    said = dict(line.split(maxsplit=1) for line in shown.out.splitlines())
    assert said["proofs"].endswith("ok")
    assert said["uplink"].endswith(f"ok, but {2 * budget.RUNS['uplink']:,} were meant")
    assert said["mqtt"].endswith("BROKEN")
    assert shown.err.splitlines() == ["KeyError: 'claim'", "  the input is in tests/fuzz/finds/mqtt/crash-1"]
    assert program.main(["uplink"]) == 0


def test_without_a_fuzzer_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "find_spec", lambda name: None)
    assert program.main([]) == 1
    assert "make fuzz" in capsys.readouterr().err
