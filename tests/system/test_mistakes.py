"""A station that cannot start says what to mend, ends with status 6 or 1, and leaves alone whoever runs already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.broker import free_port
from tests.peers.finished import Finished
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

CONFIGURATION = 6
IN_USE = 1
"""What another process holds may be free at the next start."""


@pytest.fixture(scope="module")
def running() -> Iterator[System]:
    """A gateway, a master and an agent that each mistake must leave alone."""
    with whole_system() as system:
        system.add_master()
        system.add_gateway("lisbon", "central")
        system.join("lisbon")
        system.add_agent("door-1", "lisbon")
        system.present(1)
        yield system
        # Nothing that was tried has disturbed it.
        assert system.command("run", "*", "test.ping", "--json", status=0).json("summary")[0]["counts"] == {"ok": 1}


def start(system: System, role: str, text: str, status: int = CONFIGURATION) -> Finished:
    path = system.folder / "wrong.yaml"
    path.write_text(text)
    return system.command(role, "run", "--config", str(path), status=status)


@pytest.mark.parametrize(
    ("role", "text", "line", "found", "allowed", "nearest"),
    [
        ("master", "name: x\nstate_dirr: /tmp/x\n", 2, "state_dirr", "state_dir", "did you mean 'state_dir'?"),
        ("gateway", "name: x\nbroker:\n  prot: 1884\n", 3, "broker.prot", "port", "did you mean 'port'?"),
        ("agent", "site: x\nserial: y\ngrain: {}\n", 3, "grain", "grains", "did you mean 'grains'?"),
        ("gateway", "name: x\nbroker:\n  mode: managd\n", 3, "managd", "managed", "did you mean 'managed'?"),
        ("gateway", "name: x\nbroker: {port: 70000}\n", 2, "70000", "65535", ""),
        ("master", "name: x\nlog_level: loud\n", 2, "loud", "debug", ""),
        ("master", "name: a/b\n", 1, "a/b", "", ""),
        ("agent", "site: x\nbroker: {port: '1884'}\n", 2, "1884", "", "without quotes"),
    ],
)
def test_a_mistake_in_the_settings_is_named_with_its_line_and_what_is_right(
    running: System, role: str, text: str, line: int, found: str, allowed: str, nearest: str
) -> None:
    finished = start(running, role, text)
    assert finished.out == ""
    assert f"wrong.yaml:{line}" in finished.error
    said = {name: rest for name, _, rest in (each.strip().partition(":") for each in finished.error.splitlines())}
    assert found in said["found"]
    assert allowed in said["allowed"]
    assert nearest in said.get("try", "")


@pytest.mark.parametrize(
    ("role", "text"),
    [
        ("master", "name: [\n"),
        ("gateway", "- a\n- b\n"),
        ("agent", "'"),
        ("master", "\0"),
        ("gateway", "name: &a [*a]\n"),
    ],
)
def test_what_is_no_settings_file_is_refused(running: System, role: str, text: str) -> None:
    assert "wrong.yaml" in start(running, role, text).error


def test_a_file_that_is_not_there_is_named(running: System) -> None:
    finished = running.command("gateway", "run", "--config", "/nowhere/gateway.yaml", status=CONFIGURATION)
    assert "/nowhere/gateway.yaml" in finished.error


def test_a_master_has_no_masters(running: System) -> None:
    key = running.stations["central"].station().public_key
    finished = start(running, "master", f"name: x\nmasters: [{{address: 'tcp://127.0.0.1:1', key: '{key}'}}]\n")
    assert "as a gateway" in finished.error


def test_two_stations_do_not_share_a_state_folder(running: System) -> None:
    text = f"name: x\nstate_dir: {running.folder}/lisbon\nsocket: {running.folder}/x.sock\n"
    finished = start(running, "master", text, IN_USE)
    assert "another station uses this state folder" in finished.error
    assert f"{running.folder}/lisbon" in finished.error


def test_two_agents_do_not_share_a_state_folder(running: System) -> None:
    finished = start(running, "agent", f"site: lisbon\nserial: door-2\nstate_dir: {running.folder}/door-1\n", IN_USE)
    assert "another agent" in finished.error


def test_an_agent_that_has_nothing_to_join_by_is_told_what_it_needs(running: System) -> None:
    finished = start(running, "agent", f"serial: door-3\nstate_dir: {running.folder}/door-3\n")
    assert "site, broker.host, broker.port, root" in finished.error
    assert "outstation-agent join TOKEN" in finished.error


def test_two_stations_do_not_share_a_socket(running: System) -> None:
    text = f"name: x\nstate_dir: {running.folder}/x\nsocket: {running.folder}/lisbon.sock\n"
    text += "sites: {listen: 'tcp://127.0.0.1:*'}\n"
    finished = start(running, "master", text, IN_USE)
    assert "another station answers" in finished.error
    assert running.stations["lisbon"].station().name == "lisbon"


def test_a_port_for_sites_that_is_taken_is_named(running: System) -> None:
    listen = running.stations["central"].station().listen
    text = f"name: x\nstate_dir: {running.folder}/x\nsocket: {running.folder}/x.sock\nsites: {{listen: '{listen}'}}\n"
    finished = start(running, "master", text, IN_USE)
    assert "sites.listen" in finished.error
    assert str(listen) in finished.error


@pytest.mark.parametrize("door", ["port", "enroll_port"])
def test_a_port_for_the_broker_that_is_taken_is_named(running: System, door: str) -> None:
    taken = running.ports["lisbon"]
    ports = {"port": free_port(), "enroll_port": free_port(), door: taken}
    text = f"name: x\nstate_dir: {running.folder}/x\nsocket: {running.folder}/x.sock\nbroker: {json.dumps(ports)}\n"
    finished = start(running, "gateway", text, IN_USE)
    assert f"broker.{door} {taken}" in finished.error


def test_a_broker_inside_the_station_serves_nobody_but_this_machine(running: System) -> None:
    text = f"name: x\nstate_dir: {running.folder}/x\nsocket: {running.folder}/x.sock\n"
    finished = start(running, "gateway", f"{text}broker: {{mode: embedded, host: 0.0.0.0, port: {free_port()}}}\n")
    assert "broker.host" in finished.error


@pytest.mark.parametrize(
    "damage", ["", "public x\nsecret y\n", "\x00\x01", "public " + "a" * 40 + "\nsecret " + "b" * 40]
)
def test_a_damaged_key_file_is_named_and_not_replaced(running: System, damage: str) -> None:
    folder = running.folder / "damaged"
    folder.mkdir(exist_ok=True)
    (folder / "curve.key").write_text(damage)
    finished = start(running, "master", f"name: x\nstate_dir: {folder}\nsocket: {running.folder}/x.sock\n")
    assert str(folder / "curve.key") in finished.error
    assert (folder / "curve.key").read_text() == damage


def test_a_folder_that_cannot_be_made_is_named(running: System, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finished = start(running, "master", f"name: x\nstate_dir: {tmp_path}/file/below\n")
    assert "state_dir" in finished.error


def test_a_socket_path_that_is_too_long_is_named(running: System) -> None:
    text = f"name: x\nstate_dir: {running.folder}/x\nsocket: {running.folder}/{'x' * 100}.sock\n"
    finished = start(running, "master", f"{text}sites: {{listen: 'tcp://127.0.0.1:*'}}\n")
    assert "socket" in finished.error
    assert "107" in finished.error


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["rum"], 2, "run"),
        (["run", "*"], 2, "usage"),
        (["run", "-E", "[", "test.ping"], 2, "["),
        (["run", "-C", "G@ and", "test.ping"], 2, "a grain target is empty"),
        (["jobs", "show", "1"], 2, "no job 1"),
        (["jobs", "cancel", "../../x"], 2, "../../x"),
        (["keys", "accept", "nowhere"], 2, "nowhere"),
        (["--socket", "/nowhere/x.sock", "check"], 7, "/nowhere/x.sock"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_error_and_its_status(
    running: System, words: list[str], status: int, said: str
) -> None:
    finished = running.command(*words, status=status)
    assert finished.out == ""
    assert finished.error.startswith("error: ")
    assert said in finished.error
