"""Faults of the gateway's store: its log is cut or gone, its folder is put back, or a copy of it runs beside it.

Each is a script in a thread of its own. It waits for what it needs, with a bound; what it does not get is a finding.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from device_agent.errors import NotFound, OutstationError
from gateway.store.witness import Position, position, read_witness, witness_path
from tests.chaos import ssh_device
from tests.chaos.coordinator import WITNESS_SECONDS, Coordinator, Finding, Gap
from tests.chaos.expect import Look, Watch
from tests.chaos.load import ask
from tests.chaos.plan import Fault
from tests.chaos.plant import BROKER_PORT, ENROLL_PORT, MASTERS, SITE, Plant

CLONE = "clone"
CLONE_PORTS = 10
"""How far the clone's ports are from those of the gateway."""

STEP_SECONDS = 40.0
EXPIRES_SECONDS = 240.0
PAUSE_SECONDS = 0.1
LOG_HEADER = struct.Struct(">IIIIIIII")
FRAME_HEADER = struct.Struct(">IIIIII")
LEDGER = "ledger"
JOB = "SELECT 1 FROM jobs WHERE jid = '{}'"


class StoreFault:
    """One fault while it lasts."""

    def __init__(
        self,
        fault: Fault,
        plant: Plant,
        coordinator: Coordinator,
        watch: Watch,
        number: int,
        tell: Callable[[str], None],
    ) -> None:
        self._fault = fault
        self._plant = plant
        self._coordinator = coordinator
        self._watch = watch
        self._number = number
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=str(fault), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Its time is up; it ends as soon as it has done everything."""
        self._over.set()

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            {"log": self._log, "rollback": self._rollback, "clone": self._clone}[self._fault.kind]()
        except (OutstationError, OSError, AssertionError, sqlite3.Error, ValueError) as error:
            self._finding(f"{type(error).__name__}: {error}")
        finally:
            if CLONE in self._plant.children:
                self._plant.kill_now(CLONE)
            self._plant.let_go(SITE)
            self._plant.let_go(ssh_device.NAME)

    # --- scripts -------------------------------------------------------------------------------------------------

    def _log(self) -> None:
        """Power goes, and the log is shorter than it was, or not there."""
        killed = time.monotonic()
        self._plant.hold(SITE)
        store = self._plant.store_of(SITE)
        before, had = counted(store)
        witness = read_witness(witness_path(store))
        self._coordinator.went_back(Gap(killed, time.monotonic()))
        (cut_log if self._fault.way == "cut" else remove_log)(store)
        after, has = counted(store)
        self._plant.let_go(SITE)
        self._until(lambda: self._plant.answers(SITE), "the gateway answers")
        self._tell(f"           gone with the log: {differences(before, after)}")
        if witness is None or witness.commit <= has.commit:
            # The main file has all that the witness knows of: what is gone is younger than the witness.
            late = had.at - (witness.at if witness is not None else 0.0)
            if late > WITNESS_SECONDS:
                self._finding(f"the witness was {late:.1f} s behind: {differences(before, after)}")
            return
        self._named(lambda look: look.says("store"), "store: it went back")
        self._acknowledge()

    def _rollback(self) -> None:
        """An older copy of the folder is put back, after a job that it has open has run."""
        mark = self._waiting_job()
        since, copy = self._copied()
        self._plant.let_go(SITE)
        self._until(lambda: self._plant.answers(SITE), "the gateway answers")
        self._plant.let_go(ssh_device.NAME)
        self._until(lambda: self._plant.ssh.ran()[mark] > 0, "the job has run")
        self._plant.hold(SITE)
        self._coordinator.went_back(Gap(since, time.monotonic(), whole=True))
        put_back(copy, self._plant.state_of(SITE))
        self._plant.let_go(SITE)
        self._until(lambda: self._plant.answers(SITE), "the gateway answers")
        self._named(lambda look: look.says("twins", "fenced") or look.says("store"), "twins: this gateway is fenced")
        self._unfence()
        self._acknowledge()

    def _clone(self) -> None:
        """Two gateways run from one folder, both with a job that waits for one device."""
        mark = self._waiting_job()
        since, copy = self._copied()
        self._plant.let_go(SITE)
        self._until(self._connected, "the gateway is connected")
        self._start_clone(copy)
        self._coordinator.went_back(Gap(since, time.monotonic(), copied=True))
        self._named(lambda look: look.says("twins"), "twins: another gateway with a copy of this store")
        self._plant.let_go(ssh_device.NAME)
        self._until(lambda: self._plant.ssh.ran()[mark] > 0, "the job has run")
        self._over.wait()
        self._plant.kill_now(CLONE)
        self._unfence()

    # --- steps ---------------------------------------------------------------------------------------------------

    def _waiting_job(self) -> str:
        """A job that is on the gateway's disk, and waits for a device that is away."""
        mark = f"copy-{self._number}"
        self._plant.hold(ssh_device.NAME)
        self._until(self._known_to_be_away, "the gateway knows that the device is away", every=1.0)
        job = {
            "tgt": ssh_device.NAME, "tgt_type": "glob", "fun": "cmd.run", "arg": [ssh_device.leaves(mark)],
            "late": "run", "run_limit": 20.0, "expires_seconds": EXPIRES_SECONDS,
        }  # fmt: skip
        answered = ask(self._plant.socket_of(MASTERS[0]), "/jobs", job)
        jid = str(answered.body.get("jid", ""))
        self._coordinator.ordered(MASTERS[0], jid, answered.fate, mark)
        if answered.fate != "accepted":
            raise ValueError(f"{MASTERS[0]} does not take the job: {answered.body}")
        self._until(lambda: self._site_knows(jid), "the gateway has the job")
        return mark

    def _known_to_be_away(self) -> bool:
        """A job that finds nobody is how the gateway gets to know."""
        ask(self._plant.socket_of(SITE), "/jobs", {"tgt": ssh_device.NAME, "tgt_type": "glob", "fun": "test.ping"})
        return bool((self._plant.station_view(SITE).get("ssh") or {}).get("away"))

    def _site_knows(self, jid: str) -> bool:
        with closing(sqlite3.connect(f"file:{self._plant.store_of(SITE)}?mode=ro", uri=True, timeout=5)) as store:
            return store.execute(JOB.format(jid)).fetchone() is not None

    def _copied(self) -> tuple[float, Path]:
        """Kill the gateway and copy its folder; when, and where the copy is."""
        self._plant.hold(SITE)
        copy = self._plant.folder / f"copy-{self._number}"
        shutil.copytree(self._plant.state_of(SITE), copy)
        return time.monotonic(), copy

    def _start_clone(self, copy: Path) -> None:
        settings = json.loads((self._plant.folder / f"{SITE}.yaml").read_text())
        socket = self._plant.socket_of(CLONE)
        ports = {"port": BROKER_PORT + CLONE_PORTS, "enroll_port": ENROLL_PORT + CLONE_PORTS}
        settings |= {"state_dir": str(copy), "socket": str(socket), "broker": {**settings["broker"], **ports}}
        path = self._plant.folder / f"{CLONE}.yaml"
        path.write_text(json.dumps(settings), encoding="utf-8")
        self._plant.start(CLONE, ["gateway", "run", "--config", str(path)])

    def _connected(self) -> bool:
        links = (self._plant.station_view(SITE).get("uplink") or {}).get("links", [])
        return len(links) == len(MASTERS) and all(link["state"] == "connected" for link in links)

    def _unfence(self) -> None:
        """Let the gateway in at each master that has fenced it, until all have."""

        def let_in() -> bool:
            if self._connected():
                return True
            look = self._watch.look()
            for master in MASTERS:
                if any(f"{master}" in link["address"] and "fenced" in link["last_error"] for link in look.links):
                    # What the link says may be from before the master let it in.
                    with suppress(NotFound):
                        self._plant.stations[master].unfence_site(SITE)
            return False

        self._until(let_in, "the masters let the gateway in", every=1.0)

    def _acknowledge(self) -> None:
        """An operator has seen that something is missing."""
        done = self._plant.command("spool", "acknowledge", station=SITE)
        if done.status == 2 and "no such command" not in done.error.lower():
            raise ValueError(f"spool acknowledge: {done.error}")

    def _named(self, holds: Callable[[Look], bool], words: str) -> None:
        last = Look()

        def seen() -> bool:
            nonlocal last
            last = self._watch.look()
            return holds(last)

        try:
            self._until(seen, words, every=0.5)
        except ValueError:
            told = "; ".join(f"{each.check}: {each.finding}" for each in last.findings if each.severity != "ok")
            self._watch.findings.append(
                Finding("not_named", "check did not name a fault while it lasted", [f"{self._fault}, {words}: {told}"])
            )

    def _until(self, probe: Callable[[], bool], what: str, every: float = PAUSE_SECONDS) -> None:
        deadline, pause = time.monotonic() + STEP_SECONDS, threading.Event()
        while not probe():
            if time.monotonic() > deadline:
                raise ValueError(f"gave up after {STEP_SECONDS:.0f} s waiting until {what}")
            pause.wait(every)

    def _finding(self, words: str) -> None:
        self._watch.findings.append(Finding("script", "a fault could not be acted out", [f"{self._fault}: {words}"]))


