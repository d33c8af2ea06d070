"""The first hour of a gateway: installed and not configured, joined while it runs, and at work; all by one process."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path

import pytest
import yaml
import zmq

from device_agent.settings import load, says
from device_agent.trust.token import SiteToken
from gateway.cli.client import StationClient
from gateway.cli.key_client import KeyClient
from gateway.config import StationSettings
from gateway.fleet.state_folder import at_rest
from gateway.rehearsal import join_token, program
from tests.peers.broker import free_port
from tests.peers.finished import Finished
from tests.peers.notified import played_supervisor
from tests.peers.system import ROOT, System
from tests.peers.unjoined import Unjoined, unjoined
from upstream.curve import key_bytes

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


def token_of(system: System) -> str:
    """What ``outstation sites token`` prints on the master."""
    return system.command("sites", "token", status=0).out.strip("\n")


def accept(system: System, site: str) -> None:
    """Accept the site on the master, as soon as it has knocked, by the fingerprint that the gateway shows."""
    keys = KeyClient(system.stations["central"])
    system.until(lambda: [key for key in keys.find(site, "site") if key.state == "pending"], f"{site} has knocked")
    shown = system.stations["gateway"].station().fingerprint
    system.command("keys", "accept", site, "--fingerprint", shown, status=0)


def joining(gateway: Unjoined, *words: str) -> tuple[threading.Thread, list[Finished]]:
    """A join that waits in the background, and where its end is put."""
    ended: list[Finished] = []
    thread = threading.Thread(target=lambda: ended.append(gateway.type(*words)))
    thread.start()
    return thread, ended


def test_a_gateway_that_was_told_nothing_runs_and_says_what_to_do(system: System) -> None:
    gateway = unjoined(system)
    with played_supervisor() as supervisor:
        gateway.start(supervisor.environment(watchdog_seconds=20.0))
        system.until(lambda: supervisor.ready and supervisor.fed() > 1, "systemd is told, and the watchdog fed")
        assert supervisor.status == "not joined yet: sudo outstation gateway join"
        checked_while_watched = gateway.type("TOKEN", status=2)
        assert "no name yet" in checked_while_watched.error
    assert "not joined yet: sudo outstation gateway join" in gateway.log()
    checked = system.command("check", station="gateway", status=1)
    assert "this gateway has not joined yet" in checked.out
    assert "try:   sudo outstation gateway join" in checked.out
    asked = system.command("run", "*", "test.ping", station="gateway", status=1)
    assert "has not joined yet" in asked.error
    assert "try:     sudo outstation gateway join" in asked.error
    assert gateway.stop() == 0


def test_an_address_for_cameras_that_this_machine_has_not_is_told_and_no_refusal(system: System) -> None:
    gateway = unjoined(system)
    curve = key_bytes(zmq.curve_keypair()[0].decode())
    token = SiteToken(bytes(range(16)), curve, ("tcp://203.0.113.7:4510",)).text()
    told = gateway.type(token, "--site", "lisbon", "--broker-host", "192.0.2.10", "--no-wait", status=0)
    assert "warning: 192.0.2.10 is no address of this machine" in told.error
    assert yaml.safe_load(gateway.piece.read_text())["broker"] == {"host": "192.0.2.10"}
    right = gateway.type(token, "--site", "lisbon", "--broker-host", "127.0.0.1", "--no-wait", status=0)
    assert "no address of this machine" not in right.error
    assert yaml.safe_load(gateway.piece.read_text())["broker"] == {"host": "127.0.0.1"}


def test_it_joins_while_it_runs_and_takes_a_job_to_a_camera_without_a_restart(system: System) -> None:
    system.add_master("central")
    gateway = unjoined(system)
    gateway.start()
    pid = gateway.pid
    thread, ended = joining(gateway, token_of(system), "--site", "lisbon", "--broker-host", "127.0.0.1")
    accept(system, "lisbon")
    thread.join()
    (done,) = ended
    assert done.status == 0, done
    fingerprint = system.stations["gateway"].station().fingerprint
    # It says this while nobody has accepted it, which may be over before it looks.
    if "has heard of this gateway" in done.error:
        assert f"outstation keys accept lisbon --fingerprint {fingerprint}" in done.error
    assert "accepted: lisbon belongs to fleet" in done.error
    assert (gateway.pid, gateway.name()) == (pid, "lisbon")
    assert yaml.safe_load(gateway.piece.read_text()) == {"name": "lisbon", "broker": {"host": "127.0.0.1"}}
    assert gateway.piece.stat().st_mode & 0o777 == 0o644

    token = system.folder / "cam.token"
    token.write_text(join_token(system.stations["gateway"], uses=1, name="cam-1"))
    agent = {"serial": "cam-1", "token_file": str(token), "state_dir": str(system.folder / "cam-1")}
    (system.folder / "cam-1.yaml").write_text(json.dumps(agent))
    system.start("cam-1", ["agent", "run", "--config", str(system.folder / "cam-1.yaml")])
    system.until(lambda: system.is_here("cam-1"), "the master knows the camera")
    assert system.command("run", "cam-1", "test.ping", status=0).out == "cam-1\tok\ttrue\n"

    # Told once more, everything stays as it is: the devices, the process and the settings.
    again = gateway.type(token_of(system), status=0)
    assert "lisbon" in again.out
    system.children["gateway"].process.send_signal(signal.SIGHUP)
    assert system.command("run", "cam-1", "test.ping", status=0).out == "cam-1\tok\ttrue\n"
    assert gateway.pid == pid
    resumed = gateway.type(status=0)
    assert "joined lisbon" not in resumed.out
    other = gateway.type(token_of(system), "--site", "porto", status=2)
    assert "the gateway of another site" in other.error
    assert gateway.name() == "lisbon"


def test_who_stops_waiting_stops_nothing_and_can_wait_again(system: System) -> None:
    system.add_master("central")
    gateway = unjoined(system)
    gateway.start()
    given_up = gateway.type(token_of(system), "--site", "lisbon", "--wait", "1s", status=1)
    assert "wait again:  outstation gateway join" in given_up.error
    assert gateway.name() == "lisbon"
    thread, ended = joining(gateway)
    accept(system, "lisbon")
    thread.join()
    assert (ended[0].status, "accepted: lisbon" in ended[0].error) == (0, True), ended


def test_a_master_that_turns_it_away_is_told_with_what_to_do(system: System) -> None:
    system.add_master("central")
    gateway = unjoined(system)
    gateway.start()
    thread, ended = joining(gateway, token_of(system), "--site", "lisbon")
    keys = KeyClient(system.stations["central"])
    system.until(lambda: [key for key in keys.find("lisbon", "site") if key.state == "pending"], "lisbon has knocked")
    system.command("keys", "reject", "lisbon", status=0)
    thread.join()
    assert ended[0].status == 8, ended
    assert "turns this gateway away" in ended[0].error
    assert "on the master: outstation keys accept lisbon --fingerprint" in ended[0].error


def test_a_wrong_address_and_a_wrong_key_are_told_apart(system: System) -> None:
    master = system.add_master("central").station()
    gateway = unjoined(system)
    gateway.start()
    nowhere = f"tcp://127.0.0.1:{free_port()}"
    words = ["--site", "lisbon", "--master", nowhere, "--key", master.public_key]
    gateway.says(words, f"nothing listens at {nowhere}")
    assert master.listen is not None
    words = ["--site", "lisbon", "--master", master.listen, "--key", zmq.curve_keypair()[0].decode()]
    gateway.says(words, f"something listens at {master.listen}, and does not answer to this key")
    thread, ended = joining(gateway, "--site", "lisbon", "--master", master.listen, "--key", master.public_key)
    accept(system, "lisbon")
    thread.join()
    assert ended[0].status == 0, ended


def test_a_file_says_all_of_it_whether_the_gateway_runs_or_not_and_is_gone_when_it_was_used(system: System) -> None:
    system.add_master("central")
    gateway = unjoined(system)
    file = gateway.folder / "outstation-join.yaml"
    wish = {"site": "lisbon", "token": token_of(system), "broker": {"host": "127.0.0.1"}}
    file.write_text(yaml.safe_dump(wish))
    done = gateway.type("--from", str(file), "--no-wait", "--remove", status=0)
    assert "no station runs here" in done.error
    assert not file.exists()
    gateway.start()
    assert gateway.name() == "lisbon"
    accept(system, "lisbon")
    file.write_text(yaml.safe_dump(wish))
    thread, ended = joining(gateway, "--from", str(file), "--remove")
    thread.join()
    assert ended[0].status == 0, ended
    assert not file.exists()


def test_a_gateway_that_starts_in_this_moment_is_waited_for(system: System) -> None:
    """It has its state folder and no socket yet: here the folder is held by the test until the join has met that."""
    system.add_master("central")
    gateway = unjoined(system)
    held = at_rest(system.state_of("gateway"), "")
    with held:
        thread, ended = joining(gateway, token_of(system), "--site", "lisbon", "--no-wait")
        system.until(gateway.piece.exists, "the join has begun")
        gateway.start_unasked()
        assert not ended
    system.answering("gateway")
    thread.join()
    assert ended[0].status == 0, ended
    accept(system, "lisbon")
    system.until(lambda: system.view("gateway", "/fleet")["joined"], "it is a site")


def test_a_name_that_is_written_by_hand_is_found_without_a_word(system: System) -> None:
    gateway = unjoined(system)
    gateway.start()
    gateway.piece.parent.mkdir()
    gateway.piece.write_text("name: [no name]")
    system.until(lambda: "settings not taken" in gateway.log(), "what is wrong is said")
    gateway.piece.write_text("name: lisbon")
    system.until(lambda: "ready role=gateway name=lisbon" in gateway.log(), "it goes on as the station")


def test_a_terminal_is_asked_for_what_is_missing(system: System, tmp_path: Path) -> None:
    system.add_master("central")
    gateway = unjoined(system)
    gateway.start()
    command = " ".join([*program(), "gateway", "join", "--no-wait", "--config", str(gateway.config)])
    answers = f"lisbon\n{token_of(system)}\n"
    # script(1) is the terminal.
    typed = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        input=answers,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert typed.returncode == 0, typed
    assert "Name of this site" in typed.stdout
    assert gateway.name() == "lisbon"
    client = StationClient(system.socket_of("gateway"))
    assert client.station().uplink is not None


def test_the_settings_that_the_package_makes_leave_the_name_to_the_join() -> None:
    config = ROOT / "packaging" / "settings" / "gateway.yaml"
    assert not says(config, "name")
    assert load(StationSettings, config, {"name": "lisbon"}).name == "lisbon"
