"""Jobs for devices by what is in their pillar: whom the station says, and that the device finds itself meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.pillar_site import write_tree
from tests.peers.system import whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

FILES = {
    "top.sls": "base:\n  '*': [all]\n  'cam-gate': [gate]\n",
    "all.sls": "area: yard\n",
    "gate.sls": "area: gate\nports: {rtsp: 8554}\n",
}


def test_a_job_goes_to_the_devices_whose_pillar_says_so(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", FILES)
    with whole_system() as system:
        system.add_master(pillar_roots={"base": [str(roots)]})
        system.add_gateway("lisbon", "central")
        system.join("lisbon")
        for name in ("cam-gate", "cam-yard"):
            system.add_agent(name, "lisbon")
        system.present(2)
        for tgt, kind, meant in (
            ("area:gate", "pillar", {"cam-gate"}),
            ("area:*", "pillar", {"cam-gate", "cam-yard"}),
            ("I@ports:rtsp:8554 or nobody", "compound", {"cam-gate"}),
            ("not I@area:gate", "compound", {"cam-yard"}),
            ("area:ga.*", "pillar_pcre", {"cam-gate"}),
        ):
            ended = system.ended("central", system.issue("central", tgt, "test.ping", tgt_type=kind))
            assert ended.words() == dict.fromkeys(meant, "ok"), tgt
        matched = system.command("devices", "match", "-I", "area:gate", "--json", status=0)
        assert [each["id"] for each in matched.json("device")] == ["cam-gate"]
        # What changes at the station is what counts, also on the device.
        (roots / "gate.sls").write_text("area: roof\n")
        ended = system.ended(
            "central",
            system.issue("central", "area:roof", "pillar.get", "area", tgt_type="pillar", kwarg={"unmask": True}),
        )
        assert {name: outcome.value for name, outcome in ended.by_device().items()} == {"cam-gate": "roof"}
