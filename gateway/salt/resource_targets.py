"""Targets by resource, which a Salt master may order by: ``T@type``, ``T@type:id`` and ``M@`` with a gateway's id.

No device knows of them, so they are resolved here, and what is signed names the devices. As for a stock minion that
has no such resource, they mean nobody where they are somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from device_agent.errors import UsageInvalid
from device_agent.protocol.compound import engine_of
from device_agent.protocol.stations import devices_alone
from device_agent.protocol.target_terms import Because, Term, shown
from device_agent.protocol.targeting import Engine, Target, compile_compound
from gateway.devices.device import Device
from gateway.jobs.nodegroups import TypedKind
from gateway.salt.resource_inventory import ResourceRules

ENGINES: Final = frozenset({"T", "M"})


def by_resource(tgt: str, kind: TypedKind) -> bool:
    """Whether this target asks for resources."""
    return kind == "compound" and any((engine_of(word) or ("",))[0] in ENGINES for word in tgt.split())


class ResourceTargets:
    """Resolves them. Without ``rules`` nothing here is a resource."""

    def __init__(self, gateway: str, rules: ResourceRules | None, devices: Callable[[], Iterable[Device]]) -> None:
        self._gateway = gateway
        self._rules = rules
        self._devices = devices

    def compiled(self, tgt: str) -> Target:
        """A compound target with such words. Raises ``UsageInvalid``."""
        types = self._rules.types(self._devices()) if self._rules is not None else {}

        def by_type(text: str, where: str) -> Term:
            kind, _, name = _given(text, where, "T@TYPE or T@TYPE:ID").partition(":")
            ids = types.get(kind, set())
            return _these(f"T@{text}", ids & {name} if name else ids)

        def by_manager(text: str, where: str) -> Term:
            ours = _given(text, where, "M@ID") == self._gateway
            # As of a stock minion: the manager itself is meant too.
            return _these(f"M@{text}", {self._gateway}.union(*types.values()) if ours else set())

        engines: dict[str, Engine] = {"T": by_type, "M": by_manager}
        return compile_compound(tgt, engines)

    def signed(self, tgt: str, kind: TypedKind, meant: Sequence[Device]) -> tuple[str, TypedKind]:
        """The target by which those whom it means are ordered: one that each of them can judge."""
        if not by_resource(tgt, kind):
            return tgt, kind
        ids = {device.id for device in meant}
        if ids == {device.id for device in devices_alone(self._devices())}:
            return "*", "glob"
        return ",".join(sorted(ids)), "list"


def _given(text: str, where: str, allowed: str) -> str:
    if not text:
        raise UsageInvalid("a resource target is empty", where=where, found=shown(text), allowed=allowed)
    return text


def _these(words: str, ids: set[str]) -> Term:
    return Term(words, lambda name, _grains: name in ids, lambda name, _grains: [Because(words, name)])
