"""``salt['module.function'](…)`` in a template: the functions that need nothing but the device's grains and pillar.

In a reactor's file every other name is a runner of the station that only looks: the station is asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any

from device_agent.traverse import ABSENT, traversed
from gateway.devices.pillar_merge import update
from gateway.render_functions import FUNCTIONS
from gateway.render_reads import Reads
from gateway.render_shown import plain


class NotCallable(Exception):
    """A function that a template may not call here."""


class Calls(Mapping[str, Callable[..., Any]]):
    """The functions by name, as items and as ``salt.module.function``."""

    def __init__(self, reads: Reads, pillar: Mapping[str, Any]) -> None:
        self._reads = reads
        self._pillar = pillar
        self._functions: dict[str, Callable[..., Any]] = {
            "config.get": self._config,
            "config.option": self._config,
            "grains.equals": lambda key, value: str(self._grain(key, "")) == str(value),
            "grains.fetch": self._grain,
            "grains.filter_by": self._filter_by,
            "grains.get": self._grain,
            "grains.has_value": lambda key: self._grain(key, None) not in (None, ""),
            "grains.item": lambda *names: {name: self._grain(name, "") for name in names},
            "grains.items": lambda: plain(reads.grains),
            "grains.ls": lambda: sorted(reads.grains),
            "match.filter_by": self._match_filter_by,
            "match.ifelse": self._ifelse,
            "match.ipcidr": lambda tgt: reads.meant(tgt, "ipcidr"),
            "match.compound": lambda tgt: reads.meant(tgt, "compound"),
            "match.glob": lambda tgt: reads.meant(tgt, "glob"),
            "match.grain": lambda tgt: reads.meant(tgt, "grain"),
            "match.grain_pcre": lambda tgt: reads.meant(tgt, "grain_pcre"),
            "match.list": lambda tgt: reads.meant(tgt, "list"),
            "match.pcre": lambda tgt: reads.meant(tgt, "pcre"),
            "pillar.get": self._pillar_get,
            "pillar.item": lambda *names: {name: self._pillar_get(name) for name in names},
            "pillar.keys": self._pillar_keys,
            **FUNCTIONS,
        }

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in self._functions and (call := self._reads.call) is not None:
            return lambda *arg, **kwarg: call(name, arg, kwarg)
        if name not in self._functions:
            raise NotCallable(f"{name} cannot be called in a template; these can: {', '.join(self._functions)}")
        return self._functions[name]

    def __getattr__(self, module: str) -> Any:
        if module.startswith("_"):
            raise AttributeError(module)
        return _Module(self, module)

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def _grain(self, key: str, default: Any = "", delimiter: str = ":", ordered: bool = True) -> Any:  # noqa: ARG002 - Salt's argument; what is returned is always ordered
        first, _, rest = key.partition(delimiter)
        grains = self._reads.grains
        if first not in grains:
            return default
        found = traversed(grains[first], rest, delimiter) if rest else grains[first]
        return default if found is ABSENT else found

    def _filter_by(
        self,
        lookup_dict: Mapping[str, Any],
        grain: str = "os_family",
        merge: Mapping[str, Any] | None = None,
        default: str = "default",
        base: str | None = None,
    ) -> Any:
        value = self._grain(grain, [])
        named = [str(each) for each in (value if isinstance(value, list) else [value])]
        hits = (lookup_dict[key] for name in named for key in lookup_dict if fnmatchcase(name, str(key)))
        found = plain(next(hits, lookup_dict.get(default)))
        if base is not None and base in lookup_dict:
            below = deepcopy(plain(lookup_dict[base]))
            found = below if found is None else update(below, found)
        if merge is None:
            return found
        return plain(merge) if found is None else update(deepcopy(found), plain(merge))

    def _pillar_get(self, key: str, default: Any = "", merge: bool = False, delimiter: str = ":") -> Any:
        found = traversed(self._pillar, key, delimiter)
        if found is ABSENT:
            return default
        if merge and isinstance(default, Mapping) and isinstance(found, Mapping):
            return update(deepcopy(plain(default)), plain(found))
        return found

    def _pillar_keys(self, key: str, delimiter: str = ":") -> list[Any]:
        found = traversed(self._pillar, key, delimiter)
        if found is ABSENT:
            raise KeyError(f"Pillar key not found: {key}")
        if not isinstance(found, Mapping):
            raise TypeError(f"Pillar value in key {key} is not a dict")
        return list(found)

    def _match_filter_by(
        self,
        lookup: Mapping[str, Any],
        tgt_type: str = "compound",
        merge: Mapping[str, Any] | None = None,
        merge_lists: bool = False,
        default: str = "default",
    ) -> Any:
        for target, value in lookup.items():
            if self._reads.meant(target, tgt_type):
                found = plain(value)
                if not merge:
                    return found
                above = deepcopy(plain(merge))
                return above if found is None else update(deepcopy(found), above, lists=merge_lists)
        return plain(lookup.get(default))

    def _ifelse(
        self, *pairs: Any, tgt_type: str = "compound", merge: Mapping[str, Any] | None = None, merge_lists: bool = False
    ) -> Any:
        if len(pairs) % 2 == 0:
            raise TypeError("The ifelse function must have an odd number of arguments!")
        for target, value in zip(pairs[::2], pairs[1::2], strict=False):
            if target is True or (target is not False and self._reads.meant(target, tgt_type)):
                return self._match_filter_by({"*": value}, "glob", merge, merge_lists)
        return pairs[-1]

    def _config(self, key: str, default: Any = "", delimiter: str = ":") -> Any:
        found = self._grain(key, ABSENT, delimiter)
        return self._pillar_get(key, default, delimiter=delimiter) if found is ABSENT else found


class _Module:
    def __init__(self, calls: Calls, name: str) -> None:
        self._calls = calls
        self._name = name

    def __getattr__(self, function: str) -> Callable[..., Any]:
        if function.startswith("_"):
            raise AttributeError(function)
        return self._calls[f"{self._name}.{function}"]
