"""What is configured of one beacon, read option by option. Pure.

The configuration of a beacon is a list of mappings, as in Salt. Sentences about what is wrong begin with Salt's, and go
on with what was found and how it is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar

from msgspec import Struct

from device_agent.errors import OutstationError
from device_agent.protocol.patterns import Unreadable, compile_pattern

INTERVAL_MOST: Final = 86_400.0 * 31
FOLD_SECONDS: Final = 300.0
"""Unless ``fold`` says otherwise, what a beacon keeps saying is said once in so long."""

TIMEOUT_SECONDS: Final = 30.0
TIMEOUT_MOST: Final = 300.0
COMMON: Final = frozenset(
    {
        "beacon_module",
        "disable_during_state_run",
        "emitatstartup",
        "enabled",
        "fold",
        "interval",
        "onchangeonly",
        "run_once",
        "timeout",
    }
)
"""Options that every beacon has."""

_PERCENT: Final = re.compile(r"\s*(\d{1,3}(?:\.\d{1,6})?)\s*%?\s*")

T = TypeVar("T")


class InvalidBeacon(OutstationError):
    """A beacon cannot be configured so."""

    default_id: ClassVar[str] = "beacon.invalid"


class NotThere(InvalidBeacon):
    """There is no such beacon; one that the site brings may be there later."""

    default_id: ClassVar[str] = "beacon.not_there"


class Options(Struct, frozen=True):
    """What every beacon can be told. Times are seconds; an ``interval`` of None is the beacon's own."""

    interval: float | None = None
    enabled: bool = True
    onchangeonly: bool = False
    emitatstartup: bool = True
    disable_during_state_run: bool = False
    run_once: bool = False
    fold: float = FOLD_SECONDS
    timeout: float = TIMEOUT_SECONDS


class Given:
    """The configuration of one beacon. ``module`` is which beacon it is, ``name`` what it is called."""

    def __init__(self, name: str, data: Any) -> None:
        self.name: Final = name
        self.module = name
        if not isinstance(data, list):
            raise self.wrong("must be a list.", data, "each option is an item: - interval: 60")
        self.items: list[tuple[str, Any]] = []
        """Every option but those that all beacons have, in their order."""
        common: dict[str, Any] = {}
        for item in data:
            if not isinstance(item, Mapping):
                raise self.wrong("must be a list of dictionaries.", item, "each option is an item: - interval: 60")
            for key, value in item.items():
                if not isinstance(key, str):
                    raise self.wrong("must have words as its options.", key, "quote it")
                if key in COMMON:
                    common[key] = value
                elif not key.startswith("_"):
                    self.items.append((key, value))
        self.values: Final = dict(self.items)
        self.rest: Final = [rest for item in data if (rest := {k: v for k, v in item.items() if k not in COMMON})]
        """The list as it is written, without the options that all beacons have."""
        module = common.get("beacon_module", name)
        if not isinstance(module, str) or not module:
            raise self.wrong("option beacon_module must be the name of a beacon.", module)
        self.module = module
        self.options: Final = self._options(common)

    def _options(self, common: dict[str, Any]) -> Options:
        switches = {
            key: common[key]
            for key in ("enabled", "onchangeonly", "emitatstartup", "disable_during_state_run", "run_once")
            if key in common
        }
        for key, value in switches.items():
            if not isinstance(value, bool):
                raise self.wrong(f"option {key} must be a boolean.", value, f"{key}: true or {key}: false")
        # Salt takes an interval of 0 or false for none.
        interval = common.get("interval") or None
        return Options(
            interval=None if interval is None else self.number("interval", interval, 0.1, INTERVAL_MOST),
            fold=self.number("fold", common.get("fold", FOLD_SECONDS), 0.0, INTERVAL_MOST),
            timeout=self.number("timeout", common.get("timeout", TIMEOUT_SECONDS), 0.1, TIMEOUT_MOST),
            **switches,
        )

    # --- what the beacons take of it -------------------------------------------------------------------------------

    def only(self, *names: str) -> None:
        """Raises ``InvalidBeacon`` for any option but these and those that all beacons have."""
        for name in self.values:
            if name not in names:
                allowed = ", ".join([*sorted(names), *sorted(COMMON)])
                raise InvalidBeacon(
                    f"Configuration for {self.module} beacon has no option {name[:80]}.",
                    where=f"beacons.{self.name}",
                    found=name[:80],
                    allowed=allowed,
                )

    def number(self, option: str, value: Any, least: float, most: float) -> float:
        """A number within bounds."""
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                value = None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.wrong(f"option {option} must be a number.", value, f"{least:g} to {most:g}")
        if not least <= value <= most:
            raise self.wrong(f"option {option} must be {least:g} to {most:g}.", value)
        return float(value)

    def percent(self, option: str, value: Any) -> float:
        """A number of percent, with its sign or without."""
        text = f"{value:.6f}" if isinstance(value, float) and math.isfinite(value) else str(value)
        found = _PERCENT.fullmatch(text)
        if isinstance(value, bool) or found is None or float(found[1]) > 100:
            raise self.wrong(f"option {option} must be a percentage.", value, "80% or 80")
        return float(found[1])

    def typed(self, option: str, value: Any, kind: type[T], words: str, how: str = "") -> T:
        """A value of one kind; ``words`` is what Salt calls the kind."""
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(f"option {option} must be {words}.", value, how)
        return value

    def regex(self, option: str, value: Any) -> Callable[[str], bool]:
        """A regular expression, as a test whether a text begins so; one that could take for ever is wrong."""
        try:
            return compile_pattern(self.typed(option, value, str, "a regular expression"))
        except (re.error, ValueError, OverflowError, RecursionError, Unreadable) as error:
            raise self.wrong(f"option {option} is no regular expression that is taken: {error}.", value) from None

    def wrong(self, must: str, found: Any, how: str = "") -> InvalidBeacon:
        """What is wrong with the configuration as a whole, or with one of its options."""
        return self.says(f"Configuration for {self.module} beacon {must}", found, how)

    def says(self, sentence: str, found: Any = None, how: str = "") -> InvalidBeacon:
        """The same in other words, where Salt has others."""
        shown = None if found is None else repr(found)[:120]
        return InvalidBeacon(sentence, where=f"beacons.{self.name}", found=shown, hint=how or None)
