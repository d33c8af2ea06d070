"""Somebody reads or writes the store of a gateway, and has not its keys: what opens SSH devices stays shut to him."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from device_agent.protocol.messages import encode_value
from gateway.devices.ssh_book import SshBook, Wanted
from gateway.devices.ssh_device import SshDevice
from gateway.devices.ssh_secrets import Secret, SecretLost
from gateway.store.reader import Reader
from tests.peers.joining import ALICE, opened_site
from tests.peers.ssh_desk import a_print

PASSWORD = "made up for this test"


async def rewritten(folder: Path, *changes: tuple[str, Sequence[object]]) -> list[str]:
    """Add two devices, change the store behind the gateway's back, start anew; what of ``cam-1`` still works."""
    async with (
        opened_site(folder) as site,
        Reader(site.path) as reader,
        SshBook(
            site="lisbon", authority=site.authority, enrollment=site.enrollment, reader=reader, bus=site.bus
        ) as book,
    ):
        devices = [SshDevice(name, "root", "192.0.2.1", fingerprints=(a_print(),)) for name in ("cam-1", "cam-2")]
        secrets = [Secret(password=PASSWORD), Secret(password="another")]
        await book.put([Wanted(*each) for each in zip(devices, secrets, strict=True)], ALICE)
    kept = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
    assert PASSWORD.encode() not in kept
    assert encode_value(PASSWORD) not in kept
    with closing(sqlite3.connect(folder / "station.sqlite")) as store:
        for sql, values in changes:
            assert store.execute(sql, tuple(values)).rowcount == 1
        store.commit()
    async with (
        opened_site(folder) as site,
        Reader(site.path) as reader,
        SshBook(
            site="lisbon", authority=site.authority, enrollment=site.enrollment, reader=reader, bus=site.bus
        ) as book,
    ):
        works = []
        if book.identity("cam-1") is not None:
            works.append("identity")
        try:
            assert book.secret("cam-1").password == PASSWORD
            works.append("secret")
        except SecretLost:
            assert book.lost() == ["cam-1"]
        return works


async def test_a_store_that_nobody_touched_opens(tmp_path: Path) -> None:
    assert await rewritten(tmp_path) == ["identity", "secret"]


@pytest.mark.parametrize(
    ("sql", "works"),
    [
        ("UPDATE ssh_devices SET fingerprints = ? WHERE name = 'cam-1'", []),
        ("UPDATE ssh_devices SET nonce = randomblob(16) WHERE name = 'cam-1' AND ? != ''", []),
        (
            (
                "UPDATE ssh_devices SET password = (SELECT password FROM ssh_devices WHERE name = 'cam-2')"
                " WHERE name = 'cam-1' AND ? != ''"
            ),
            ["identity"],
        ),
        (
            "UPDATE ssh_devices SET private_key = password, password = x'' WHERE name = 'cam-1' AND ? != ''",
            ["identity"],
        ),
    ],
    ids=["his own host key", "another nonce", "the password of another", "another column"],
)
async def test_what_is_put_in_another_place_opens_nothing(sql: str, works: list[str], tmp_path: Path) -> None:
    assert await rewritten(tmp_path, (sql, [a_print()])) == works
