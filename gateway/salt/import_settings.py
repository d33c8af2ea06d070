"""From the keys of Salt's settings to those of a gateway: each gets exactly one verdict. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from device_agent.beacons.kinds import KINDS
from device_agent.errors import Refused
from device_agent.protocol import mine
from device_agent.trust.reach import FUNCTIONS
from gateway.salt.import_findings import Said, Wish, holds_secret, step
from gateway.salt.import_keys import SAME, no_meaning, not_carried
from gateway.salt.import_put import entry_of, put, tell
from gateway.salt.import_read import INCLUDES, ROLES, Box, pieces, texts
from gateway.salt.import_roster import ROSTER_KEYS
from gateway.salt.import_schedule import take_schedule
from gateway.salt.import_upstream import UPSTREAM_KEYS, take_upstream

LEVELS: Final = {
    "all": "debug",
    "garbage": "debug",
    "trace": "debug",
    "profile": "debug",
    "warn": "warning",
    "critical": "error",
    "fatal": "error",
    "quiet": "error",
}
SALT_ENGINES: Final = frozenset(
    [
        "docker_events",
        "fluent",
        "hipchat",
        "http_logstash",
        "ircbot",
        "junos_syslog",
        "libvirt_events",
        "logentries",
        "logstash",
        "logstash_engine",
        "napalm_syslog",
        "reactor",
        "redis",
        "redis_sentinel",
        "script",
        "slack",
        "slack_bolt",
        "slack_bolt_engine",
        "sqs_events",
        "stalekey",
        "test",
        "thorium",
        "webhook",
    ]
)
"""Engines that came with a release of Salt, by the names of their files and by those that they give themselves."""

OURS: Final = frozenset(
    {"webhook", "event_to_file", "logtail", "nats", "otlp", "prometheus", "webhook_out", "alertmanager"}
)
DOTTED: Final = {
    "rawfile_json.filename": "rawfile_json/filename",
    "returner.sqlite3.database": "returner/sqlite3/database",
    "returner.sqlite3.timeout": "returner/sqlite3/timeout",
    **{
        f"smtp.{key}": f"smtp/{key}"
        for key in ("from", "to", "host", "port", "username", "password", "tls", "subject", "fields")
    },
}


def translated(box: Box) -> Wish:
    """What all keys of a box come to."""
    wish = Wish()
    take_upstream(box, wish)
    for role in ROLES:
        for said in box.said.get(role, {}).values():
            if said.key not in UPSTREAM_KEYS and not (role == "master" and said.key in ROSTER_KEYS):
                _key(box, wish, said)
    return wish


def _key(box: Box, wish: Wish, said: Said) -> None:
    handler = HANDLERS.get(said.key)
    if handler is not None:
        handler(box, wish, said)
    elif said.key in SAME:
        put(wish, said, SAME[said.key], said.value)
    elif said.key in DOTTED:
        put(wish, said, DOTTED[said.key], said.value, "translated", "the gateway sends it, for all its devices")
    elif said.key in INCLUDES:
        _include(wish, said)
    elif (why := no_meaning(said.key)) is not None:
        tell(wish, said, "no meaning", why)
    elif holds_secret(said.value, said.key):
        tell(wish, said, "not carried", f"{not_carried(said.key)}; it holds a secret")
    else:
        tell(wish, said, "not carried", not_carried(said.key))


def _include(wish: Wish, said: Said) -> None:
    """Where the files are that it names, which are relative to its own."""
    folder = Path(said.where.rpartition(":")[0]).parent
    empty = [glob for glob in texts(said.value) if not pieces(folder, glob)]
    if empty:
        tell(wish, said, "not carried", f"no file is there for {', '.join(empty)[:200]}")
    else:
        tell(wish, said, "translated", "the files it names were read")


def _log_level(_: Box, wish: Wish, said: Said) -> None:
    level = str(said.value).lower()
    ours = LEVELS.get(level, level)
    put(
        wish,
        said,
        "log_level",
        ours,
        "carried" if ours == level else "translated",
        "" if ours == level else "the nearest there is",
    )


def _roots(box: Box, wish: Wish, said: Said) -> None:
    if said.role != "master" and box.value(said.role, "file_client") != "local":
        tell(wish, said, "no meaning", "it counts in Salt only with file_client: local")
        return
    environments = said.value if isinstance(said.value, Mapping) else {}
    kept: dict[str, list[str]] = {}
    left: list[str] = []
    for name, folders in environments.items():
        listed = [folders] if isinstance(folders, str) else folders if isinstance(folders, list) else []
        good = [each for each in listed if isinstance(each, str) and each.startswith("/")]
        left += [str(each)[:80] for each in listed if each not in good]
        if str(name) == "__env__":
            left.append("__env__")
        elif good:
            kept[str(name)] = good
    if not kept:
        tell(wish, said, "not carried", "no folder of this machine is in it")
    elif left:
        put(wish, said, said.key, kept, "translated", f"without {', '.join(left)}, which is no folder of this machine")
    else:
        put(wish, said, said.key, kept)


def _backends(_: Box, wish: Wish, said: Said) -> None:
    named = [said.value] if isinstance(said.value, str) else list(said.value or [])
    others = [str(each) for each in named if each not in ("roots", "minion", "minionfs")]
    if others:
        tell(wish, said, "not carried", f"{', '.join(others)}: {not_carried('gitfs_remotes')}")
    else:
        tell(wish, said, "no meaning", "file_roots is what there is, with folders and git repositories side by side")


def _nodegroups(_: Box, wish: Wish, said: Said) -> None:
    if not isinstance(said.value, Mapping):
        tell(wish, said, "not carried", "it is no mapping of names to targets")
        return
    for name, group in said.value.items():
        entry = entry_of(said, str(name))
        if isinstance(group, list):
            words = [str(each) for each in group]
            # As in Salt: a list is ids, unless a word of it says that it is a compound target.
            compound = any(word in ("and", "or", "not", "(", ")") or "@" in word for word in words)
            text: Any = " ".join(words) if compound else words
            put(wish, entry, f"nodegroups/{step(str(name))}", text, "translated" if compound else "carried")
        else:
            put(wish, entry, f"nodegroups/{step(str(name))}", str(group))


def _ssh_nodegroups(_: Box, wish: Wish, said: Said) -> None:
    for name, group in said.value.items() if isinstance(said.value, Mapping) else ():
        ids = group.split(",") if isinstance(group, str) else group if isinstance(group, list) else []
        value = [str(each).strip() for each in ids]
        put(wish, entry_of(said, str(name)), f"nodegroups/{step(str(name))}", value, "translated", "a list of ids")
    if not said.value or not isinstance(said.value, Mapping):
        tell(wish, said, "no meaning", "there is none in it")


def _grains(_: Box, wish: Wish, said: Said) -> None:
    if said.role == "proxy":
        tell(
            wish,
            said,
            "not carried",
            "a device tells its own grains; what else targets need, put into its pillar (docs/targets.md)",
        )
    elif isinstance(said.value, Mapping):
        put(
            wish,
            said,
            "station/grains",
            dict(said.value),
            "translated",
            "grains of the gateway as a target, NAME-station",
        )
    else:
        tell(wish, said, "not carried", "it is no mapping")


def _grains_refresh(_: Box, wish: Wish, said: Said) -> None:
    if isinstance(said.value, (int, float)):
        put(wish, said, "station/grains_refresh_seconds", said.value * 60, "translated", "minutes are seconds here")
    else:
        tell(wish, said, "not carried", "it is no number")


def _keep_seconds(_: Box, wish: Wish, said: Said) -> None:
    if isinstance(said.value, (int, float)) and said.value > 0:
        hours = max(said.value / 3600, 1)
        put(wish, said, "jobs/keep_hours", hours, "translated", "seconds are hours here, at least one")
    else:
        tell(wish, said, "not carried", "jobs.keep_hours is at least one hour")


def _beacons(_: Box, wish: Wish, said: Said) -> None:
    if not isinstance(said.value, Mapping):
        tell(wish, said, "not carried", "it is no mapping of beacons (docs/beacons.md)")
        return
    for name, options in said.value.items():
        entry = entry_of(said, str(name))
        if said.role == "proxy":
            words = "a device without an agent has none; the gateway looks for it: camera_stream in station.beacons"
            tell(wish, entry, "not carried", words)
        elif _beacon_kind(str(name), options) not in KINDS:
            tell(
                wish,
                entry,
                "not carried",
                "there is no such beacon: docs/beacons.md has those that there are, and how to write one",
            )
        else:
            put(wish, entry, f"station/beacons/{name}", options, "translated", "the gateway watches its machine")


def _beacon_kind(name: str, options: Any) -> str:
    listed = options if isinstance(options, list) else [options]
    return next(
        (str(each["beacon_module"]) for each in listed if isinstance(each, Mapping) and "beacon_module" in each), name
    )


def _engines(box: Box, wish: Wish, said: Said) -> None:
    listed = [{key: value} for key, value in said.value.items()] if isinstance(said.value, Mapping) else said.value
    for each in listed if isinstance(listed, list) else []:
        name, options = next(iter(each.items())) if isinstance(each, Mapping) and len(each) == 1 else (each, None)
        entry = entry_of(said, str(name)[:64])
        module = str(options.get("engine_module", name)) if isinstance(options, Mapping) else str(name)
        if module in box.own.engines:
            words = "its file has a verdict of its own"
            put(wish, entry, f"engines/{step(str(name))}", options, "carried", words)
        elif module in SALT_ENGINES - OURS:
            tell(
                wish,
                entry,
                "not carried",
                "it is one of Salt's own; docs/engines.md has those of this release, and how to bring one",
            )
        elif module in OURS:
            put(
                wish,
                entry,
                f"engines/{step(str(name))}",
                options,
                "carried",
                "its options are those of docs/engines.md",
            )
        else:
            words = f"put {module}.py into the folder engines of the state folder, or name its folder in engines_dirs"
            put(wish, entry, f"engines/{step(str(name))}", options, "carried", words)
    if not listed:
        tell(wish, said, "no meaning", "there is none in it")


def _mine(box: Box, wish: Wish, said: Said) -> None:
    if said.role == "proxy":
        words = "for each device that is reached over SSH"
        if missing := _not_here(box, said.value):
            words += f"; there is no function {', '.join(missing)[:200]} (docs/functions.md): take it out, or bring it"
        put(wish, said, f"ssh/{said.key}", said.value, "needs a change" if missing else "translated", words)
    else:
        tell(
            wish, said, "not carried", "say it in the settings of the agent of the device that it is for (docs/mine.md)"
        )


def _not_here(box: Box, said: Any) -> list[str]:
    """The functions of ``mine_functions`` that are neither of this release nor of the site's own."""
    try:
        made = [each.fun for each in mine.sound_calls(said)[0]] if isinstance(said, (list, Mapping)) else []
    except Refused:
        return []
    return [fun for fun in made if fun not in FUNCTIONS and fun.partition(".")[0] not in box.own.modules]


def _id(_: Box, wish: Wish, said: Said) -> None:
    if said.role == "proxy":
        tell(wish, said, "no meaning", "it names a process; the devices are listed by their own names")
    else:
        put(wish, said, "name", str(said.value), "translated", "the name of the site, and its id at the Salt masters")


Handler = Callable[[Box, Wish, Said], None]

HANDLERS: Final[dict[str, Handler]] = {
    "beacons": _beacons,
    "engines": _engines,
    "file_roots": _roots,
    "fileserver_backend": _backends,
    "grains": _grains,
    "grains_refresh_every": _grains_refresh,
    "id": _id,
    "keep_jobs_seconds": _keep_seconds,
    "log_level": _log_level,
    "mine_functions": _mine,
    "mine_interval": _mine,
    "nodegroups": _nodegroups,
    "pillar_roots": _roots,
    "schedule": take_schedule,
    "ssh_list_nodegroups": _ssh_nodegroups,
}