def counted(store: Path) -> tuple[dict[str, list[Any]], Position]:
    """Rows of each table and the ledger, and how far the store is, as a start now would find it. It reads a copy."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / store.name
        for path in (store, store.with_name(f"{store.name}-wal")):
            if path.exists():
                shutil.copy(path, copy.with_name(path.name))
        with closing(sqlite3.connect(copy)) as rows:
            tables = [name for (name,) in rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            found = {name: rows.execute(f"SELECT count(*) FROM {name}").fetchall() for name in tables}
            return {**found, LEDGER: rows.execute(f"SELECT * FROM {LEDGER}").fetchall()}, position(rows)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What two counts do not have in common."""
    return "; ".join(f"{name} {found} {after.get(name)}" for name, found in before.items() if found != after.get(name))


def remove_log(store: Path) -> None:
    """The log is not there."""
    store.with_name(f"{store.name}-wal").unlink(missing_ok=True)


def cut_log(store: Path) -> None:
    """The last half of what the log holds is gone; old frames may follow (sqlite.org/fileformat2)."""
    path = store.with_name(f"{store.name}-wal")
    content = path.read_bytes() if path.exists() else b""
    if len(content) < LOG_HEADER.size:
        return
    _, _, page, _, first, second, _, _ = LOG_HEADER.unpack_from(content)
    size = FRAME_HEADER.size + page
    live = 0
    while (place := LOG_HEADER.size + live * size) + size <= len(content):
        if FRAME_HEADER.unpack_from(content, place)[2:4] != (first, second):
            break
        live += 1
    os.truncate(path, LOG_HEADER.size + live // 2 * size)


def put_back(copy: Path, state: Path) -> None:
    """The folder is as it was when it was copied; it stays the same folder, which is a file system of its own."""
    for entry in state.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(copy, state, dirs_exist_ok=True)
