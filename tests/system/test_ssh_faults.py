"""What goes wrong with a device over SSH has its reason, and devices that are well beside it notice nothing of it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from gateway.devices.ssh_device import host_key_fingerprint
from tests.peers.finished import Finished
from tests.peers.ssh_beds import SshBed, openssh
from tests.peers.system import System

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

WELL = {"agent", "good", "dying", "hanging", "flooding"}
AWAY = {
    "other-key": "host_key_changed: SHA256:",
    "other-word": "login_refused: ",
    "garbage": "not_ssh: ",
    "silent": "timed_out: no answer within 10 s",
    "nobody": "connection_refused: Connection refused",
}
"""What is not reached, and the reason that its table begins with."""

OTHER_KEY = "SHA256:" + "A" * 43


@contextmanager
def speaking(words: bytes) -> Iterator[int]:
    """A port where something listens that says this, and nothing more."""
    heard: list[socket.socket] = []

    def answer() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            heard.append(connection)
            connection.sendall(words)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=answer)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in heard:
                connection.close()


def add(system: System, name: str, port: int, *login: str, fingerprint: str = OTHER_KEY) -> None:
    words = ("--ssh", f"root@127.0.0.1:{port}", *login, "--fingerprint", fingerprint, "--poll", "5")
    system.command("devices", "add", name, *words, station="lisbon", status=0)


def rows(finished: Finished) -> dict[str, tuple[str, str]]:
    """The words of ``outstation run``: outcome and what follows, by device."""
    lines = [line.split(None, 2) for line in finished.out.splitlines() if not line.startswith(" ")]
    return {name: (outcome, "".join(rest)) for name, outcome, *rest in lines}


@pytest.fixture
def site(system: System, tmp_path: Path) -> Iterator[dict[str, SshBed]]:
    system.add_master()
    system.add_gateway("lisbon", "central", ssh={"connect_seconds": 10, "keepalive_seconds": 3})
    system.join("lisbon")
    (tmp_path / "word").write_text("not the one\n")
    with ExitStack() as stack:
        beds = {name: stack.enter_context(openssh(tmp_path / name)) for name in ("good", "dying", "hanging")}
        for name, bed in {**beds, "flooding": beds["good"]}.items():
            add(
                system, name, bed.port, "--key", str(bed.client_key), fingerprint=host_key_fingerprint(bed.host_keys[0])
            )
        good = beds["good"]
        other = beds["dying"]
        add(
            system,
            "other-key",
            other.port,
            "--key",
            str(good.client_key),
            fingerprint=host_key_fingerprint(other.host_keys[0]),
        )
        # Another machine answers where that one was.
        system.command(
            "devices", "set", "other-key", "--ssh", f"root@127.0.0.1:{good.port}", station="lisbon", status=0
        )
        word = ("--password-file", str(tmp_path / "word"))
        add(system, "other-word", good.port, *word, fingerprint=host_key_fingerprint(good.host_keys[0]))
        add(system, "garbage", stack.enter_context(speaking(b"SSH-2.0-x\r\n" + bytes(range(256)) * 400)), *word)
        add(system, "silent", stack.enter_context(speaking(b"")), *word)
        add(system, "nobody", 1, *word)
        system.add_agent("agent", "lisbon")
        system.present(len(WELL))
        yield beds


def others_are_well(system: System, *names: str) -> None:
    """A job for all the others is over, whatever those do."""
    others = ",".join(sorted(WELL - set(names)))
    ended = system.ended("central", system.issue("central", others, "test.ping", tgt_type="list"))
    assert ended.words() == dict.fromkeys(WELL - set(names), "ok")


def test_each_fault_has_its_reason_and_touches_no_other_device(system: System, site: dict[str, SshBed]) -> None:
    def why(name: str) -> str:
        shown = json.loads(system.command("devices", "show", name, "--json", station="lisbon", status=0).out)
        return str(shown["ssh"]["why"])

    for name, reason in AWAY.items():
        system.until(lambda: why(name).startswith(reason), f"{name} is known to be away: {reason}")  # noqa: B023 - called at once
    finished = system.command("run", "*", "test.ping", status=1)
    told = rows(finished)
    assert told.keys() == WELL | AWAY.keys()
    assert {name: told[name] for name in WELL} == dict.fromkeys(WELL, ("ok", "true"))
    for name, reason in AWAY.items():
        assert told[name][0] == "unreachable"
        assert reason in told[name][1]
    assert finished.error.endswith("5 ok, 5 unreachable\n")
    assert not site["good"].running("other-word")

    a_flood(system, site["good"])
    a_death_under_a_write(system, site["dying"])
    a_hang(system, site["hanging"])


def a_flood(system: System, bed: SshBed) -> None:
    jid = system.issue("central", "flooding", "cmd.run", "echo begun >/tmp/begun; yes", run_limit=20.0)
    system.until(bed.inside("/tmp/begun").exists, "it floods")
    others_are_well(system, "flooding")
    assert system.job("central", jid).state != "closed", "they did not wait for its end"
    flood = system.ended("central", jid).by_device()["flooding"]
    assert (flood.outcome, flood.why) == ("timed_out", "stopped after 20 s")
    cut = system.ended("central", system.issue("central", "flooding", "cmd.run", "yes | head -c 3000000"))
    value = cut.by_device()["flooding"].value
    assert value.startswith("y\ny\n")
    assert "more bytes were cut" in value
    assert len(value) < 140_000


def a_death_under_a_write(system: System, bed: SshBed) -> None:
    def write(text: str, *names: str) -> str:
        return system.issue("central", ",".join(names), "file.write", "/home/f", text, tgt_type="list")

    assert system.ended("central", write("old", "dying")).words() == {"dying": "ok"}
    # Its disk takes the new file, and before that has its name the power goes.
    with bed.program("sync", "#!/bin/sh\ntouch /home/here; exec sleep 1002\n"):
        jid = write("new", "dying", "good")
        system.until(bed.inside("/home/here").exists, "it is between write and rename")
        others_are_well(system, "dying")
        system.until(lambda: system.counts("central", jid) == {"ok": 1}, "the other has written")
        bed.power_cut()
        ended = system.ended("central", jid).by_device()
    assert (ended["good"].outcome, ended["dying"].outcome) == ("ok", "unknown")
    assert "broke" in (ended["dying"].why or ""), ended["dying"]
    assert bed.inside("/home/f").read_text() == "old\n"
    system.until(lambda: system.is_here("dying"), "it is back")
    assert system.ended("central", write("new", "dying")).words() == {"dying": "ok"}
    assert bed.inside("/home/f").read_text() == "new\n"
    assert {path.name for path in bed.inside("/home").iterdir()} == {"camera", "f", "here"}


def a_hang(system: System, bed: SshBed) -> None:
    jid = system.issue("central", "hanging", "cmd.run", "echo up; sleep 1003")
    system.until(lambda: bed.running("sleep\x001003"), "it runs")
    bed.freeze()
    others_are_well(system, "hanging")
    hung = system.ended("central", jid).by_device()["hanging"]
    assert hung.outcome == "unknown"
    assert hung.why
    finished = system.command("run", "-L", "hanging,good", "test.ping", status=None)
    assert rows(finished)["good"] == ("ok", "true")
    bed.thaw()
    bed.power_cut()

    def answers() -> bool:
        finished = system.command("run", "hanging", "test.ping", status=None)
        return rows(finished)["hanging"] == ("ok", "true")

    # That it is here was never taken back while it hung: only an answer says that it is there again.
    system.until(answers, "it is back")
    others_are_well(system)
