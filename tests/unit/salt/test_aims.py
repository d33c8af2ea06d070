"""The benchmark beside stock Salt says whether its aims are met, and which answers are missing."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from tests.peers import salt_daemon
from tests.peers.salt_aims import aims, missing
from tests.peers.salt_rounds import BARE, OURS, Contender, Round
from tests.salt import fan_out


def took(devices: int, wall: float, answers: int | None = None) -> Contender:
    """Somebody whose every round took so long."""
    here = devices if answers is None else answers
    one = Round(here, wall=wall, answering=wall, command=wall, master_cpu=wall, own_cpu=wall)
    return Contender(devices, rounds=[one, one])


def found(*proxies: Contender, bare: float = 4.0) -> dict[str, Contender]:
    """The gateway took 5 s for 1,000 devices: 5 ms each."""
    others = {f"deltaproxy {one.devices}": one for one in proxies}
    return {OURS: took(1000, 5.0), BARE: took(1000, bare), **others}


@pytest.mark.parametrize(
    ("bare", "proxy", "met", "words"),
    [
        (4.0, 2.5, [True, True], ["1.25; the aim is at most 1.3: met", "20.00; the aim is at least 20: met"]),
        (3.8, 2.4, [False, False], ["1.32; the aim is at most 1.3: missed", "19.20; the aim is at least 20: missed"]),
    ],
)
def test_an_aim_is_met_or_missed_in_words_and_as_json(
    bare: float, proxy: float, met: list[bool], words: list[str]
) -> None:
    held = aims(found(took(25, proxy), bare=bare))
    assert [aim.met for aim in held] == met
    assert [aim.words().partition("answer ")[2] for aim in held] == words
    rows = [json.loads(aim.as_json()) for aim in held]
    assert [row["met"] for row in rows] == met
    assert [(row["of"], row.get("at_most"), row.get("at_least")) for row in rows] == [
        ("gateway / bare", 1.3, None),
        ("deltaproxy 25 / gateway", None, 20.0),
    ]


def test_the_quickest_deltaproxy_counts_of_those_that_answered_whole() -> None:
    several = found(took(25, 4.0), took(50, 5.0), took(75, 6.0, 74))
    (_, aim) = aims(several)
    assert aim.of == "deltaproxy 50 / gateway"
    assert aim.ratio == pytest.approx(20.0)
    assert not missing(several, [25, 50, 75]), "one that is too many is how the largest is found"


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    (_, aim) = aims(found())
    assert aim.met is None
    assert "not measured; the aim is at least 20" in aim.words()
    assert not missing(found(), []), "nobody asked for one"


def test_missing_answers_are_named_and_make_no_ratio() -> None:
    for name in (OURS, BARE):
        lacking = {**found(), name: took(1000, 1.0, 999)}
        assert missing(lacking, []) == [f"{name}: 999 of 1000 devices answered"]
        assert aims(lacking)[0].ratio is None
    for lacking in (found(), found(took(25, 1.0, 24))):
        assert missing(lacking, [25]) == ["deltaproxy: none of 25 devices answered whole"]
        assert aims(lacking)[1].ratio is None


@pytest.mark.parametrize("how", ["--repeat=1", "--json"])
@pytest.mark.parametrize(
    ("measured", "says", "status"),
    [
        (found(took(25, 2.5)), "met", ""),
        (found(took(25, 2.4), bare=3.0), "missed", ""),
        (found(took(25, 2.5, 24)), "not measured", "answers are missing: deltaproxy"),
        ({**found(took(25, 2.5)), OURS: took(1000, 5.0, 999)}, "not measured", "answers are missing: gateway: 999"),
    ],
)
def test_the_benchmark_fails_for_missing_answers_and_not_for_a_missed_aim(
    how: str,
    measured: dict[str, Contender],
    says: str,
    status: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["fan_out", "--proxies=25", how])
    monkeypatch.setattr(salt_daemon, "SECONDS", salt_daemon.SECONDS)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(fan_out, "measure", lambda *_: measured)
    try:
        fan_out.main()
        ended = ""
    except SystemExit as end:
        ended = str(end.code)
    assert ended.startswith(status), ended
    assert bool(ended) is bool(status)
    printed = capsys.readouterr().out.splitlines()
    if how == "--json":
        rows = [json.loads(line) for line in printed]
        assert [row["part"] for row in rows] == [*measured, "aim", "aim"]
    else:
        assert says in " ".join(printed[-2:])
