"""A class holds for every value: each function that is no shell is called with each hostile value of each argument.

What it does stays in the place that its entry declares, and a function of class ``looks`` shows no secret. A function
or an argument without an entry fails: its author declares in ``tests/peers/function_places_*`` what it may change.
"""

from __future__ import annotations

import hashlib

import pytest

from device_agent import loader
from device_agent.trust.reach import FUNCTIONS
from tests.peers.hostile_calls import ENTRIES, Call, calls_of, named
from tests.peers.recording_host import CANARY, RecordingHost
from tests.peers.recording_own import CONTENT, Effects, recording_own

FOLDER = "/var/lib/outstation"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
KINDS = {
    "service": [("systemd", "apt"), ("openrc", "apt"), ("procd", "apt"), ("sysv", "apt"), ("busybox", "apt")],
    "pkg": [("systemd", "apt"), ("systemd", "opkg"), ("systemd", "apk")],
}
"""The devices that a module is tried on, by init system and package manager; the others are tried on one."""

WITHOUT_EFFECT = {"ps.pkill": "no process on paper has the name"}
"""Functions whose calls are harmless on a device on paper, and why."""


def test_every_function_and_every_argument_has_an_entry() -> None:
    wanted = named()
    assert set(ENTRIES) == set(wanted), "a function without an entry, or an entry without a function"
    for fun, arguments in wanted.items():
        assert set(ENTRIES[fun].kinds) == set(arguments), fun


def test_only_what_changes_something_declares_a_place_of_its_own() -> None:
    allowed = {"connection", "lists", "pushed", "mine", "write"}
    for fun, entry in ENTRIES.items():
        if FUNCTIONS[fun] != "changes":
            assert {pattern.partition(":")[0] for pattern in entry.place} <= allowed, fun


@pytest.mark.parametrize("fun", sorted(ENTRIES))
async def test_what_a_function_does_stays_in_its_place(fun: str) -> None:
    did = False
    for kind in KINDS.get(fun.partition(".")[0], [("systemd", "apt")]):
        for call in calls_of(fun):
            if call.reach == "shell":
                assert call.argument, f"{call}: its harmless call is as good as a root shell"
                continue
            did |= await _stays(call, *kind)
    if fun not in WITHOUT_EFFECT:
        assert did or not ENTRIES[fun].place, f"{fun} declares a place and never changed anything: correct its entry"


async def _stays(call: Call, init: str, packages: str) -> bool:
    """Make one call; whether it had an effect."""
    host, effects = RecordingHost(init, packages), Effects()
    host.hostile = call.value
    ended = await loader.call(call.fun, host, call.arg, call.kwarg, recording_own(FOLDER, effects, SHA256))
    if ended.restart is not None:
        await ended.restart.begin()
    found = [*effects, *host.effects]
    assert not ENTRIES[call.fun].outside(found, FOLDER), f"{call} on {init}, {packages}"
    if call.reach == "looks":
        assert CANARY not in f"{ended.value!r} {ended.why}", f"{call} shows what only root may read"
    return bool(found)
