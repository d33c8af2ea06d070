"""The pillar of a box, compiled for each proxy by this station's own renderer, in processes with bounds.

Who is there: the names that a top file says outright, the minions that the box has accepted, and what deltaproxies
list. What does not render is named with file, line and kind, and takes nothing else along. No value is in a finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol.messages import DEVICE_ID_PATTERN
from gateway.devices.pillar_tree import PillarTree
from gateway.metrics import Metrics
from gateway.render import Renderer
from gateway.render_frames import Problem, Task, Tree
from gateway.render_settings import RenderSettings
from gateway.salt.import_devices import Devices, take_proxy
from gateway.salt.import_findings import Finding

TOP: Final = "top.sls"
NAMES: Final = 20_000
_name = re.compile(DEVICE_ID_PATTERN)
_proxy_line = re.compile(rb"^proxy[ \t]*:", re.MULTILINE)


@dataclass
class Pillar:
    """The files of pillar, and who is named in them."""

    roots: Mapping[str, list[str]]
    tree: Tree = field(default_factory=lambda: Tree("", {}))
    names: list[str] = field(default_factory=list)
    holders: dict[str, str] = field(default_factory=dict)
    """``ENV/PATH`` of each file with a line ``proxy:`` -> ``FILE:LINE`` of it."""

    taken: set[str] = field(default_factory=set)
    seen: set[tuple[str, int, str]] = field(default_factory=set)


async def take_pillar(roots: Mapping[str, list[str]], known: Iterable[str], devices: Devices) -> dict[str, str]:
    """Every proxy whose pillar is in these roots; ``known`` are names from elsewhere.

    Returns the names that top files say outright, and where.
    """
    pillar = Pillar(roots, await PillarTree(roots).now())
    pillar.holders = _holders(pillar)
    named: dict[str, str] = {}
    if not any(pillar.tree.environments.values()):
        return named
    renderer = Renderer(RenderSettings(workers=1), Metrics(Clock()))
    await renderer.open()
    try:
        named = await _named(renderer, pillar, devices)
        pillar.names = list(dict.fromkeys([*known, *named]))
        at = 0
        while at < min(len(pillar.names), NAMES):
            await _device(renderer, pillar, pillar.names[at], devices)
            at += 1
            if at == len(pillar.names):
                known = set(pillar.names)
                pillar.names += [name for name in devices.listed if name not in known]
    finally:
        await renderer.close()
    for holder, where in pillar.holders.items():
        if holder not in pillar.taken:
            words = "no name is known of whoever has this pillar: name it outright in top.sls, or give --names FILE"
            devices.findings.append(Finding("not carried", "proxy", where, words))
    if len(pillar.names) > NAMES:
        where = next(iter(pillar.holders.values()), TOP)
        words = f"{len(pillar.names) - NAMES:,} names more than {NAMES:,}: their pillar was not looked at"
        devices.findings.append(Finding("not carried", "pillar", where, words))
        devices.unreadable.update(pillar.names[NAMES:])
    return named


async def _named(renderer: Renderer, pillar: Pillar, devices: Devices) -> dict[str, str]:
    """The names that top files say outright, as a target without wildcards or in a list, and where each is said."""
    found: dict[str, str] = {}
    for env, files in pillar.tree.environments.items():
        if TOP not in files:
            continue
        # A name that no device has: what a top file makes of the one who asks is not asked here.
        task = Task(pillar.tree.digest, "", {"id": ""}, env=env, path=TOP, names="top")
        rendered = await renderer.render(pillar.tree, task)
        if rendered.refused:
            _wrong(pillar, devices, rendered.problems, f"{rendered.refused}; the names in it are not known")
            continue
        top = rendered.value()
        for targets in top.values() if isinstance(top, dict) else []:
            for target, said in targets.items() if isinstance(targets, dict) else []:
                kinds = [each["match"] for each in said or [] if isinstance(each, dict) and "match" in each]
                for name in _outright(str(target), str(kinds[0]) if kinds else "compound"):
                    found.setdefault(name, _line(_file(pillar, env, TOP), files[TOP], name))
    return found


def _line(file: str, content: bytes, name: str) -> str:
    """Where a name is said in a file, as near as it can be told without the template."""
    at = content.find(name.encode())
    line = content.count(b"\n", 0, at) + 1
    return f"{file}:{line}" if at >= 0 else file


def _outright(target: str, kind: str) -> list[str]:
    if kind == "list" or target.startswith("L@"):
        return [name for name in target.removeprefix("L@").split(",") if _name.match(name)]
    return [target] if kind in ("compound", "glob") and _name.match(target) and "@" not in target else []


async def _device(renderer: Renderer, pillar: Pillar, name: str, devices: Devices) -> None:
    task = Task(pillar.tree.digest, name, {"id": name})
    rendered = await renderer.render(pillar.tree, task)
    if rendered.problems or rendered.refused:
        words = f"{rendered.refused or 'unrenderable'}, for {name[:64]}"
        _wrong(pillar, devices, rendered.problems, words)
    try:
        compiled = rendered.value()
    except Refused:
        devices.unreadable.add(name)
        return
    if isinstance(compiled, dict) and "proxy" in compiled:
        proxy = compiled["proxy"]
        take_proxy(devices, name, proxy, _where(pillar, name, proxy))
    elif rendered.problems or rendered.refused:
        devices.unreadable.add(name)


def _where(pillar: Pillar, name: str, proxy: Any) -> str:
    """Where it stands that this is a proxy: the file that names its host, or its own, or any that has such a line."""
    host = str(proxy.get("host") or proxy.get("url") or "") if isinstance(proxy, Mapping) else ""
    best: tuple[int, str] = (0, "")
    for holder in pillar.holders:
        env, _, path = holder.partition("/")
        content = pillar.tree.environments[env][path]
        # A file that is for many has neither.
        words = path.removesuffix(".sls").replace("/", ".")
        own = name in (words, words.rpartition(".")[2], words.removesuffix(".init").rpartition(".")[2])
        points = 4 * own + 2 * bool(host and host.encode() in content) + (b"{{" in content or b"{%" in content)
        if points > best[0] or not best[1]:
            best = (points, holder)
    if not best[1]:
        return f"{next(iter(pillar.roots.values()))[0]}/{TOP}"
    pillar.taken.add(best[1])
    return pillar.holders[best[1]]


def _holders(pillar: Pillar) -> dict[str, str]:
    found: dict[str, str] = {}
    for env, files in pillar.tree.environments.items():
        for path, content in files.items():
            if (line := _proxy_line.search(content)) is not None:
                number = content.count(b"\n", 0, line.start()) + 1
                found[f"{env}/{path}"] = f"{_file(pillar, env, path)}:{number}"
    return found


def _file(pillar: Pillar, env: str, path: str) -> str:
    places = [Path(root) / path for root in pillar.roots.get(env, [])]
    return str(next((place for place in places if place.exists()), Path(path)))


def _wrong(pillar: Pillar, devices: Devices, problems: list[Problem], words: str) -> None:
    """A file that does not render, once for each place; without what it says, which may be a secret."""
    for problem in problems or [Problem(TOP, 0, "", "", "")]:
        key = (problem.file, problem.line, problem.kind)
        if key in pillar.seen:
            continue
        pillar.seen.add(key)
        env, path = [*re.split("[:/]", problem.file, maxsplit=1), ""][:2]
        # The device that it is for has a verdict of its own.
        pillar.taken.add(f"{env}/{path}")
        file = _file(pillar, env, path) if env in pillar.roots else problem.file
        line = f":{problem.line}" if problem.line else ""
        beside = " of what Jinja made of it" if problem.rendered else ""
        devices.findings.append(Finding("wrong", path or TOP, f"{file}{line}", f"{problem.kind}{beside}: {words}"))
