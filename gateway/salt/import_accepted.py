"""Whether the gateway's own reader takes what was made of Salt's settings: what it does not is taken out, and said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from device_agent.errors import ConfigInvalid, UsageInvalid
from device_agent.protocol.targeting import compile_target
from device_agent.settings import load_text
from gateway.config import StationSettings
from gateway.jobs.nodegroups import Nodegroups
from gateway.salt.import_findings import Finding, Wish

WHOLE: Final = frozenset({"smtp", "rawfile_json", "returner", "upstream"})
"""Sections whose keys count together: one of them alone may miss another."""

UNKNOWN: Final = "there is no such setting"
PLACE: Final = Path("gateway.yaml")


def accept(wish: Wish, name: str) -> None:
    """Take out of a wish what the reader of settings refuses, and let its findings say so."""
    while (refusal := _refusal(wish.settings, name)) is not None:
        bad = _named(wish, refusal) or _bad(wish, name)
        if not bad:
            raise refusal
        for path, why in bad.items():
            _refuse(wish, path, why)


def _named(wish: Wish, refusal: ConfigInvalid) -> dict[str, ConfigInvalid]:
    """The setting that a refusal speaks of."""
    words = refusal.found if refusal.what == UNKNOWN else refusal.what
    found = [
        path
        for path in wish.origins
        if re.search(rf"(?<![\w.-]){re.escape(path.replace('/', '.'))}(?![\w-])", words or "")
    ]
    return dict.fromkeys(sorted(found, key=len)[-1:], refusal)


def _bad(wish: Wish, name: str) -> dict[str, ConfigInvalid]:
    """Settings, or sections, that are refused each by itself."""
    groups: dict[str, list[str]] = {}
    for path in wish.origins:
        root = path.split("/", 1)[0]
        groups.setdefault(root if root in WHOLE else path, []).append(path)
    found: dict[str, ConfigInvalid] = {}
    for paths in groups.values():
        if (refusal := _refusal(_only(wish.settings, paths), name)) is not None:
            found.update(dict.fromkeys(paths, refusal))
    return found


def text_of(settings: Mapping[str, Any]) -> str:
    """Settings as YAML."""
    return yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True, width=110)


def _refusal(settings: Mapping[str, Any], name: str) -> ConfigInvalid | None:
    try:
        known = load_text(StationSettings, text_of({"name": name, **settings}), PLACE)
        return _wrong_group(Nodegroups(known.nodegroups), known.nodegroups)
    except ConfigInvalid as error:
        return error
    except yaml.YAMLError as error:
        return ConfigInvalid(f"it holds what cannot be written: {type(error).__name__}")


def _wrong_group(groups: Nodegroups, names: Iterable[str]) -> ConfigInvalid | None:
    for name in names:
        try:
            compile_target(*groups.signed(name, "nodegroup"))
        except UsageInvalid as error:
            return ConfigInvalid(f"nodegroups.{name}: {error.what}", allowed=error.allowed)
    return None


def _refuse(wish: Wish, path: str, refusal: ConfigInvalid) -> None:
    # What was found is not shown: it may be what a secret was written for.
    words = refusal.what.partition(": found ")[0]
    if refusal.allowed is not None and refusal.what != UNKNOWN:
        words = f"{words}; allowed: {refusal.allowed[:200]}"
    where, to = wish.origins[path], path.replace("/", ".")
    wish.drop(path)
    for place, finding in enumerate(wish.findings):
        if finding.where == where and finding.to == to:
            wish.findings[place] = Finding("not carried", finding.what, where, f"it is not taken here: {words}")


def _only(settings: Mapping[str, Any], paths: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in paths:
        *outer, inner = path.split("/")
        source: Any = settings
        target = found
        for word in outer:
            source = source[word]
            target = target.setdefault(word, {})
        target[inner] = source[inner]
    return found
