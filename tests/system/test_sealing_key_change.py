"""A real agent changes its sealing key under a real gateway and a real master, and is killed; sealed jobs go on."""

from __future__ import annotations

import re
import sys

import pytest

from device_agent.identity import FILE, SEALING_FILE, Identity, IdentityFile
from device_agent.trust.device_certificate import read_device_certificate
from tests.peers.stolen_disk import RUN
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

HASTY = """\
import device_agent.sealing_rotation as rotation
rotation.DAY, rotation.LOOK_SECONDS = 1, 0.2
"""
"""A change to the agent's program: an interval is in seconds, and it looks all the time."""


def identity(system: System) -> Identity:
    """What the flash of the agent holds."""
    loaded = IdentityFile(system.folder / "cam-1").load()
    assert loaded is not None
    return loaded


def run_hasty(system: System, days: int) -> None:
    """Start the agent with the changed program."""
    table = system.folder / "cam-1.yaml"
    table.write_text(re.sub(r"(sealing_key_days\W+)\d+", rf"\g<1>{days}", table.read_text(encoding="utf-8")))
    system.start("cam-1", [sys.executable, "-c", f"{HASTY}\n{RUN}", "agent", "run", "--config", str(table)])


def secret(system: System, word: str) -> str:
    """The outcome of a job for the device alone, given at the master."""
    jid = system.issue("central", "cam-1", "test.echo", word, sealed=True, late="run")
    return system.ended("central", jid).words()["cam-1"]


def test_a_device_changes_its_sealing_key_and_jobs_for_it_alone_reach_it_before_and_after() -> None:
    with whole_system() as system:
        system.add_master()
        system.add_gateway("lisbon", "central", broker=system.add_broker())
        system.join("lisbon")
        system.add_agent("cam-1", "lisbon", {"sealing_key_days": 0})
        system.present(1, "lisbon", "central")
        system.kill("cam-1")
        run_hasty(system, 0)
        assert secret(system, "before") == "ok"
        system.until((system.folder / "cam-1" / SEALING_FILE).exists, "the agent knows since when it has its key")
        first = identity(system).kem.private

        # From now on the interval is two seconds; the next change waits until the first key is let go.
        system.kill("cam-1")
        run_hasty(system, 2)
        system.until(lambda: identity(system).kem.private != first, "the agent has another key")
        assert secret(system, "after") == "ok"
        changed = identity(system)
        assert first in [key.private for key in changed.kems]
        assert read_device_certificate(changed.certificate).kem == changed.kem.public
        assert first not in (system.folder / "cam-1" / FILE).read_bytes()

        system.kill("cam-1")
        system.add_agent("cam-1", "lisbon")
        assert secret(system, "after a kill") == "ok"
        assert identity(system).kem.private == changed.kem.private
        assert system.counters("lisbon")["sealing_keys_changed"] == 1
        assert system.refusals("lisbon") == {}
