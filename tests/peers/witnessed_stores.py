"""Stores with their witnesses as files: what they say, and how they lose commits."""

from __future__ import annotations

from pathlib import Path

from gateway.store.reader import Reader
from gateway.store.trust_state import StoreTrust, load_trust
from gateway.store.witness import read_witness, witness_path
from tests.peers.database import look
from tests.peers.waiting import until


def store_in(folder: Path) -> Path:
    return folder / "station.sqlite"


def log_of(store: Path) -> Path:
    return store.with_name("station.sqlite-wal")


def epoch(store: Path) -> str:
    return str(look(store, "SELECT value FROM station WHERE key = 'epoch'")[0][0])


def commits(store: Path) -> int:
    return int(look(store, "SELECT number FROM store_commits")[0][0])


async def trust_of(store: Path) -> StoreTrust:
    async with Reader(store) as reader:
        return await load_trust(reader)


async def witnessed(store: Path) -> None:
    def caught_up() -> bool:
        found = read_witness(witness_path(store))
        return found is not None and found.commit == commits(store)

    await until(caught_up)


def gone(store: Path) -> None:
    log_of(store).unlink()
