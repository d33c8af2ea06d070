"""What flows through the system while it is broken: events, jobs and cancels, each with an id.

Only an answer counts: a request that was answered with success is accepted, one that was refused is not there, and one
that was never answered is either.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gateway.cli.client import UnixConnection
from tests.chaos import ssh_device
from tests.chaos.coordinator import Coordinator
from tests.chaos.plant import MASTERS, SITE

ANSWER_SECONDS = 20.0
EVENT_PAUSE_SECONDS = 0.4
JOB_PAUSE_SECONDS = 2.5
LANES = (("e", ""), ("e", ""), ("e", ""), ("u", "alarm/"), ("t", "telemetry/"), ("s", "state/"))
"""What an event is to the spool, in its id and in its tag: history, urgent, telemetry, or a state."""

STATES = 3
SSH_SHARE = 0.3
"""Of the jobs of masters, how many leave a mark on the SSH device."""

BATCHES = (1, 1, 2, 5, 20)
RUN_SECONDS = 15.0
SHORTEST_EXPIRY, LONGEST_EXPIRY = 10.0, 45.0

Fate = Literal["accepted", "refused", "unknown"]


@dataclass(frozen=True)
class Answered:
    """What became of a request."""

    fate: Fate
    body: dict[str, Any]


def ask(socket: Path, path: str, body: Any) -> Answered:
    """One POST to a station."""
    content = json.dumps(body).encode()
    try:
        with closing(UnixConnection(socket, ANSWER_SECONDS)) as connection:
            try:
                connection.connect()
            except OSError:
                return Answered("refused", {"error": {"id": "no station"}})  # Nothing was sent.
            connection.request("POST", path, body=content, headers={"Content-Type": "application/json"})
            with connection.getresponse() as response:
                answer = json.loads(response.read())
                return Answered(_fate(response.status, answer), answer)
    except (OSError, http.client.HTTPException, ValueError):
        return Answered("unknown", {})


def _fate(status: int, answer: Mapping[str, Any]) -> Fate:
    if status < 300:
        return "accepted"
    # Of a commit that failed at its flush nobody knows whether it is on the disk.
    return "unknown" if str((answer.get("error") or {}).get("id", "")).startswith("store.") else "refused"


class Load:
    """The threads that ask."""

    def __init__(
        self, coordinator: Coordinator, socket_of: Callable[[str], Path], seed: int, swarms: int, seconds: float
    ) -> None:
        self._coordinator = coordinator
        self._socket_of = socket_of
        self._seed = seed
        self._swarms = swarms
        # A short run does not want to wait long for the last job.
        self._longest = max(1.5 * SHORTEST_EXPIRY, min(LONGEST_EXPIRY, seconds / 3))
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """From now on."""
        for number in range(2):
            self._thread(self._fire, f"events-{number}", str(number))
        self._thread(self._order, "jobs", "j")

    def end(self) -> None:
        """No more; returns when the last request was answered or given up."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_SECONDS)

    def _thread(self, work: Callable[[str, random.Random], None], name: str, prefix: str) -> None:
        chance = random.Random(f"{self._seed} {name}")
        thread = threading.Thread(target=work, args=(prefix, chance), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _fire(self, prefix: str, chance: random.Random) -> None:
        number = 0
        while not self._stop.wait(chance.uniform(0.2, 1.8) * EVENT_PAUSE_SECONDS):
            lane, before = chance.choice(LANES)
            ids = [f"{prefix}{lane}-{number + each:07d}" for each in range(chance.choice(BATCHES))]
            number += len(ids)
            tag = f"{before}chaos/{prefix}"
            if lane == "s":
                tag += f"/{chance.randrange(STATES)}"
            events = [{"tag": tag, "data": {"id": each, "text": "x" * chance.randrange(200)}} for each in ids]
            answered = ask(self._socket_of(SITE), "/events", {"events": events})
            self._coordinator.fired(ids, answered.fate, tag if lane == "s" else "")

    def _order(self, _: str, chance: random.Random) -> None:
        number = 0
        while not self._stop.wait(chance.uniform(0.2, 1.8) * JOB_PAUSE_SECONDS):
            station, mark = chance.choice((*MASTERS, *MASTERS, SITE)), ""
            job = self._job(chance)
            if station != SITE and chance.random() < SSH_SHARE:
                number += 1
                mark = f"load-{number}"
                run = {"tgt": ssh_device.NAME, "tgt_type": "glob", "fun": "cmd.run", "arg": [ssh_device.leaves(mark)]}
                job |= run
            answered = ask(self._socket_of(station), "/jobs", job)
            jid = str(answered.body.get("jid", ""))
            self._coordinator.ordered(station, jid, answered.fate, mark)
            if answered.fate == "accepted" and chance.random() < 0.15:
                self._stop.wait(chance.uniform(0.0, 2.0))
                cancelled = ask(self._socket_of(station), f"/jobs/{jid}/cancel", {})
                self._coordinator.cancelled(jid, cancelled.fate)

    def _job(self, chance: random.Random) -> dict[str, Any]:
        tgt, tgt_type = chance.choice(
            [
                ("cam-*", "glob"),
                (f"cam-{chance.randrange(self._swarms)}*", "glob"),
                (f"cam-.*{chance.randrange(10)}$", "pcre"),
                (f"cam-{chance.randrange(self._swarms)}00-0000*", "glob"),
                ("model:dome-2", "grain"),
            ]
        )
        fun, arg = chance.choice(
            [("test.ping", []), ("test.echo", ["chaos"]), ("test.sleep", [round(chance.uniform(0.2, 4.0), 1)])]
        )
        return {
            "tgt": tgt,
            "tgt_type": tgt_type,
            "fun": fun,
            "arg": arg,
            "late": chance.choice(("run", "drop")),
            "run_limit": RUN_SECONDS,
            "expires_seconds": round(chance.uniform(SHORTEST_EXPIRY, self._longest), 1),
        }
