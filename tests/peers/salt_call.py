"""Stock Salt from the package index in a folder of its own: what it answers to the same calls on the same machine.

One process of Salt's own loader answers all calls, as ``salt-call --local`` would, one after another. Run by Salt's
Python this file is that process, for a folder of questions or, with ``rooted``, on a machine to throw away; imported it
is what asks it.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ANSWERS_SECONDS = 300.0
ARGUMENTS = "arguments"
"""What Salt is asked for the arguments of a function; its own function for that sees no module that loads late."""


def answers(
    python: Path, folder: Path, asked: list[dict[str, Any]], grains: dict[str, Any], settings: dict[str, Any]
) -> list[dict[str, Any]]:
    """What Salt answers to each call: ``{"value": …}``, ``{"error": …}``, or ``missing`` for a function it has not."""
    folder.mkdir(parents=True, exist_ok=True)
    question = folder / "asked.json"
    question.write_text(json.dumps({"asked": asked, "grains": grains, "settings": settings}, default=_plain))
    done = subprocess.run(
        [str(python), str(Path(__file__)), str(folder)],
        capture_output=True,
        text=True,
        timeout=ANSWERS_SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": "", "PYTHONWARNINGS": "ignore", "HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: list[dict[str, Any]] = json.loads((folder / "answers.json").read_text(), object_hook=_bytes)
    return told


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return repr(value)


def _bytes(value: dict[str, Any]) -> Any:
    return bytes.fromhex(value["bytes"]) if value.keys() == {"bytes"} else value


def _stock(folder: Path, question: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask Salt. Its settings and caches are below the folder, and it knows the grains it is given and no others."""
    opts = {**_settings(folder), **question["settings"]}
    loader_of = import_module("salt.loader")
    told = []
    modules: Any = None
    changed = False
    for call in question["asked"]:
        if modules is None or changed:
            # A call may have changed the grains, in the loader and in their file.
            (folder / "conf" / "grains").unlink(missing_ok=True)
            opts["grains"] = json.loads(json.dumps(question["grains"]))
            modules = loader_of.minion_mods(opts, utils=loader_of.utils(opts))
        changed = call["fun"].startswith("grains.")
        own = Path(call["folder"])
        own.mkdir(parents=True)
        script = f'umask 022; cd "$1" && {{ {call["given"] or ":"}\n}}'
        subprocess.run(["/bin/sh", "-c", script, "sh", str(own)], check=True, capture_output=True)
        told.append(_answer(modules, call))
    return told


def _settings(folder: Path) -> dict[str, Any]:
    # Only Salt's own environment has it.
    config_of = import_module("salt.config")
    places = ("root_dir", "pki_dir", "cachedir", "sock_dir", "conf_dir")
    overrides = {name: str(folder / name) for name in places}
    config = folder / "conf"
    for name in ("conf", *places):
        (folder / name).mkdir(exist_ok=True)
    (config / "minion").write_text("file_client: local\nid: cam-7\nmaster_type: disable\n")
    opts = config_of.minion_config(str(config / "minion"), defaults=None, cache_minion_id=False)
    return {
        **opts,
        **overrides,
        "conf_file": str(config / "minion"),
        "local": True,
        "test": False,
        "systemd.scope": False,
    }


def _serve(root: str) -> None:
    """Change the root, and answer calls line by line with the grains that Salt finds there."""
    os.chroot(root)
    os.chdir("/")
    os.umask(0o022)
    os.environ |= {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"}
    folder = Path("/var/tmp/stock-salt")
    folder.mkdir()
    opts = _settings(folder)
    loader_of = import_module("salt.loader")
    logging.disable()
    out, sys.stdout = sys.stdout, sys.stderr
    grains = loader_of.grains(opts)
    modules: Any = None
    context: dict[str, Any] = {}
    for line in sys.stdin:
        fun, arg, kwarg = json.loads(line)
        if modules is None or fun == "cmd.run":
            # What the machine is may have changed, and with it which of Salt's modules fit it.
            opts["grains"] = dict(grains)
            context.clear()
            modules = loader_of.minion_mods(opts, context, loader_of.utils(opts))
        told = _answer(modules, {"fun": fun, "arg": arg, "kwarg": kwarg})
        outcome = "ok" if "value" in told else "refused" if "missing" in told else "failed"
        ended = [told.get("value"), context.pop("retcode", 0), outcome, told.get("error", "")]
        out.write(json.dumps(ended, default=_plain) + "\n")
        out.flush()


def _answer(modules: Any, call: dict[str, Any]) -> dict[str, Any]:
    about = call["arg"][0] if call["fun"] == ARGUMENTS else call["fun"]
    if about not in modules:
        return {"missing": True}
    if call["fun"] == ARGUMENTS:
        return {"value": import_module("salt.utils.args").argspec_report({about: modules[about]}, about)[about]}
    kwarg = dict(call["kwarg"])
    if call["fun"].startswith(("cmd.run", "cmd.retcode", "cmd.script")):
        kwarg["__pub_jid"] = "1"  # As from a master: a command goes through the shell.
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return {"value": modules[call["fun"]](*call["arg"], **kwarg)}
    except BaseException as error:  # noqa: BLE001 - however Salt ends, that is its answer
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    if sys.argv[1] == "rooted":
        _serve(sys.argv[2])
        sys.exit()
    where = Path(sys.argv[1])
    os.umask(0o022)
    answered = _stock(where, json.loads((where / "asked.json").read_text(), object_hook=_bytes))
    (where / "answers.json").write_text(json.dumps(answered, default=_plain))
