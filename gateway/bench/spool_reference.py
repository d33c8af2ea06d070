"""The reference of ``bench spool``: bare sqlite3, and bare ZeroMQ between two of them.

It imports nothing but Python's own library and ``zmq`` and is run as a plain script: ``sender`` keeps rows as a gateway
does and sends them up, ``collector`` keeps them as a master does. There is no loop, no second thread and no decoding;
rows as long as the product's are committed in groups as large as the product's (WAL, synchronous=FULL, the same cache),
batches as large as the product's travel with CURVE, as many under way as there.

Lines of JSON on standard input ask, and lines of JSON on standard output answer.
"""

from __future__ import annotations

import json
import marshal
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import zmq

BATCH_ITEMS = 1024
BATCHES_IN_FLIGHT = 8
KEPT_EVENTS = 100_000
PRUNE_EVERY = 5_000
ROWS = 128
TABLES = """
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, tag TEXT NOT NULL, data BLOB NOT NULL,
    stamp REAL NOT NULL, site TEXT NOT NULL);
CREATE TABLE spool (sequence INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, count INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('accepted', 0, 0), ('delivered', 0, 0), ('received', 0, 0);
"""
KEEP = "INSERT INTO events (tag, data, stamp, site) VALUES "
ADD = "INSERT INTO spool (body) VALUES "
COUNT = "UPDATE counters SET count = count + ?, bytes = bytes + ? WHERE name = ?"
READ = "SELECT sequence, body FROM spool WHERE sequence > ? ORDER BY sequence LIMIT ?"
PRUNE = "DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?"

Answer = dict[str, Any]


def opened(path: Path) -> sqlite3.Connection:
    """A fresh file."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-8000"):
        connection.execute(f"PRAGMA {pragma}")
    connection.executescript(TABLES)
    return connection


def insert(connection: sqlite3.Connection, sql: str, rows: list[tuple[Any, ...]]) -> None:
    """Rows, as many in a statement as is worth it."""
    values = f"({', '.join('?' * len(rows[0]))})"
    for place in range(0, len(rows), ROWS):
        some = rows[place : place + ROWS]
        connection.execute(sql + ", ".join([values] * len(some)), [value for row in some for value in row])


class Pruned:
    """Keeps the newest events, as the product does."""

    def __init__(self) -> None:
        self._since = 0

    def look(self, connection: sqlite3.Connection, count: int) -> None:
        """So many were added."""
        self._since += count
        if self._since >= PRUNE_EVERY:
            self._since = 0
            connection.execute(PRUNE, (KEPT_EVENTS,))


class Sender:
    """A gateway's end."""

    def __init__(self) -> None:
        self._connection: sqlite3.Connection
        self._socket: Any
        self._path: Path
        self._pruned = Pruned()
        self._accepted = 0
        self._row: tuple[tuple[Any, ...], bytes]

    def open(self, folder: str, address: str, key: str, tag: int, data: int, body: int) -> Answer:
        """The file, the connection, and what a row of it is."""
        self._path = Path(folder) / "sender.sqlite"
        self._connection = opened(self._path)
        self._row = (("t" * tag, os.urandom(data), 1.5, "bench"), os.urandom(body))
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        public, secret = zmq.curve_keypair()
        self._socket.curve_publickey, self._socket.curve_secretkey = public, secret
        self._socket.curve_serverkey = key.encode()
        self._socket.connect(address)
        return {}

    def accept(self, count: int, each: int) -> Answer:
        """So many rows, so many in a commit."""
        event, body = self._row
        done = 0
        begun = time.perf_counter()
        while done < count:
            some = min(each, count - done)
            self._connection.execute("BEGIN IMMEDIATE")
            insert(self._connection, KEEP, [event] * some)
            insert(self._connection, ADD, [(body,)] * some)
            self._connection.execute(COUNT, (some, some * len(body), "accepted"))
            self._connection.execute("COMMIT")
            self._pruned.look(self._connection, some)
            done += some
        seconds = time.perf_counter() - begun
        self._accepted += count
        rows = self._connection.execute("SELECT count FROM counters WHERE name = 'accepted'").fetchone()[0]
        return {"ok": count if rows == self._accepted else rows, "seconds": seconds}

    def drain(self) -> Answer:
        """Everything goes up, and is deleted when it is confirmed."""
        begun = time.perf_counter()
        sent = confirmed = 0
        under_way: list[int] = []
        marks: list[tuple[float, int]] = []
        while confirmed < self._accepted:
            while len(under_way) < BATCHES_IN_FLIGHT and sent < self._accepted:
                rows = self._connection.execute(READ, (sent, BATCH_ITEMS)).fetchall()
                self._socket.send(marshal.dumps(rows))
                sent = rows[-1][0]
                under_way.append(sent)
            last = int(self._socket.recv())
            while self._socket.poll(0):
                last = int(self._socket.recv())
            self._let_go(confirmed, last)
            confirmed = last
            under_way = [sequence for sequence in under_way if sequence > confirmed]
            marks.append((time.perf_counter(), confirmed))
        (left,) = self._connection.execute("SELECT count(*) FROM spool").fetchone()
        return {"ok": self._accepted - left, "seconds": marks[-1][0] - begun}

    def _let_go(self, before: int, last: int) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("DELETE FROM spool WHERE sequence <= ?", (last,))
        self._connection.execute(COUNT, (last - before, (last - before) * len(self._row[1]), "delivered"))
        self._connection.execute("COMMIT")


class Collector:
    """A master's end."""

    def __init__(self) -> None:
        self._connection: sqlite3.Connection
        self._socket: Any
        self._event: tuple[Any, ...]

    def open(self, folder: str, tag: int, data: int) -> Answer:
        """The file and the door."""
        self._connection = opened(Path(folder) / "collector.sqlite")
        self._event = ("t" * tag, os.urandom(data), 1.5, "bench")
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        public, self._socket.curve_secretkey = zmq.curve_keypair()
        self._socket.curve_server = True
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        return {"address": f"tcp://127.0.0.1:{port}", "key": public.decode()}

    def collect(self, count: int) -> Answer:
        """Each batch is a commit, and then confirmed. What is kept of an item is as long as what the product keeps."""
        pruned = Pruned()
        done = 0
        while done < count:
            sender, frame = self._socket.recv_multipart()
            rows: list[tuple[int, bytes]] = marshal.loads(frame)  # noqa: S302 - by the process beside this one
            self._connection.execute("BEGIN IMMEDIATE")
            insert(self._connection, KEEP, [self._event] * len(rows))
            self._connection.execute(COUNT, (len(rows), rows[-1][0], "received"))
            self._connection.execute("COMMIT")
            pruned.look(self._connection, len(rows))
            done = rows[-1][0]
            self._socket.send_multipart([sender, b"%d" % done])
        (received,) = self._connection.execute("SELECT count FROM counters WHERE name = 'received'").fetchone()
        return {"ok": received}


def main() -> int:
    """The program; returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = Sender() if sys.argv[1] == "sender" else Collector()
    for line in sys.stdin:
        asked = json.loads(line)
        answer = getattr(end, asked.pop("do"))(**asked)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
