"""A gateway's state with what a backup is about: devices that joined, keys, settings; and the backup of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from device_agent.clock import Clock
from device_agent.settings import load
from gateway.backup import put_back, take
from gateway.backup.archive import Cost, SealedReader, SealedWriter, read_header
from gateway.backup.contents import Contents, read_contents, written
from gateway.config import StationSettings
from tests.peers.clock import STARTED_WALL, HandClock
from tests.peers.joining import ALICE, JoinSite, a_device, opened_site

PASSPHRASE = b"correct horse battery staple"
CHEAP = Cost(log_n=1)
SECRET = b"a secret that must stay behind!!"
KNOWN_EPOCH = 7


@dataclass
class Gateway:
    """The folders of one gateway: its state, its settings, and its backup."""

    folder: Path
    site: str = "lisbon"
    clock: Clock = field(default_factory=HandClock)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def config(self) -> Path:
        return self.folder / "etc/gateway.yaml"

    @property
    def backup(self) -> Path:
        return self.folder / f"{self.site}.backup"

    def configure(self, **settings: Any) -> Path:
        """Write its settings file."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(json.dumps({"name": self.site, "state_dir": str(self.state), **settings}))
        return self.config

    def take(self, progress: Any = None, **changes: Any) -> take.Taken:
        """Take its backup."""
        if not self.config.exists():
            self.configure()
        wish = {
            "settings": load(StationSettings, self.config),
            "config": self.config,
            "target": self.backup,
            "passphrase": PASSPHRASE,
            "cost": CHEAP,
            **changes,
        }
        return take.take_backup(take.Wish(**wish), self.clock, progress or silent)

    def put_back(self, source: Path, passphrase: bytes = PASSPHRASE, **changes: Any) -> put_back.Restored:
        """Restore a backup here."""
        wish = put_back.Wish(source, self.config, lambda: passphrase, user="alice", **changes)
        return put_back.put_back(wish, self.clock, silent)

    def files(self) -> dict[str, bytes]:
        """Everything in its state folder."""
        return {
            path.relative_to(self.state).as_posix(): path.read_bytes()
            for path in sorted(self.state.rglob("*"))
            if path.is_file()
        }


def silent(_: str, __: float) -> None:
    """Nobody looks on."""


def unpacked(backup: Path, passphrase: bytes = PASSPHRASE) -> tuple[Contents, dict[str, bytes]]:
    """What is in a backup."""
    with backup.open("rb") as file:
        archive = SealedReader(file, read_header(file, str(backup)), passphrase, str(backup))
        contents = read_contents(archive, str(backup))
        files = {entry.name: archive.exactly(entry.size) for entry in contents.files}
        archive.finish()
    return contents, files


def packed(contents: Contents, files: Mapping[str, bytes], backup: Path) -> None:
    """A backup with these contents, whatever they are, by somebody who knows the passphrase."""
    with backup.open("wb") as file:
        writer = SealedWriter(file, PASSPHRASE, cost=CHEAP)
        writer.write(written(contents))
        for body in files.values():
            writer.write(body)
        writer.finish()


async def furnished(gateway: Gateway) -> Path:
    """The backup of a gateway with devices in every state, an unused token and an open window, and secrets around."""
    gateway.configure()
    gateway.state.mkdir()
    async with opened_site(gateway.state, clock=gateway.clock) as site:
        for name in ("cam-1", "cam-2"):
            await site.join(a_device(name), await site.token(name=name))
        await site.token(name="cam-9")
        await site.window()
        for name in ("cam-3", "cam-4"):
            await site.ask(a_device(name))
        await site.enrollment.verdicts.reject("cam-4", None, ALICE)
        kid = site.authority.signing.kid
        await site.writer.commit(
            [
                ("INSERT INTO prekeys (id, private, made) VALUES (x'01', ?, 0)", [(SECRET,)]),
                ("INSERT INTO openings (prekey, digest) VALUES (x'01', x'02')", [()]),
                (
                    "INSERT INTO epochs (kid, epoch, key, made, revocation) VALUES (?, ?, ?, ?, 0)",
                    [(kid, KNOWN_EPOCH, SECRET, STARTED_WALL)],
                ),
                ("UPDATE join_tokens SET secret = ? WHERE left > 0", [(SECRET,)]),
            ]
        )
    gateway.take()
    return gateway.backup


@asynccontextmanager
async def again(gateway: Gateway, *, joined: bool) -> AsyncIterator[JoinSite]:
    """The site as it starts on what is there; ``joined`` gives it a certificate by a master for the keys it has."""
    async with opened_site(gateway.state, clock=gateway.clock, joined=joined) as site:
        yield site
