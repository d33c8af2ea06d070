"""Stock Salt's own pillar compiler over trees: what ``pillar.items`` gives for the same files, grains and settings.

Run by Salt's Python this file compiles a folder of questions; imported it is what asks.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

SECONDS = 300.0


def compiled(python: Path, folder: Path, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What Salt compiles from each: ``{"pillar": …}``, or ``{"error": …}`` where it raised."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, question in enumerate(asked):
        for env, files in question["trees"].items():
            for path, text in files.items():
                place = folder / "trees" / str(number) / env / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
    (folder / "asked.json").write_text(json.dumps(asked))
    done = subprocess.run(
        [str(python), str(Path(__file__)), str(folder)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": "", "PYTHONWARNINGS": "ignore", "HOME": str(folder), "PYTHONHASHSEED": "0"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: list[dict[str, Any]] = json.loads((folder / "answers.json").read_text())
    return told


def _stock(folder: Path) -> list[dict[str, Any]]:
    sys.path.insert(0, str(Path(__file__).parent))
    settings = import_module("salt_call")._settings(folder)
    pillar_of = import_module("salt.pillar")
    secret = import_module("salt.utils.secret")
    logging.disable(logging.CRITICAL)
    loader_of = import_module("salt.loader")
    functions: dict[str, Any] = {}
    told = []
    for number, question in enumerate(json.loads((folder / "asked.json").read_text())):
        place = folder / "trees" / str(number)
        roots = {env: [str(place / env)] for env in question["trees"]}
        opts = {
            **settings,
            "pillar_roots": roots,
            "file_roots": roots,
            "cachedir": str(folder / "cache" / str(number)),
            "id": question["id"],
            "nodegroups": question["nodegroups"],
            **{f"pillar_{name}": value for name, value in question["settings"].items()},
        }
        Path(opts["cachedir"]).mkdir(parents=True)
        grains = json.dumps(question["grains"])
        if grains not in functions:
            # Looking for them takes most of Salt's time, and they are the same for the same device.
            given = {**opts, "grains": dict(question["grains"])}
            functions[grains] = loader_of.minion_mods(given, utils=loader_of.utils(given))
        try:
            made = pillar_of.Pillar(
                opts,
                dict(question["grains"]),
                question["id"],
                None,
                functions=functions[grains],
                pillarenv=question["pillarenv"],
                pillar_override=question["override"],
            ).compile_pillar()
            told.append({"pillar": json.loads(json.dumps(secret.expose(made)))})
        except BaseException as error:  # noqa: BLE001 - however Salt ends, that is its answer
            told.append({"error": f"{type(error).__name__}: {error}"})
    return told


if __name__ == "__main__":
    where = Path(sys.argv[1])
    (where / "answers.json").write_text(json.dumps(_stock(where)))
