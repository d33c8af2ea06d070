"""Calls that bring files, as salt-cp makes them, or a text for a terminal, and what must come of them."""

from __future__ import annotations

import base64
import gzip

from tests.peers.function_case import Case

NEWS = base64.b64encode(gzip.compress(b"one\n", mtime=0)).decode()
MORE = base64.b64encode(b"two\n").decode()
CUT = base64.b64encode(gzip.compress(b"one\n", mtime=0)[:-9]).decode()
BOMB = base64.b64encode(gzip.compress(bytes(5 * 1024 * 1024), mtime=0)).decode()
PLAIN = {"compressed": False}

CASES = (
    Case(
        "cp.recv",
        ({"/etc/hostname": "cam-7\n"}, "{root}/x"),
        value={"{root}/x": True},
        leaves=("cat x; stat -c %a x", "cam-7\n644\n"),
    ),
    Case("cp.recv", ({"/etc/x": "new"}, "{root}/x"), given="echo old > x", leaves=("cat x", "new")),
    Case(
        "cp.recv",
        ({"/a/one": "1", "/b/two": "2"}, "{root}/in"),
        given="mkdir in",
        value={"{root}/in/one": True, "{root}/in/two": True},
        leaves=("cd in; cat one two", "12"),
    ),
    Case("cp.recv", ({"/a/one": b"\xff\x00"}, "{root}/x"), leaves=("od -An -tx1 x", " ff 00\n"), salt="no"),
    Case("cp.recv", ({"/a/one": "1"}, "{root}/absent/x"), outcome="failed", value="Destination unavailable"),
    Case(
        "cp.recv",
        ({"/a/one": "1", "/a/two": "2"}, "{root}/in"),
        given="mkdir -p in/one",
        outcome="failed",
        value={"{root}/in/one": False, "{root}/in/two": True},
        leaves=("cat in/two", "2"),
    ),
    Case("cp.recv", ({"/a/one": 5}, "{root}/x"), outcome="failed", why="is a int", salt="no"),
    Case(
        "cp.recv_chunked",
        ("{root}/new/x", NEWS, False, True, 0o600),
        value=True,
        leaves=("cat new/x; stat -c %a new/x", "one\n600\n"),
    ),
    Case("cp.recv_chunked", ("{root}/x", MORE, True), PLAIN, given="echo one > x", leaves=("cat x", "one\ntwo\n")),
    Case("cp.recv_chunked", ("{root}/x", MORE), PLAIN, given="echo old > x", leaves=("cat x", "two\n")),
    Case("cp.recv_chunked", ("{root}/in/side", None), value=True, leaves=("ls -d in/side", "in/side\n")),
    Case("cp.recv_chunked", ("{root}/x", "no base64!"), outcome="failed", why="no piece of a file", salt="no"),
    Case("cp.recv_chunked", ("{root}/x", CUT), outcome="failed", why="cut, or larger", leaves=("ls", ""), salt="no"),
    Case("cp.recv_chunked", ("{root}/x", BOMB), outcome="failed", why="cut, or larger", leaves=("ls", ""), salt="no"),
    Case("cp.recv_chunked", ("{root}/in", MORE), PLAIN, given="mkdir in", outcome="failed", salt="shape"),
    Case("cmd.tty", ("tty-absent-0",), outcome="failed", why="is no terminal", salt="no"),
    Case(
        "cmd.tty",
        ("ttyabsent0",),
        outcome="failed",
        value={"Error": "Echoing to /dev/ttyabsent0 returned error"},
        salt="no",
    ),
    Case("cmd.tty", ("pts/../../etc/x",), outcome="failed", salt="no"),
    Case("cmd.tty", ("console",), outcome="failed", value={"Error": "The specified device is not a valid TTY"}),
)
