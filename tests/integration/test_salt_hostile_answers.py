"""Files and pillar that a Salt master, or whoever stands before it, answers wrongly: refused and counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol.file_questions import CHUNK, FIND, LIST, AskChunk, FileEntry, FindFile, ListFiles, encode
from device_agent.protocol.pillar import OF, PillarOfWanted, PillarTold
from gateway.files.served import LISTED_MOST
from gateway.metrics import Metrics
from gateway.salt.above import SaltAnswers
from gateway.salt.above_files import PIECE_BYTES, SaltFiles
from gateway.salt.above_pillar import SaltPillar
from tests.peers.salt_double import SaltDouble, new_box
from tests.peers.salt_sockets import PlayedMaster
from tests.peers.salt_uplink_bed import SaltBed
from upstream.salt import wire
from upstream.salt.uplink import SaltUplink

SHA256 = "0" * 64
ENTRY = FileEntry(path="fw/cam.bin", saltenv="base", size=10, sha256=SHA256)
WHOLE = {"devices": {"cam-1": {"ntp": "192.0.2.1"}}}
PATIENCE = 30.0


def linked(bed: SaltBed, master: PlayedMaster, tmp_path: Path) -> SaltUplink:
    clock = Clock()
    files = SaltFiles(tmp_path / "parts", 0, Metrics(clock), clock)
    pillar = SaltPillar("lisbon", lambda: {"id": "gw-1"}, clock)
    return bed.uplink(master, asked=SaltAnswers(files, pillar).answer)


Bare = Callable[[SaltDouble, dict[str, Any]], bytes]

PILLARS: dict[str, tuple[Bare, str]] = {
    "signed by another": (
        lambda double, load: double.pillar(load, WHOLE, signer=SaltDouble("other")),
        "bad_signature",
    ),
    "of another question": (
        lambda double, load: double.pillar(load, WHOLE, bend=lambda body: body.update(nonce="0" * 32)),
        "wrong_nonce",
    ),
    "with another key": (
        lambda double, load: double.pillar(load, WHOLE, bend=lambda body: body.update(key=b"\xff" * 256)),
        "wrong_nonce",
    ),
    "no mapping": (lambda double, load: double.pillar(load, [1, 2]), "malformed"),
    "devices that are none": (lambda double, load: double.pillar(load, {"devices": ["cam-1"]}), "malformed"),
    "a device that is none": (lambda double, load: double.pillar(load, {"devices": {"cam-1": 7}}), "malformed"),
    "a key for somebody else": (
        lambda double, load: wire.pack({"key": b"\xff" * 256, "pillar": b"\xff" * 200}),
        "not_for_us",
    ),
    "a flipped bit": (lambda double, load: double.pillar(load, WHOLE)[:-1] + b"\xff", "bad_mac"),
    "no box": (lambda double, load: wire.pack({"key": 7, "pillar": "x"}), "malformed"),
    "in the box of the session": (
        lambda double, load: wire.pack(double.session.seal(wire.pack(WHOLE), load["nonce"])),
        "stale_session",
    ),
    "too large": (
        lambda double, load: b"\x81\xa1a\xc6" + (wire.MOST_BYTES + 1).to_bytes(4, "big") + bytes(wire.MOST_BYTES + 1),
        "too_large",
    ),
    "too deep": (lambda double, load: b"\x81\xa1a" + b"\x91" * 5000, "too_deep"),
}


@pytest.mark.parametrize("kind", PILLARS)
async def test_a_pillar_that_is_not_the_masters_answer_is_no_devices_pillar(
    kind: str, bed: SaltBed, master: PlayedMaster, tmp_path: Path
) -> None:
    make, reason = PILLARS[kind]
    question = msgspec.msgpack.encode(PillarOfWanted("lisbon", "cam-1", {}))
    master.bare = lambda load: make(master.double, load) if load["cmd"] == "_pillar" else None
    async with linked(bed, master, tmp_path) as up:
        await bed.connected(master)
        with pytest.raises(Refused) as refused:
            await up.ask(OF, question, patience=PATIENCE)
        assert refused.value.reason == reason
        assert bed.refusals.reasons == {reason: 1}
    # Another gateway: what is wrong inside of a good pillar counts for a few seconds, as a good one does.
    master.bare = lambda load: master.double.pillar(load, WHOLE) if load["cmd"] == "_pillar" else None
    async with linked(bed, master, tmp_path) as up:
        await bed.state("connected")
        told = msgspec.msgpack.decode(await up.ask(OF, question, patience=PATIENCE), type=PillarTold)
        assert told.value() == {"ntp": "192.0.2.1"}


FILES: dict[str, tuple[str, bytes, Any, str]] = {
    "a list of anything": (LIST, encode(ListFiles("base", "", "")), {"a": 1}, "malformed"),
    "an endless list": (LIST, encode(ListFiles("base", "", "")), ["a"] * (LISTED_MOST + 1), "malformed"),
    "a hash that is none": (
        FIND,
        encode(FindFile("fw/cam.bin")),
        [{"hash_type": "sha256", "hsum": "../x"}, [0] * 10],
        "malformed",
    ),
    "a size that is none": (
        FIND,
        encode(FindFile("fw/cam.bin")),
        [{"hash_type": "sha256", "hsum": SHA256}, [0, 0, 0, 0, 0, 0, -1]],
        "malformed",
    ),
    "another hash": (
        FIND,
        encode(FindFile("fw/cam.bin")),
        [{"hash_type": "md5", "hsum": SHA256}, [0] * 10],
        "not_sha256",
    ),
    "a piece that is none": (CHUNK, encode(AskChunk(ENTRY, 0)), {"data": 7}, "malformed"),
    "a piece without an end": (CHUNK, encode(AskChunk(ENTRY, 0)), {"data": bytes(PIECE_BYTES + 1)}, "malformed"),
    "a file that ends early": (CHUNK, encode(AskChunk(ENTRY, 0)), {"data": ""}, "changed"),
}


@pytest.mark.parametrize("kind", FILES)
async def test_a_file_that_is_told_wrongly_is_none(
    kind: str, bed: SaltBed, master: PlayedMaster, tmp_path: Path
) -> None:
    about, question, told, reason = FILES[kind]
    async with linked(bed, master, tmp_path) as up:
        await bed.connected(master)
        master.answer = lambda load: told
        with pytest.raises(Refused) as refused:
            await up.ask(about, question, patience=PATIENCE)
        assert refused.value.reason == reason
        assert bed.refusals.reasons == {reason: 1}
        master.answer = lambda load: ["", None]
        with pytest.raises(Refused, match="not_found"):
            await up.ask(FIND, encode(FindFile("fw/cam.bin")), patience=PATIENCE)
        assert bed.refusals.reasons == {reason: 1}, "that there is no such file says nothing against a master"


@pytest.mark.parametrize("kind", ["another box", "another question"])
async def test_a_file_from_somebody_else_is_none(kind: str, bed: SaltBed, master: PlayedMaster, tmp_path: Path) -> None:
    box = new_box() if kind == "another box" else None

    def bare(load: dict[str, Any]) -> bytes | None:
        if load["cmd"] != "_file_hash_and_stat":
            return None
        nonce = load["nonce"] if box else "0" * 32
        return wire.pack((box or master.double.session).seal(wire.pack(["", None]), nonce))

    master.bare = bare
    async with linked(bed, master, tmp_path) as up:
        await bed.connected(master)
        with pytest.raises(Refused) as refused:
            await up.ask(FIND, encode(FindFile("fw/cam.bin")), patience=PATIENCE)
        assert refused.value.reason == ("bad_mac" if box else "wrong_nonce")
        assert bed.refusals.reasons == {refused.value.reason: 1}
