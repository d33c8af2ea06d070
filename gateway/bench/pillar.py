"""``bench pillar``: the pillar of every device of a site, with ever more distinct inputs among as many devices.

Ours are a station's rooms with their rendering processes; the reference is bare Jinja and PyYAML, once for each
distinct input; the peer is ``salt-call --local pillar.items``, which compiles for one device at a time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from device_agent.errors import EXIT_OK, StationFailed
from gateway.bench import pillar_tree
from gateway.bench.figures import Measured, Used, middle, record, spread
from gateway.cli.output import standard_output

BENCH: Final = "pillar"
SECONDS: Final = 600.0
PEER_RUNS: Final = 3
INPUTS: Final = (5, 20, 80)
"""Distinct inputs of the parts; each a multiple of the models, so that model and group together are not more."""


def main(devices: int, repeat: int, as_json: bool, peers: Path | None) -> int:
    """Run the benchmark; the exit status. Raises ``StationFailed`` when any pillar was not right."""
    output = standard_output()
    with tempfile.TemporaryDirectory(prefix="outstation-bench-") as folder:
        roots = Path(folder) / "roots"
        files = pillar_tree.write(roots)
        params = {"devices": devices, "files": files, "repeat": repeat}
        salt = _peer(peers or Path(".cache/bench-peers"), Path(folder), roots)
        parts: dict[str, list[Measured]] = {}
        for _ in range(repeat):
            for inputs in INPUTS:
                measured = _measured(roots, devices, inputs)
                parts.setdefault(f"{inputs} inputs", []).append(measured)
                if as_json:
                    output.json(_line(params, f"{inputs} inputs", measured, salt))
        middles = {part: middle(each) for part, each in parts.items()}
        for part in sorted(middles, key=lambda part: middles[part].ratio):
            if as_json:
                output.json({**_line(params, part, middles[part], salt), "median": True})
    if not as_json:
        rows = [
            (
                part,
                spread([one.ours for one in each]),
                spread([one.reference for one in each]),
                f"{middles[part].ratio:.2f}",
            )
            for part, each in parts.items()
        ]
        output.line((f"{devices:,} devices, {files} pillar files", "bold"))
        output.table(["distinct inputs", "ours", "reference", "ratio"], rows, numbers=["ratio"])
        if salt:
            output.line(
                f"salt-call --local pillar.items: {salt['salt-call']['seconds_per_device']:.2f} s for each device"
            )
        else:
            output.line("salt-call not measured: make bench-peers gets it, and --peers says where it is")
    return EXIT_OK


def _line(params: dict[str, Any], part: str, measured: Measured, salt: dict[str, Any]) -> dict[str, Any]:
    return {**record(BENCH, params, measured), "part": part, "peers": salt}


def _measured(roots: Path, devices: int, inputs: int) -> Measured:
    found = {side: _run(f"gateway.bench.pillar_{side}", roots, devices, inputs) for side in ("product", "reference")}
    for side, told in found.items():
        if told["ok"] != devices or told["compiled"] != inputs:
            raise StationFailed(
                "not every pillar was right, so there is no figure",
                error_id="bench.incomplete",
                where=f"{inputs} inputs, {side}",
                found=f"{told['ok']} right, {told['compiled']} compiled",
                allowed=f"{devices} right, {inputs} compiled",
            )
    ours, reference = found["product"], found["reference"]
    return Measured(
        ok=devices,
        ours=ours["seconds"],
        reference=reference["seconds"],
        processes={
            "station": Used(ours["cpu_seconds"], None, int(ours["peak_rss_bytes"])),
            "reference": Used(None, reference["cpu_seconds"], int(reference["peak_rss_bytes"])),
        },
    )


def _run(module: str, roots: Path, devices: int, inputs: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", module, str(roots), str(devices), str(inputs)],
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise StationFailed(
            f"{module} failed", error_id="bench.failed", found=done.stderr.decode(errors="replace")[-2000:]
        )
    told: dict[str, float] = json.loads(done.stdout)
    return told


def _peer(peers: Path, folder: Path, roots: Path) -> dict[str, Any]:
    """What salt-call takes for one device; nothing where there is none."""
    program = (peers / "salt/bin/salt-call").absolute()
    if not program.exists():
        return {}
    home = folder / "salt"
    home.mkdir()
    settings = {
        "file_client": "local",
        "pillar_roots": {"base": [str(roots)]},
        "pillar_mask_output": False,
        "root_dir": str(home),
        "log_file": str(home / "log"),
        "grains": pillar_tree.grains(0, INPUTS[0]),
        "id": "cam-0",
    }
    (home / "minion").write_text(json.dumps(settings), encoding="utf-8")
    seconds, right = [], 0
    # Once before it counts: what it compiles or keeps, it has then.
    for _ in range(PEER_RUNS + 1):
        begun = time.perf_counter()
        done = subprocess.run(
            [str(program), "--local", "-c", str(home), "--out", "json", "-l", "quiet", "pillar.items"],
            capture_output=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, "HOME": str(home), "PYTHONPATH": ""},
        )
        seconds.append(time.perf_counter() - begun)
        try:
            pillar = json.loads(done.stdout)["local"]
        except (ValueError, KeyError, TypeError):
            return {}
        right += pillar_tree.is_right(pillar, 0, INPUTS[0])
    return {"salt-call": {"devices": PEER_RUNS, "ok": right - 1, "seconds_per_device": round(median(seconds[1:]), 3)}}
