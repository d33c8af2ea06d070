"""What a typed target is signed as: nodegroups and clusters are replaced by what they stand for.

A device judges its own name and grains and knows no nodegroup of any station, so nothing is signed that needs one.
Syntax and meaning are Salt's; only that a group always counts as one, as if in parentheses, is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from device_agent.errors import ConfigInvalid, UsageInvalid
from device_agent.protocol import limits
from device_agent.protocol.compound import OPERATORS, engine_of
from device_agent.protocol.messages import TargetType
from device_agent.protocol.ranges import NotARange, operands
from device_agent.protocol.target_terms import shown
from device_agent.protocol.targeting import compile_target, unknown_kind
from device_agent.settings import places

Definition = str | list[str]
TypedKind = Literal[TargetType, "nodegroup"]

WORDS = 4 * limits.TARGET_TERMS
"""Most words that groups of groups may stand for."""

NAMES_SHOWN = 20
_REGULAR = frozenset("([{\\?}])")


class Nodegroups:
    """The groups that count now."""

    def __init__(self, defined: Mapping[str, Definition] | None = None) -> None:
        self._defined = dict(defined or {})

    def use(self, defined: Mapping[str, Definition]) -> None:
        """Take other groups from now on; what is signed stays signed."""
        self._defined = dict(defined)

    def signed(self, tgt: str, tgt_type: str, delimiter: str = ":") -> tuple[str, TargetType]:
        """The target and its kind, as a device can judge it. Raises ``UsageInvalid``."""
        if delimiter != ":":
            return _with_delimiter(tgt, tgt_type, delimiter), "compound"
        if tgt_type == "nodegroup":
            return " ".join(self._group(tgt.strip(), "tgt", ())), "compound"
        for kind in get_args(TargetType):
            if kind != tgt_type:
                continue
            if kind == "compound" and ("N@" in tgt or "R@" in tgt):
                words = self._words(tgt.split(), "the target", ())
                return (" ".join(words) if words != tgt.split() else tgt), kind
            if kind == "range" and "%" in tgt:
                return " ".join(self._range(tgt, "tgt", ())), "compound"
            return tgt, kind
        raise unknown_kind(tgt_type, "nodegroup")

    def compounds(self) -> dict[str, str]:
        """Every group as a compound target, for those who must spell it out themselves."""
        return {name: self.signed(name, "nodegroup")[0] for name in self._defined}

    def check(self, path: Path) -> None:
        """Every group stands for a target that parses. Raises ``ConfigInvalid`` with the file and line of the group."""
        for name in self._defined:
            try:
                compile_target(*self.signed(name, "nodegroup"))
            except UsageInvalid as error:
                place = places(path, "nodegroups").get(name, path)
                raise ConfigInvalid(
                    f"nodegroups.{name}: {error.what}",
                    where=f"{place} ({error.where})",
                    found=error.found,
                    allowed=error.allowed,
                    hint=error.hint,
                ) from None

    def _group(self, name: str, where: str, inside: tuple[str, ...]) -> list[str]:
        """The words that a group stands for."""
        if name in inside:
            loop = " -> ".join([*inside[inside.index(name) :], name])
            raise UsageInvalid(
                "a nodegroup holds itself", where=where, found=loop, allowed="groups of groups without a loop"
            )
        if name not in self._defined:
            known = sorted(self._defined)
            more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
            raise UsageInvalid(
                "there is no such nodegroup",
                where=where,
                found=shown(name),
                allowed=", ".join(known[:NAMES_SHOWN]) + more if known else "none: this station has no nodegroups",
                hint="add it under nodegroups: in the settings of the station where you type it, and reload it",
            )
        definition = self._defined[name]
        words = definition.split() if isinstance(definition, str) else definition
        for word in words:
            if len(word.split()) != 1:
                raise UsageInvalid(
                    "an entry of a nodegroup is not one word",
                    where=f"nodegroup {name}",
                    found=shown(word),
                    allowed="ids, terms, and, or, not, ( and ), each an entry of its own",
                    hint="in a glob ? stands for a space: G@os:Red?Hat",
                )
        return self._words(_plain_names(words, name), f"nodegroup {name}", (*inside, name))

    def _words(self, words: list[str], where: str, inside: tuple[str, ...]) -> list[str]:
        found: list[str] = []
        for at, word in enumerate(words, start=1):
            place = f"word {at} of {where}"
            engine, _, pattern = engine_of(word) or ("", "", "")
            if engine == "N":
                found += _together(self._group(pattern, place, inside))
            elif engine == "R" and "%" in pattern:
                found += _together(self._range(pattern, place, inside))
            else:
                found.append(word)
            if len(found) > WORDS and found != words[:at]:
                raise UsageInvalid(
                    "nodegroups stand for too much", where=place, found=f"over {WORDS} words", allowed=f"{WORDS} words"
                )
        return found

    def _range(self, text: str, where: str, inside: tuple[str, ...]) -> list[str]:
        """A range with clusters in it, as a compound: each cluster is the nodegroup of its name."""
        try:
            joined = operands(text)
        except NotARange as error:
            raise UsageInvalid(
                f"a range cannot be read: {error}", where=where, found=shown(text), allowed="A,B  A,-B  A,&B"
            ) from None
        found: list[str] = []
        for how, word in joined:
            part = _together(self._group(word[1:], where, inside)) if word.startswith("%") else [f"R@{word}"]
            found = [*_together(found), *how.split(), *part] if found else part
        return found


def _together(words: list[str]) -> list[str]:
    return words if len(words) == 1 else ["(", *words, ")"]


def _plain_names(words: list[str], name: str) -> list[str]:
    """Names with neither operators, engines nor ``*`` among them are a list, as in Salt; or one regular expression."""
    if not words:
        raise UsageInvalid(
            "a nodegroup is empty", where=f"nodegroup {name}", found="nothing", allowed="ids, or a compound target"
        )
    if any(word in OPERATORS or "*" in word or engine_of(word) is not None for word in words):
        return words
    if not any(_REGULAR.intersection(word) for word in words):
        return [f"L@{','.join(words)}"]
    if len(words) > 1:
        raise UsageInvalid(
            "a nodegroup has regular expressions without an operator between them",
            where=f"nodegroup {name}",
            found=shown(" ".join(words)),
            allowed="E@one or E@other",
        )
    return [f"E@{words[0]}"]


def _with_delimiter(tgt: str, tgt_type: str, delimiter: str) -> str:
    """A grain target that is cut elsewhere than at ':', as the word of a compound, which alone can say so."""
    letter = {"grain": "G", "grain_pcre": "P", "pillar": "I", "pillar_pcre": "J"}.get(tgt_type)
    if letter is None or len(delimiter) != 1 or delimiter.isspace():
        raise UsageInvalid(
            "a delimiter is one character, for targets by grain or pillar",
            where="delimiter",
            found=f"{shown(delimiter)} for {shown(tgt_type)}",
            allowed="one character that is no space, with grain, grain_pcre, pillar or pillar_pcre",
        )
    if len(tgt.split()) != 1:
        raise UsageInvalid(
            "a target with a delimiter of its own has no spaces",
            where="tgt",
            found=shown(tgt),
            allowed="one word",
            hint="? stands for a space in a glob, \\x20 in a regular expression",
        )
    return f"{letter}{delimiter}@{tgt}"
