"""Other tools in ``bench ssh``: salt-ssh and pyinfra, each with its own interpreter, on the same devices.

Each runs the command on one device and then on as many as it manages in reasonable time. The difference of the two is
what a device costs; the first is mostly what starting the tool costs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.bench.ssh_doors import Doors

MOST: Final = {"salt-ssh": 50, "pyinfra": 500}
"""Devices on which each is measured: some seven seconds of CPU."""

AT_ONCE: Final = 50
SECONDS: Final = 300.0
SECRET_MODE: Final = 0o600


@dataclass(frozen=True)
class Tool:
    """Where it is, and how its answers are counted."""

    program: Path
    words: Callable[[Path, Doors, int, str], list[str]]
    count: Callable[[str, str], int]


Figures = Mapping[str, float]


def found(folder: Path) -> dict[str, Tool]:
    """The tools that are in this folder, each in a virtual environment of its own."""
    # They are run in a folder of their own.
    folder = folder.absolute()
    tools = {
        "salt-ssh": Tool(folder / "salt/bin/salt-ssh", _salt_words, _salt_count),
        "pyinfra": Tool(folder / "pyinfra/bin/pyinfra", _pyinfra_words, _pyinfra_count),
    }
    return {name: tool for name, tool in tools.items() if tool.program.exists()}


def measure(tools: Mapping[str, Tool], folder: Path, doors: Doors, command: str, expected: str) -> dict[str, Figures]:
    """What each needs."""
    figures: dict[str, Figures] = {}
    for name, tool in tools.items():
        place = folder / f"peer-{name}"
        place.mkdir(exist_ok=True)
        devices = min(MOST[name], len(doors.places))
        # Once before it counts: what a tool compiles or keeps, it has then.
        if not any(place.iterdir()):
            _run(tool, place, doors, 1, command, expected)
        _, start_seconds, start_cpu = _run(tool, place, doors, 1, command, expected)
        ok, seconds, cpu = _run(tool, place, doors, devices, command, expected)
        figures[name] = {
            "devices": devices,
            "ok": ok,
            "seconds": round(seconds, 3),
            "per_second": round(ok / seconds, 1),
            "cpu_ms_per_device": round(1000 * (cpu - start_cpu) / max(1, devices - 1), 2),
            "seconds_for_one": round(start_seconds, 3),
        }
    return figures


def _run(tool: Tool, folder: Path, doors: Doors, devices: int, command: str, expected: str) -> tuple[int, float, float]:
    """Right answers, seconds, and CPU seconds of the tool and all that it started."""
    words = [str(tool.program), *tool.words(folder, doors, devices, command)]
    said = folder / "said"
    begun = time.perf_counter()
    with said.open("wb") as file:
        environment = {**os.environ, "HOME": str(folder), "TERM": "dumb"}
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=folder, env=environment, process_group=0
        )
        late = threading.Timer(SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        late.daemon = True
        late.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            late.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begun
    text = said.read_text(encoding="utf-8", errors="replace")
    return tool.count(text, expected), seconds, used.ru_utime + used.ru_stime


def _salt_words(folder: Path, doors: Doors, devices: int, command: str) -> list[str]:
    settings = {
        "root_dir": str(folder),
        "pki_dir": str(folder / "pki"),
        "cachedir": str(folder / "cache"),
        "log_file": str(folder / "log"),
        "ssh_log_file": str(folder / "ssh-log"),
    }
    (folder / "master").write_text(json.dumps(settings), encoding="utf-8")
    roster = {
        f"d-{place}": {"host": host, "port": port, "user": doors.user, "priv": str(doors.client_key), "timeout": 60}
        for place, (host, port) in enumerate(doors.places[:devices])
    }
    (folder / "roster").write_text(json.dumps(roster), encoding="utf-8")
    options = ["-c", str(folder), "--roster-file", str(folder / "roster"), "--max-procs", str(AT_ONCE)]
    return [*options, "-i", "--no-host-keys", "--out", "json", "--static", "-r", "*", command]


def _salt_count(text: str, expected: str) -> int:
    try:
        answers = json.loads(text[text.index("{") :])
    except ValueError:
        return 0
    return sum(isinstance(each, dict) and str(each.get("stdout", "")).strip() == expected for each in answers.values())


def _pyinfra_words(folder: Path, doors: Doors, devices: int, command: str) -> list[str]:
    shared = {
        "ssh_user": doors.user,
        "ssh_key": str(doors.client_key),
        "ssh_strict_host_key_checking": "off",
        "ssh_allow_agent": False,
    }
    hosts = [
        (f"d-{place}", {"ssh_hostname": host, "ssh_port": port, **shared})
        for place, (host, port) in enumerate(doors.places[:devices])
    ]
    inventory = folder / "inventory.py"
    inventory.write_text(f"hosts = {hosts!r}\n", encoding="utf-8")
    return ["--parallel", str(AT_ONCE), "-y", str(inventory), "exec", "--", command]


def _pyinfra_count(text: str, expected: str) -> int:
    said = (line.split(maxsplit=1) for line in text.splitlines())
    return sum(len(words) == 2 and words[0].startswith("[") and words[1].strip() == expected for words in said)
