"""Brings the modules that a station serves to a party that asked for them: the list first, then what it names.

A file that was not released is not fetched. What a station serves no more is removed here too. One that is refused does
not keep the others out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from device_agent.custom.kinds import LIST, LIST_BYTES, MODULE_BYTES, MODULES_MAX, name_of, passed_over
from device_agent.errors import Refused


class Found(NamedTuple):
    """A file as it is served now."""

    size: int
    sha256: bytes


class CodeSource(Protocol):
    """Where code is fetched from: the files of a station."""

    async def paths(self, saltenv: str, under: str) -> list[str]:
        """What stands under a folder, in the whole of it."""

    async def find(self, saltenv: str, path: str) -> Found | None:
        """What stands at a path; None for nothing."""

    async def read(self, saltenv: str, path: str, found: Found) -> bytes:
        """What was found there. Raises ``Refused`` when it is another file by now."""


class Keeper(Protocol):
    """Who keeps it (``modules.CustomModules``)."""

    def take_list(self, body: bytes) -> bool: ...

    def check(self, path: str, sha256: bytes) -> None: ...

    def check_name(self, path: str) -> None: ...

    def hashes(self, kind: str) -> dict[str, bytes]: ...

    def keep(self, path: str, body: bytes) -> None: ...

    def remove(self, path: str) -> None: ...

    def refuse(self, path: str, refusal: Refused) -> None: ...


class Synced(Struct):
    """What changed, by kind, as ``kind.name``, and what was refused, by path."""

    changed: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, Refused] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """Every refusal in words."""
        return "; ".join(str(refusal) for refusal in self.refused.values())


async def sync(keeper: Keeper, source: CodeSource, kinds: Sequence[str], saltenvs: Sequence[str]) -> Synced:
    """Bring these kinds from these environments; of two files with one name the one of the later environment."""
    synced = Synced()
    for saltenv in saltenvs:
        await _take_list(keeper, source, saltenv, synced)
    for kind in kinds:
        await _sync_kind(keeper, source, kind, saltenvs, synced)
    return synced


async def _take_list(keeper: Keeper, source: CodeSource, saltenv: str, synced: Synced) -> None:
    """The list of an environment. One that is refused leaves the one that is known."""
    found = await source.find(saltenv, LIST)
    if found is None:
        return
    try:
        if found.size > LIST_BYTES:
            raise Refused("oversized", f"{found.size} bytes, at most {LIST_BYTES}")
        keeper.take_list(await _fetched(source, saltenv, LIST, found))
    except Refused as refusal:
        detail = refusal.detail.removeprefix(f"{LIST}: ")
        synced.refused[LIST] = Refused(refusal.reason, f"{LIST}: {detail}")


async def _sync_kind(keeper: Keeper, source: CodeSource, kind: str, saltenvs: Sequence[str], synced: Synced) -> None:
    served: dict[str, str] = {}
    for saltenv in saltenvs:
        served |= {path: saltenv for path in await source.paths(saltenv, f"_{kind}") if not passed_over(path)}
    kept = keeper.hashes(kind)
    changed = synced.changed.setdefault(kind, [])
    for place, (path, saltenv) in enumerate(sorted(served.items())):
        try:
            if place >= MODULES_MAX:
                raise Refused("too_many", f"{path}: at most {MODULES_MAX} {kind}")
            keeper.check_name(path)
            found = await source.find(saltenv, path)
            if found is None:
                served.pop(path)
                continue
            keeper.check(path, found.sha256)
            if kept.get(path) == found.sha256:
                continue
            if found.size > MODULE_BYTES:
                raise Refused("oversized", f"{path}: {found.size} bytes, at most {MODULE_BYTES}")
            keeper.keep(path, await _fetched(source, saltenv, path, found))
            changed.append(f"{kind}.{name_of(path)}")
        except Refused as refusal:
            synced.refused[path] = refusal
            keeper.refuse(path, refusal)
    for path in kept.keys() - served.keys():
        keeper.remove(path)


async def _fetched(source: CodeSource, saltenv: str, path: str, found: Found) -> bytes:
    body = await source.read(saltenv, path, found)
    if len(body) != found.size or hashlib.sha256(body).digest() != found.sha256:
        raise Refused("altered", f"{path}: what came is not what was found")
    return body
