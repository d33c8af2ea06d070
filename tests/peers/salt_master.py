"""A stock Salt master on loopback, and what an operator types beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.broker import free_ports
from tests.peers.salt_daemon import SaltDaemon, listens

QUICK = {
    "order_masters": True,
    "syndic_wait": 1,
    "timeout": 5,
    "gather_job_timeout": 5,
    "worker_threads": 3,
    "loop_interval": 1,
}
"""A master of masters that does not wait long for who is not there; housekeeping, such as new keys, comes at once."""

BUS = "master_event_pub.ipc"
NO_RESPONSE = "Minion did not return"


@dataclass(frozen=True)
class Answers:
    """What ``salt`` printed: a value for each device, in the order in which they came, and its exit status."""

    each: list[tuple[str, Any]]
    status: int
    error: str

    def by_device(self) -> dict[str, Any]:
        """The values by device, each of which may have been printed only once."""
        found = dict(self.each)
        assert len(found) == len(self.each), f"something was printed twice: {self.each}"
        return found

    def silent(self) -> list[str]:
        """Whom it reports as not having returned, sorted."""
        return sorted(device for device, value in self.each if str(value).startswith(NO_RESPONSE))


class SaltMaster(SaltDaemon):
    """A master; its ports and its keys stay the same for as long as its folder does."""

    def __init__(
        self, programs: Path, name: str = "central", *, pair: tuple[str, str] | None = None, **settings: Any
    ) -> None:
        self.name = name
        self.publish_port, self.ret_port = free_ports(2)
        places: dict[str, Any] = {
            "interface": "127.0.0.1",
            "publish_port": self.publish_port,
            "ret_port": self.ret_port,
            "id": name,
            "master_id": name,
        }
        super().__init__(programs, "master", {**places, **QUICK, **settings})
        self.files = self._root("file")
        """What it serves as ``salt://``."""
        self.pillar = self._root("pillar")
        if pair is not None:
            self._take_key_pair(pair)

    @property
    def release(self) -> str:
        """Which of those that are tested it is."""
        return self.programs.parent.name

    def throwaway_key(self) -> str:
        """A public key whose private half nobody has, for devices that the master is to know of."""
        folder = self.folder / "throwaway"
        folder.mkdir(exist_ok=True)
        self.key("--gen-keys", "devices", "--gen-keys-dir", str(folder))
        (folder / "devices.pem").unlink()
        return (folder / "devices.pub").read_text()

    @property
    def address(self) -> str:
        """Where its request port is."""
        return f"127.0.0.1:{self.ret_port}"

    def answers(self) -> bool:
        """It is ready when its ports and its bus are there, and a worker is behind the request port."""
        if not (listens(self.ret_port) and listens(self.publish_port) and (self.folder / "sock" / BUS).exists()):
            return False
        return "Worker binding to socket" in self.log()

    def salt(self, *words: str) -> Answers:
        """``salt`` with these words, to its end."""
        done = self.run("salt", "--out=json", *words)
        return Answers(list(_values(done.out)), done.status, done.error)

    def ordered(self, *words: str) -> str:
        """``salt --async`` with these words; the job's id."""
        done = self.run("salt", "--async", *words)
        assert done.status == 0, done
        return done.out.rpartition("job ID: ")[2].strip()

    def runner(self, *words: str) -> Any:
        """What a runner returns to ``salt-run``."""
        done = self.run("salt-run", "--out=json", *words)
        assert done.status == 0, done
        return json.loads(done.out)

    def returned(self, jid: str) -> dict[str, Any]:
        """What is in its job cache of a job, by device."""
        found: dict[str, Any] = self.runner("jobs.lookup_jid", jid)
        return found

    def keys(self) -> dict[str, list[str]]:
        """The ids of ``salt-key -L`` by the state of their keys, without the states that none has."""
        done = self.run("salt-key", "--list-all", "--out=json")
        assert done.status == 0, done
        return {state: ids for state, ids in json.loads(done.out).items() if ids}

    def accept(self, name: str) -> None:
        """Wait until somebody of this name asks to be let in, and accept the key."""
        self.until(lambda: name in self.keys().get("minions_pre", []), f"{name} shows its key")
        self.key("--accept", name)

    def key(self, *words: str) -> str:
        """``salt-key --yes`` with these words; what it printed."""
        done = self.run("salt-key", "--yes", *words)
        assert done.status == 0, done
        return done.out

    def fingerprint(self) -> str:
        """Its public key's, as its operator reads it to somebody (``master_finger``)."""
        done = self.run("salt-key", "--finger-all", "--out=json")
        found: dict[str, str] = json.loads(done.out)["local"]
        # From 3008 on it is called by the master's id.
        return found.get("master.pub") or found[f"{self.name}.pub"]

    def key_pair(self) -> tuple[str, str]:
        """Its private and its public key, for another that is to have the same."""
        return (self.folder / "pki" / "master.pem").read_text(), (self.folder / "pki" / "master.pub").read_text()

    def forget_key_pair(self) -> None:
        """It makes another at its next start; whom it let in stays so."""
        for file in {"master.pem", "master.pub", f"{self.name}.pem", f"{self.name}.pub"}:
            (self.folder / "pki" / file).unlink(missing_ok=True)

    def _take_key_pair(self, pair: tuple[str, str]) -> None:
        folder = self.folder / "pki"
        folder.mkdir(mode=0o700)
        for name, text in zip(("master.pem", "master.pub"), pair, strict=True):
            (folder / name).write_text(text)
            (folder / name).chmod(0o400)

    def _root(self, kind: str) -> Path:
        folder = self.folder / f"{kind}s"
        folder.mkdir()
        self.settings.setdefault(f"{kind}_roots", {"base": [str(folder)]})
        return folder


def _values(text: str) -> Iterator[tuple[str, Any]]:
    """What JSON maps say that stand behind one another."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        found, end = decoder.raw_decode(text)
        yield from found.items()
        text = text[end:]
