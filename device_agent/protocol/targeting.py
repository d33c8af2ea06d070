r"""Which devices a job is for, in Salt's words. Stations choose with it; each device checks with it that it is meant.

    glob        cam-*                     fnmatch on the id
    list        cam-1,cam-2               exactly these ids
    pcre        cam-(1|2)\d                a Python regular expression, anchored at the start of the id only
    grain       os:Debian                 key:glob, nested with more ':'; see ``grain_match``
    grain_pcre  os:(debian|ubuntu)        key:regular-expression
    ipcidr      192.0.2.0/24              an address or a network; see ``addresses``
    range       cam[1-20],-cam7           names by number; see ``ranges``
    pillar      onvif:port:80*            as grain, in what the device's station gives it; pillar_exact, pillar_pcre
    compound    G@os:Debian and not cam-1*     G@ P@ I@ J@ E@ L@ S@ R@, a bare word is a glob; and, or, not, ( )

Source: https://docs.saltproject.io/en/latest/topics/targeting/compound.html; docs/targets.md says what differs. Where
Salt quietly matches nothing, because a compound does not parse or an engine is missing, this raises and says what was
wrong. A nodegroup is none of these: the station where a job is issued replaces it, since no device knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

from device_agent.errors import UsageInvalid
from device_agent.protocol import limits, target_terms
from device_agent.protocol.compound import OPERATORS, Compound, Engine
from device_agent.protocol.messages import TargetType
from device_agent.protocol.target_terms import PATTERN_CHARACTERS, Because, Known, Term, shown

__all__ = [
    "OPERATORS",
    "Because",
    "Engine",
    "Target",
    "compile_compound",
    "compile_names",
    "compile_target",
    "unknown_kind",
]

_COMPILERS: dict[str, Callable[[str, str], Term]] = {
    "glob": target_terms.glob_term,
    "list": target_terms.list_term,
    "pcre": target_terms.pcre_term,
    "grain": target_terms.grain_term,
    "grain_pcre": target_terms.grain_pattern_term,
    "pillar": target_terms.pillar_term,
    "pillar_exact": target_terms.pillar_exact_term,
    "pillar_pcre": target_terms.pillar_pattern_term,
    "ipcidr": target_terms.address_term,
    "range": target_terms.range_term,
    "compound": lambda text, _where: Compound(text).term(),
}


@dataclass(frozen=True, slots=True)
class Target:
    """A target that parsed."""

    tgt: str
    tgt_type: TargetType
    _term: Term

    @property
    def needs_pillar(self) -> bool:
        """Whether it asks for pillar: then it means nobody whose grains are not ``Known``."""
        return self._term.needs_pillar

    def matches(self, device_id: str, grains: Mapping[str, Any]) -> bool:
        """Whether this device is meant. Never raises, whatever the grains hold."""
        if self._term.needs_pillar and not isinstance(grains, Known):
            return False
        return self._term.test(device_id, grains)

    def why(self, device_id: str, grains: Mapping[str, Any]) -> list[Because]:
        """Which terms were true of a device that is meant."""
        return self._term.why(device_id, grains)


def compile_target(tgt: str, tgt_type: TargetType) -> Target:
    """A target ready to be held against many devices. Raises ``UsageInvalid``, naming the term that is wrong.

    Bounded: length, terms, nesting, the length of each pattern, and the work of a regular expression (``patterns``).
    """
    if tgt_type not in _COMPILERS:
        raise unknown_kind(tgt_type)
    _check_length(tgt)
    return _compile_short(tgt, tgt_type) if len(tgt) <= PATTERN_CHARACTERS else _compile_long(tgt, tgt_type)


def compile_compound(tgt: str, more: Mapping[str, Engine]) -> Target:
    """A compound target with engines that are known here alone: it is never signed so. Raises ``UsageInvalid``."""
    _check_length(tgt)
    return Target(tgt, "compound", Compound(tgt, more).term())


def compile_names(tgt: str) -> Target:
    """A list of however many names: what is signed of it has no more than others. Raises ``UsageInvalid``."""
    return Target(tgt, "list", target_terms.list_term(tgt, "tgt"))


def _check_length(tgt: str) -> None:
    if len(tgt) > limits.TARGET_CHARACTERS:
        raise UsageInvalid(
            "the target is too long",
            where="tgt",
            found=f"{len(tgt)} characters",
            allowed=f"at most {limits.TARGET_CHARACTERS}",
            hint="split the job, or use a glob or a grain",
        )


def unknown_kind(tgt_type: str, *more: str) -> UsageInvalid:
    """The error for a kind of target that is not there; ``more`` are those that are understood beside ours."""
    allowed = ", ".join([*get_args(TargetType), *more])
    return UsageInvalid("there is no such kind of target", where="tgt_type", found=shown(tgt_type), allowed=allowed)


def _compile(tgt: str, tgt_type: TargetType) -> Target:
    return Target(tgt, tgt_type, _COMPILERS[tgt_type](tgt, "tgt"))


# Ten thousand devices in one process check the same target. Long ones hold thousands of ids, so few of them are kept.
_compile_short = lru_cache(maxsize=64)(_compile)
_compile_long = lru_cache(maxsize=2)(_compile)
