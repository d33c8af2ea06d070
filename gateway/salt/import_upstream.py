"""Which Salt masters a box had above it, and how it held to them: the section ``upstream``. Pure.

A syndic goes up by ``syndic_master`` and what is said beside it, and for the rest by the minion's file; the
``master_finger`` there is of another master. Without a syndic the proxies go up, or the minion, each by its own file.
What makes out a master is carried from whoever went to those above, and from nobody whose master was another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.salt.import_findings import Finding, Said, Wish
from gateway.salt.import_keys import UPSTREAM
from gateway.salt.import_read import Box

SYNDIC: Final = {"syndic_master": "masters", "syndic_master_port": "master_port", "syndic_finger": "master_finger"}
MASTER_KEYS: Final = frozenset(
    {"master", "master_type", "random_master", "master_shuffle", "master_port", "publish_port"}
)
UPSTREAM_KEYS: Final = frozenset({*UPSTREAM, *SYNDIC, *MASTER_KEYS, "proxy"})
ITS_OWN: Final = frozenset(
    {
        "always_verify_signature",
        "master_finger",
        "master_port",
        "master_sign_key_name",
        "publish_port",
        "verify_master_pubkey_sign",
    }
)
"""Keys that are about one master, and wrong for another."""

TYPES: Final = ("str", "failover", "hot")
MD5_COLONS: Final = 15
HERE: Final = frozenset({"localhost", "127.0.0.1", "::1", "salt"})
BELOW: Final = "it was for those below; devices come to the gateway (docs/enrollment.md)"
HERE_WORDS: Final = "it is about the Salt master of this box, whose place the gateway takes"
NO_SYNDIC: Final = "no syndic_master is named, so there is no syndic to read it"
FINGER_MISSING: Final = (
    "no fingerprint: write upstream.master_finger, as salt-key -F says there; else the first is kept"
)


@dataclass(frozen=True)
class Above:
    """Who went to the masters above: a syndic, or whoever has this role; nobody where none is named."""

    syndic: bool
    role: str
    named: tuple[str, ...]


def take_upstream(box: Box, wish: Wish) -> None:
    """The section ``upstream`` with whatever the syndic, the proxies and the minion said of the masters above."""
    above = _above(box)
    # As Salt puts a syndic's settings together: what the minion's file says goes before.
    for role in ("minion", "master"):
        for said in _of(box, role):
            if said.key in SYNDIC:
                _syndic(wish, above, said)
    for said in _of(box, "master"):
        if said.key in MASTER_KEYS or said.key in UPSTREAM:
            _tell(wish, said, "no meaning", BELOW)
    # Who went there has the first word on how.
    for role in sorted(("proxy", "minion"), key=lambda each: each != above.role):
        for said in _of(box, role):
            if said.key in SYNDIC and role == "proxy":
                _tell(wish, said, "no meaning", "a syndic reads the master's file and the minion's, and not this one")
            elif said.key in UPSTREAM or said.key in MASTER_KEYS:
                _key(box, wish, above, said)
    if "upstream/masters" not in wish.origins:
        _leave_out(wish)
    elif not any(wish.settings["upstream"].get(key) for key in ("master_finger", "verify_master_pubkey_sign")):
        _say_that_a_finger_is_missing(wish)


def _above(box: Box) -> Above:
    if syndic := next(filter(None, (box.value(role, "syndic_master") for role in ("minion", "master"))), None):
        return Above(True, "minion", tuple(_listed(syndic)))
    for role in ("proxy", "minion"):
        named = _listed(box.value(role, "master"))
        if named and not _here(box, named):
            return Above(False, role, tuple(named))
    return Above(False, "", ())


def _of(box: Box, role: str) -> list[Said]:
    found: Mapping[str, Said] = box.said.get(role, {})
    return list(found.values())


def _here(box: Box, named: list[str]) -> bool:
    """Whether these are the Salt master of the box itself."""
    return bool(box.said.get("master")) and all(each.rpartition("//")[2].split(":")[0] in HERE for each in named)


def _syndic(wish: Wish, above: Above, said: Said) -> None:
    if not above.syndic:
        _tell(wish, said, "no meaning", NO_SYNDIC)
        return
    value = _listed(said.value) if said.key == "syndic_master" else said.value
    words = ""
    if said.key == "syndic_finger" and said.role == "master":
        words = "Salt reads it in the minion's file alone, so nobody compared it here: do so, salt-key -F there"
    _put(wish, said, SYNDIC[said.key], value, translated=True, words=words)


def _not_of_those_above(box: Box, above: Above, said: Said) -> str:
    """Why a key is about another master than those above; empty where it is not."""
    if said.key not in ITS_OWN:
        return ""
    named = _listed(box.value(said.role, "master"))
    if above.syndic and said.role == "minion":
        return (
            "it is about the master of this minion; Salt's syndic knows syndic_finger alone"
            if said.key == "master_finger"
            else ""
        )
    if above.syndic:
        return HERE_WORDS if not named or _here(box, named) else "the syndic, which goes up, does not read this file"
    if said.role == above.role or (not named and not above.role):
        return ""
    if not named or _here(box, named):
        return HERE_WORDS if box.said.get("master") else "no master is named beside it"
    return "" if set(named) == set(above.named) else "it is about the masters that are named beside it, and not used"


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


def _say_that_a_finger_is_missing(wish: Wish) -> None:
    where = wish.origins["upstream/masters"]
    wish.findings = [
        replace(each, words=FINGER_MISSING) if (each.where, each.to) == (where, "upstream.masters") else each
        for each in wish.findings
    ]


def _key(box: Box, wish: Wish, above: Above, said: Said) -> None:
    if why := _not_of_those_above(box, above, said):
        _tell(wish, said, "no meaning", why)
        return
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
        case "verify_master_pubkey_sign" if said.value:
            _put(wish, said, said.key, said.value, words="copy the signing key to the gateway too (docs/salt.md)")
        case key:
            _put(wish, said, key, said.value)


def _masters(box: Box, wish: Wish, said: Said) -> None:
    named = _listed(said.value)
    if "upstream/masters" in wish.origins:
        _tell(wish, said, "no meaning", f"{wish.origins['upstream/masters']} says who is above")
    elif _here(box, named):
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
