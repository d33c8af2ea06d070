"""cp.* give what stock Salt gives that has the same folder as its roots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from device_agent import loader
from device_agent.local_host import LocalHost
from device_agent.own import Own
from tests.peers.file_server import server, settled
from tests.peers.salt_call import answers

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

OUT = "{out}"
CALLS: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
    ("list_master", [], {}),
    ("list_master", [], {"prefix": "conf"}),
    ("list_master", ["next"], {}),
    ("list_master", ["none"], {}),
    ("list_master_dirs", [], {}),
    ("list_master_dirs", [], {"prefix": "conf"}),
    ("hash_file", ["salt://conf/a"], {}),
    ("hash_file", ["salt://none"], {}),
    ("hash_file", ["salt://conf/a?saltenv=next"], {}),
    ("list_master", [], {"prefix": "conf/de"}),
    ("list_master_dirs", [], {"prefix": "conf/de"}),
    ("is_cached", ["salt://conf/deep/b"], {}),
    ("cache_file", ["salt://conf/deep/b"], {}),
    ("is_cached", ["salt://conf/deep/b"], {}),
    ("cache_file", ["salt://none"], {}),
    ("get_url", ["salt://top"], {}),
    ("get_url", ["salt://top", f"{OUT}/url"], {}),
    ("get_url", ["salt://none", f"{OUT}/url"], {}),
    ("get_file_str", ["salt://conf/a"], {}),
    ("get_file_str", ["salt://conf/a"], {"saltenv": "next"}),
    ("get_file_str", ["salt://conf/a?saltenv=next"], {}),
    ("get_file_str", ["salt://none"], {}),
    ("get_file", ["salt://conf/a", f"{OUT}/file"], {}),
    ("get_file", ["salt://conf/a", f"{OUT}"], {}),
    ("get_file", ["salt://conf/a", f"{OUT}/not/there"], {}),
    ("get_file", ["salt://conf/a", f"{OUT}/not/there"], {"makedirs": True}),
    ("get_file", ["salt://none", f"{OUT}/file"], {}),
    ("get_dir", ["salt://conf", f"{OUT}/tree"], {}),
    ("get_dir", ["salt://conf/deep", f"{OUT}/tree"], {}),
    ("get_dir", ["salt://none", f"{OUT}/tree"], {}),
)


async def test_answers_and_files_are_those_of_salt(salt: Path, tmp_path: Path) -> None:
    srv = tmp_path / "srv"
    for name in ("base/conf/a", "base/conf/deep/b", "base/top", "base/conference", "next/conf/a"):
        settled(srv / name, f"{name}\n".encode())
    (srv / "base/empty").mkdir()
    roots = {saltenv: [srv / saltenv] for saltenv in ("base", "next")}
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for out in (theirs, ours):
        out.mkdir()
    asked = [
        {"fun": f"cp.{fun}", **_placed(arg, kwarg, theirs), "given": "", "folder": str(tmp_path / f"call-{number}")}
        for number, (fun, arg, kwarg) in enumerate(CALLS)
    ]
    named = {saltenv: [str(folder) for folder in found] for saltenv, found in roots.items()}
    told = answers(salt, tmp_path / "salt", asked, {"id": "cam-7"}, {"file_roots": named})
    wrong = []
    async with server(tmp_path / "state", roots) as made:
        own = Own(station=made, cache_dir=str(tmp_path / "cache"))
        for (fun, arg, kwarg), salts in zip(CALLS, told, strict=True):
            placed = _placed(arg, kwarg, ours)
            ended = await loader.call(f"cp.{fun}", LocalHost({"id": "cam-7"}), placed["arg"], placed["kwarg"], own)
            value = _same(ended.value, ours, tmp_path / "cache")
            wanted = _same(salts.get("value", salts), theirs, tmp_path / "salt/cachedir")
            if value != wanted:
                wrong.append(f"{fun} {arg} {kwarg}: {value!r}, Salt {wanted!r}; {ended.why}")
    assert not wrong, "\n".join(wrong)
    assert _tree(ours) == _tree(theirs)


def _placed(arg: list[Any], kwarg: dict[str, Any], out: Path) -> dict[str, Any]:
    text = json.dumps({"arg": arg, "kwarg": kwarg}).replace(OUT, str(out))
    placed: dict[str, Any] = json.loads(text)
    return placed


def _same(value: Any, out: Path, cache: Path) -> Any:
    """A value without the places that are each one's own."""
    return json.loads(json.dumps(value).replace(str(out), "OUT").replace(str(cache), "CACHE"))


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
