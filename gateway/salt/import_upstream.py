"""Which Salt masters a box had above it, and how it held to them: the section ``upstream``. Pure."""

from __future__ import annotations

from typing import Any, Final

from gateway.salt.import_findings import Finding, Said, Wish
from gateway.salt.import_keys import UPSTREAM
from gateway.salt.import_read import Box

SYNDIC: Final = {"syndic_master": "masters", "syndic_master_port": "master_port", "syndic_finger": "master_finger"}
MASTER_KEYS: Final = frozenset(
    {"master", "master_type", "random_master", "master_shuffle", "master_port", "publish_port"}
)
UPSTREAM_KEYS: Final = frozenset({*UPSTREAM, *SYNDIC, *MASTER_KEYS, "proxy"})
TYPES: Final = ("str", "failover", "hot")
MD5_COLONS: Final = 15
HERE: Final = frozenset({"localhost", "127.0.0.1", "::1", "salt"})


def take_upstream(box: Box, wish: Wish) -> None:
    """The section ``upstream`` with whatever the syndic, the proxies and the minion said of the masters above."""
    syndic = box.said.get("master", {})
    for said in syndic.values():
        if said.key in SYNDIC:
            value = _listed(said.value) if said.key == "syndic_master" else said.value
            _put(wish, said, SYNDIC[said.key], value, translated=True)
        elif said.key in MASTER_KEYS or said.key in UPSTREAM:
            _tell(wish, said, "no meaning", "it was for those below; devices come to the gateway (docs/enrollment.md)")
    for role in ("proxy", "minion"):
        for said in box.said.get(role, {}).values():
            if said.key in SYNDIC:
                _put(wish, said, SYNDIC[said.key], said.value, translated=True)
            elif said.key in UPSTREAM or said.key in MASTER_KEYS:
                _key(box, wish, said)
    if "upstream/masters" not in wish.origins:
        _leave_out(wish)


def _leave_out(wish: Wish) -> None:
    """Without a master there is nothing for the rest to be about."""
    for path in [path for path in wish.origins if path.startswith("upstream/")]:
        where, to = wish.origins[path], path.replace("/", ".")
        wish.drop(path)
        words = "no Salt master is named; write upstream: {type: salt, masters: [HOST]}, and this beside it"
        wish.findings = [
            Finding("not carried", each.what, where, words) if (each.where, each.to) == (where, to) else each
            for each in wish.findings
        ]


def _key(box: Box, wish: Wish, said: Said) -> None:
    match said.key:
        case "master":
            _masters(box, wish, said)
        case "master_type" if said.value == "disable":
            _tell(wish, said, "not carried", "leave out the section upstream, and the gateway asks no Salt master")
        case "master_type" if said.value not in TYPES:
            _tell(wish, said, "not carried", f"{str(said.value)[:40]!r} is not there; write {', '.join(TYPES)}")
        case "random_master" | "master_shuffle":
            words = "the order is drawn once at the start"
            _put(wish, said, "master_shuffle", said.value, translated=said.key == "random_master", words=words)
        case key:
            _put(wish, said, key, said.value)


def _masters(box: Box, wish: Wish, said: Said) -> None:
    named = _listed(said.value)
    if "upstream/masters" in wish.origins:
        _tell(wish, said, "no meaning", f"{wish.origins['upstream/masters']} says who is above")
    elif box.said.get("master") and all(each.rpartition("//")[2].split(":")[0] in HERE for each in named):
        _tell(wish, said, "no meaning", "it is the Salt master of this box, whose place the gateway takes")
    elif not named:
        _tell(wish, said, "not carried", "it names no host")
    else:
        _put(wish, said, "masters", named, translated=not isinstance(said.value, list))


def _listed(value: Any) -> list[str]:
    return [str(each) for each in (value if isinstance(value, list) else [value]) if each]


def _put(wish: Wish, said: Said, key: str, value: Any, *, translated: bool = False, words: str = "") -> None:
    path = f"upstream/{key}"
    if key == "master_finger" and str(value).count(":") == MD5_COLONS:
        words = "it is an MD5, which Salt itself takes no more: read it anew, salt-key -F on the master"
        _tell(wish, said, "not carried", words)
        return
    if key == "masters":
        wish.put("upstream/type", "salt", said.where)
    if wish.put(path, value, said.where):
        _tell(wish, said, "translated" if translated else "carried", words, path.replace("/", "."))
    else:
        _tell(wish, said, "no meaning", f"{wish.origins[path]} says it for the whole gateway")


def _tell(wish: Wish, said: Said, verdict: Any, words: str, to: str = "") -> None:
    wish.findings.append(Finding(verdict, said.key, said.where, words, to))
