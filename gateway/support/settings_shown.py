"""Which settings are shown, and which are only said to be there. What is not listed here is hidden."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import unquote

from device_agent.settings_file import Items, Scalar, Tree
from gateway.support.redaction import HIDDEN

SHOWN: Final = (
    "name",
    "site",
    "state_dir",
    "socket",
    "log_level",
    "policy",
    "timezone",
    "masters.[].address",
    "master_type",
    "master_alive_interval",
    "master_failback",
    "master_failback_interval",
    "master_shuffle",
    "random_reauth_delay",
    "uplink.*",
    "sites.listen",
    "broker.mode",
    "broker.host",
    "broker.port",
    "broker.enroll_port",
    "broker.tls_port",
    "broker.tls",
    "broker.rules_dir",
    "broker.pid_file",
    "ssh.connect_seconds",
    "ssh.idle_seconds",
    "ssh.connections",
    "ssh.width",
    "ssh.keepalive_seconds",
    "ssh.facts_seconds",
    "ssh.mine_interval",
    "jobs.*",
    "api.listen",
    "api.certificate",
    "api.key",
    "audit.*",
    "spool.*_megabytes",
    "events.publish",
    "events.socket",
    "events.queue",
    "enable_legacy_startup_events",
    "presence_events",
    "loop_interval",
    "files.cache_megabytes",
    "files.max_bytes_per_second",
    "files.fresh_seconds",
    "files.receive",
    "files.receive_megabytes",
    "mine.*",
    "mine_interval",
    "station.grains_file",
    "station.grains_refresh_seconds",
    "pillar.source_merging_strategy",
    "pillar.merge_lists",
    "pillar.includes_override_sls",
    "pillar.ext_first",
    "render.*",
    "reactions.*",
    "calls.*",
    "engine_limits.*",
    "returner_limits.*",
    "smtp.port",
    "smtp.tls",
    "smtp.seconds",
    "webhook.seconds",
    "beacons_from_pillar",
    "trust_on_first_use",
    "grains_file",
    "grains_refresh_seconds",
    "drain_seconds",
)
"""Dotted names; ``*`` is any one key, ``[]`` an entry of a list. Numbers, switches, addresses, paths."""

_secret = re.compile("password|secret|token|key|headers", re.IGNORECASE)
HIDDEN_BYTES: Final = 8
NAMED_BYTES: Final = 4


def shown(tree: Tree, path: str = "") -> Any:
    """The settings as they may be seen. Of a section with nothing to show not even the keys are."""
    if isinstance(tree, Scalar):
        return tree.text if _is_shown(path) else HIDDEN
    if isinstance(tree, Items):
        if _leads_somewhere(f"{path}.[]"):
            return [shown(item, f"{path}.[]") for item in tree.items]
        return HIDDEN
    if path and not _leads_somewhere(f"{path}.x"):
        return HIDDEN
    found: dict[str, Any] = {}
    unknown = 0
    for key, value in tree.entries.items():
        inner = f"{path}.{key}" if path else key
        if re.fullmatch(r"[a-z][a-z0-9_]{0,40}", key):
            found[key] = shown(value, inner)
        else:
            unknown += 1
    return {**found, **({"(keys not shown)": unknown} if unknown else {})}


def hidden(tree: Tree, path: str = "", name: str = "") -> set[str]:
    """The values that are not shown: whatever else speaks of them must not show them either."""
    if isinstance(tree, Scalar):
        least = NAMED_BYTES if _secret.search(name) else HIDDEN_BYTES
        if _is_shown(path) or len(tree.text) < least:
            return set()
        return {tree.text, *_of_address(tree.text)}
    if isinstance(tree, Items):
        found = [hidden(item, f"{path}.[]", name) for item in tree.items]
    else:
        found = [hidden(value, f"{path}.{key}" if path else key, key) for key, value in tree.entries.items()]
    return set().union(*found)


def _of_address(text: str) -> set[str]:
    """What an address may carry that is secret by itself: who asks with which password, and the values of its query."""
    inside = re.search(r"//([^/\s@]*)@", text)
    parts = [*(inside[1].split(":") if inside else []), *re.findall(r"[?&#][^\s=&#]*=([^\s&#]+)", text)]
    return {form for part in parts for form in (part, unquote(part)) if len(form) >= NAMED_BYTES}


def _is_shown(path: str) -> bool:
    return any(_matches(path.split("."), pattern.split(".")) for pattern in SHOWN)


def _leads_somewhere(path: str) -> bool:
    """Whether something below the last part of this path may be shown."""
    above = path.split(".")[:-1]
    inner = path.rpartition(".")[2]
    for pattern in SHOWN:
        words = pattern.split(".")
        if (
            len(words) > len(above)
            and _matches(above, words[: len(above)])
            and (inner == "[]") == (words[len(above)] == "[]")
        ):
            return True
    return False


def _matches(path: list[str], pattern: list[str]) -> bool:
    return len(path) == len(pattern) and all(
        each == wanted if wanted == "[]" or each == "[]" else fnmatchcase(each, wanted)
        for each, wanted in zip(path, pattern, strict=True)
    )
