"""The noun ``keys`` of ``api_double``: scripted keys, window and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.peers.api_double import ApiDouble

Fields = dict[str, Any]
STATE_AFTER = {"accept": "accepted", "reject": "rejected", "revoke": "revoked"}


def got(api: ApiDouble, rest: Sequence[str], query: Mapping[str, str]) -> Fields | None:
    """What a GET below ``/keys`` is answered; None for what is not there."""
    match rest:
        case []:
            own = {"public_key": "k" * 40, "fingerprint": "own"}
            meant = [key for key in api.keys if _named(key, query.get("name"))]
            meant = [key for key in meant if query.get("kind") in {None, key.get("kind", "site")}]
            meant = [key for key in meant if query.get("state") in {None, key["state"]}]
            return {"station": own, "keys": meant, "next": None}
        case ["matching"]:
            return {"keys": [key for key in api.keys if fnmatchcase(key["serial"], query["serial"])]}
        case ["expected"]:
            return {"expected": api.expected}
        case ["window"]:
            return api.window
        case ["tokens"]:
            return {"tokens": api.join_tokens}
        case _:
            return None


def posted(api: ApiDouble, rest: Sequence[str], body: Fields) -> Fields | None:
    """What a POST below ``/keys`` is answered; None for what is not there."""
    match rest:
        case ["matching"]:
            changed = [{**key, "state": "accepted"} for key in api.keys if key["did"] in body["dids"]]
            return {"keys": changed, "waiting": api.waiting}
        case ["expected"]:
            return {"keys": [], "expected": len(body["keys"]), "waiting": api.waiting}
        case ["window", ("open" | "close") as verdict]:
            api.window = {**api.window, "window": {**api.window["window"], "open": verdict == "open"}}
            return api.window
        case ["tokens"]:
            return {"tokens": [{**api.join_tokens[0], "text": f"TOKEN {each}"} for each in range(body["count"])]}
        case ["tokens", token, "revoke"]:
            return next(({**each, "state": "revoked"} for each in api.join_tokens if each["id"] == token), None)
        case [name, ("accept" | "reject" | "revoke") as verdict]:
            if verdict == "reject" and name in [entry["key"] for entry in api.expected]:
                return {"keys": [], "expected_no_more": [name]}
            changed = [{**key, "state": STATE_AFTER[verdict]} for key in api.keys if _named(key, name)]
            return {"keys": changed, **({"bundle": "os-bundle:abc"} if "request" in body else {})}
        case _:
            return None


def _named(key: Fields, name: str | None) -> bool:
    if name is None:
        return True
    named = (key["site"],) if key.get("kind", "site") == "site" else (key["name"], key["did"], key["serial"])
    return name in (*named, key.get("fingerprint"))
