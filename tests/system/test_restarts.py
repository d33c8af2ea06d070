"""Devices that really restart: the job that did it ends once, when they are there again, and nobody else is touched."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from signal import SIGHUP, SIGINT

import pytest

from gateway.devices.ssh_device import host_key_fingerprint
from tests.peers.every_way import placed
from tests.peers.restarting_machines import Machine, busybox_machine, guard, systemd_machine
from tests.peers.system import Ended, System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

BOOT_ID = ("cmd.run", "cat /proc/sys/kernel/random/boot_id")
OVER_SSH = ("small", "whole")
DEVICES = (*OVER_SSH, "agent")
"""BusyBox and dropbear, systemd and OpenSSH; and an agent on BusyBox."""

RESTARTED, OFF = -SIGHUP, -SIGINT

RIGHTS_BITS = 0x4405FF
"""Those over files, accounts and processes, ``CAP_SYS_CHROOT`` and ``CAP_SYS_BOOT``: see capabilities(7)."""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Machine]]:
    folder = tmp_path_factory.mktemp("machines")
    with ExitStack() as stack:
        yield {
            "beside": stack.enter_context(busybox_machine(folder / "beside")),
            "small": stack.enter_context(busybox_machine(folder / "small")),
            "whole": stack.enter_context(systemd_machine(folder / "whole")),
            "agent": stack.enter_context(busybox_machine(folder / "agent")),
        }


@pytest.fixture(scope="module")
def site(machines: dict[str, Machine]) -> Iterator[System]:
    with whole_system() as system:
        system.add_master()
        system.add_gateway("lisbon", "central", ssh={"connect_seconds": 15, "keepalive_seconds": 4})
        system.join("lisbon")
        add(system, "small", machines["small"])
        add(system, "whole", machines["whole"])
        add(system, "beside", machines["beside"])
        add(system, "guest", machines["beside"], user="camera")
        machines["agent"].start(["agent", "run", "--config", placed(system, "agent", machines["agent"].bed)])
        system.present(5)
        yield system


def add(system: System, name: str, machine: Machine, user: str = "root") -> None:
    bed = machine.bed
    words = ("--ssh", f"{user}@127.0.0.1:{bed.port}", "--key", str(bed.client_key), "--poll", "5")
    fingerprint = ("--fingerprint", host_key_fingerprint(bed.host_keys[0]))
    system.command("devices", "add", name, *words, *fingerprint, station="lisbon", status=0)


@pytest.fixture(autouse=True)
def everybody_is_here(site: System) -> None:
    site.until(lambda: all(site.is_here(name, "lisbon") for name in (*DEVICES, "guest", "beside")), "all are here")


@pytest.fixture
def down(machines: dict[str, Machine]) -> Iterator[None]:
    """Whatever restarts stays down until somebody lets it boot."""
    for machine in machines.values():
        machine.may_boot.clear()
    yield
    let_boot(machines)


def let_boot(machines: dict[str, Machine]) -> None:
    for machine in machines.values():
        machine.may_boot.set()


def state(site: System, name: str) -> str:
    """What ``devices show`` says of the link to a device over SSH."""
    [shown] = site.view("lisbon", f"/devices/{name}")["devices"]
    return str(shown["ssh"]["state"])


def order(site: System, *names: str, **kwarg: object) -> str:
    """Have devices restart; the jid, when it is on disk that those over SSH do."""
    jid = site.issue("central", ",".join(names), "system.reboot", tgt_type="list", kwarg=kwarg)
    site.until(lambda: site.waiting("lisbon", jid) == {"running": len(names)}, "they have it")
    over_ssh = set(names) & set(OVER_SSH)
    site.until(lambda: all(state(site, name) == "restarting" for name in over_ssh), "it is on disk")
    return jid


def ask_boot_ids(site: System, *names: str) -> str:
    return site.issue("central", ",".join(names), *BOOT_ID, tgt_type="list")


def ended(machines: dict[str, Machine], *names: str) -> dict[str, list[int]]:
    return {name: list(machines[name].ends) for name in names}


def others_are_well(site: System, *names: str) -> None:
    jid = site.issue("central", ",".join(names), "test.ping", tgt_type="list")
    assert site.ended("central", jid).words() == dict.fromkeys(names, "ok")


def assert_restarted(machines: dict[str, Machine], done: Ended, names: tuple[str, ...]) -> None:
    """Each has started once more than it had, and its one outcome says so."""
    assert done.words() == dict.fromkeys(names, "ok"), done.outcomes
    for name, outcome in done.by_device().items():
        *_, before, now = machines[name].boot_ids
        assert outcome.value == {"boot_id": now, "before": before}
        assert outcome.executions == 1


@pytest.mark.usefixtures("down")
def test_the_job_ends_when_they_are_back_and_what_waits_runs_after_it(
    site: System, machines: dict[str, Machine]
) -> None:
    before = ended(machines, *DEVICES)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(site.command, "run", "-L", ",".join(DEVICES), "system.reboot")
        site.until(lambda: all(state(site, name) == "restarting" for name in OVER_SSH), "they restart")
        boot_ids = ask_boot_ids(site, *DEVICES, "beside")
        after = {name: [*ends, RESTARTED] for name, ends in before.items()}
        site.until(lambda: ended(machines, *DEVICES) == after, "they are down")
        others_are_well(site, "beside")
        assert site.counts("central", boot_ids) == {"ok": 1}
        assert not asked.done()
        let_boot(machines)
        finished = asked.result()
    said, jid = finished.error.split(": "), finished.error.split(":")[0].removeprefix("jid ")
    assert (finished.status, said[-1]) == (0, "3 ok\n"), finished
    assert_restarted(machines, site.ended("central", jid), DEVICES)
    seen = {name: each.value for name, each in site.ended("central", boot_ids).by_device().items()}
    seen.pop("beside")
    assert seen == {name: machines[name].boot_ids[-1] for name in DEVICES}
    assert ended(machines, *DEVICES) == after


@pytest.mark.usefixtures("down")
def test_a_gateway_that_is_killed_meanwhile_ends_it_once_after_its_own_restart(
    site: System, machines: dict[str, Machine]
) -> None:
    before = ended(machines, *OVER_SSH)
    jid = order(site, *OVER_SSH)
    boot_ids = ask_boot_ids(site, *OVER_SSH)
    site.until(lambda: site.waiting("lisbon", boot_ids), "it is accepted")
    site.kill("lisbon")
    after = {name: [*ends, RESTARTED] for name, ends in before.items()}
    site.until(lambda: ended(machines, *OVER_SSH) == after, "they restart all the same")
    site.restart("lisbon")
    site.until(lambda: all(state(site, name) == "restarting" for name in OVER_SSH), "it knows of it")
    site.until(lambda: site.waiting("lisbon", jid) == {"running": 2}, "it waits for them as long as they may take")
    let_boot(machines)
    assert_restarted(machines, site.ended("central", jid), OVER_SSH)
    seen = {name: each.value for name, each in site.ended("central", boot_ids).by_device().items()}
    assert seen == {name: machines[name].boot_ids[-1] for name in OVER_SSH}
    assert ended(machines, *OVER_SSH) == after


@pytest.mark.usefixtures("down")
def test_what_does_not_come_back_or_does_not_restart_has_its_reason(site: System, machines: dict[str, Machine]) -> None:
    absent = order(site, "small", wait=5)
    programs = machines["whole"].bed.root / "local/sbin"
    (programs / "reboot").rename(programs / "kept")
    (programs / "reboot").write_text("#!/bin/sh\necho 'not while the film runs' >&2; exit 3\n")
    (programs / "reboot").chmod(0o755)
    refused = site.issue("central", "whole", "system.reboot")
    outcome = site.ended("central", refused).by_device()["whole"]
    assert (outcome.outcome, outcome.retcode) == ("failed", 1)
    assert outcome.why == "the device was not restarted: not while the film runs"

    (programs / "reboot").write_text("#!/bin/sh\n")
    unmoved = site.issue("central", "whole", "system.reboot", kwarg={"wait": 2})
    outcome = site.ended("central", unmoved).by_device()["whole"]
    assert (outcome.outcome, outcome.why) == ("timed_out", "the device did not restart within 2 s")
    assert outcome.value == dict.fromkeys(("boot_id", "before"), machines["whole"].boot_ids[-1])
    (programs / "kept").replace(programs / "reboot")

    outcome = site.ended("central", absent).by_device()["small"]
    assert (outcome.outcome, outcome.why) == ("timed_out", "the device was not back within 5 s")
    assert outcome.value == {"boot_id": "", "before": machines["small"].boot_ids[-1]}
    site.until(lambda: not site.is_here("small", "lisbon"), "it is known to be away")
    others_are_well(site, "whole", "agent", "beside")
    assert state(site, "small") == "away"
    let_boot(machines)
    site.until(lambda: machines["small"].listens, "it is up")
    # It was asked for in vain for so long that it is asked for rarely; a change is tried at once.
    site.command("devices", "set", "small", "--poll", "6", station="lisbon", status=0)


def test_who_may_not_restart_a_device_is_told_at_once(site: System, machines: dict[str, Machine]) -> None:
    before = ended(machines, "small", "beside")
    outcome = site.ended("central", site.issue("central", "guest", "system.reboot")).by_device()["guest"]
    assert outcome.outcome == "failed"
    assert (outcome.why or "").startswith("the device was not restarted: "), outcome
    later = site.ended("central", site.issue("central", "small", "system.reboot", 5)).by_device()["small"]
    assert (later.outcome, later.why) == ("failed", "this device has no shutdown")
    assert ended(machines, "small", "beside") == before


def test_what_is_switched_off_says_so_and_stays_off(site: System, machines: dict[str, Machine]) -> None:
    before = ended(machines, *OVER_SSH)
    jids = {
        "small": site.issue("central", "small", "system.poweroff"),
        "whole": site.issue("central", "whole", "system.shutdown"),
    }
    for name, jid in jids.items():
        assert site.ended("central", jid).words() == {name: "ok"}
    off = {name: [*ends, OFF] for name, ends in before.items()}
    site.until(lambda: ended(machines, *OVER_SSH) == off, "they are off")
    site.until(lambda: not any(site.is_here(name, "lisbon") for name in OVER_SSH), "they are known to be away")
    others_are_well(site, "beside", "agent")
    assert ended(machines, *OVER_SSH) == off
    for name in OVER_SSH:
        machines[name].switch_on()


def test_nobody_in_such_a_machine_can_restart_this_one(machines: dict[str, Machine]) -> None:
    ours = Path("/proc/self/ns/pid").readlink()
    for machine in machines.values():
        first = Path(f"/proc/{machine.bed.init}")
        assert (first / "ns/pid").readlink() != ours
        assert f"CapBnd:\t{RIGHTS_BITS:016x}\n" in (first / "status").read_text()
    # Without namespaces of its own nothing begins at all.
    done = subprocess.run(
        ["sh", "-c", f"{guard()}; echo begun"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "in no namespace of its own\n")
