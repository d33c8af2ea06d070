"""Compound targets: terms with ``and``, ``or``, ``not`` and parentheses, as Salt has Python evaluate them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from device_agent.errors import UsageInvalid
from device_agent.protocol import limits, target_terms
from device_agent.protocol.target_terms import WORDS_CHARACTERS, Term, all_of, any_of, none_of, shown

NESTING = 32
"""Deepest parentheses."""

OPERATORS = frozenset({"and", "or", "not", "(", ")"})
ENGINES = {
    "E": target_terms.pcre_term,
    "L": target_terms.list_term,
    "S": target_terms.address_term,
    "R": target_terms.range_term,
}
GRAIN_ENGINES = {
    "G": target_terms.grain_term,
    "P": target_terms.grain_pattern_term,
    "I": target_terms.pillar_term,
    "J": target_terms.pillar_pattern_term,
}
Engine = Callable[[str, str], Term]
"""Makes the term of a word, from what stands behind its @ and where it stands. Raises ``UsageInvalid``."""

NO_MORE: Mapping[str, Engine] = MappingProxyType({})
ENGINES_REFUSED = {
    "N": "a nodegroup, which is replaced by what it stands for where the job is issued",
    "T": "Salt's resources, which only a Salt master above a gateway knows",
    "M": "Salt's managing minions, which only a Salt master above a gateway knows",
}
ENGINES_ALLOWED = (
    "G@key:glob, P@key:regular-expression, I@key:glob, J@key:regular-expression, E@regular-expression, L@id,id, "
    "S@address, R@range, N@nodegroup or a bare glob"
)

# In the engines that cut keys, one character before the @ is the delimiter instead of ':', as in G|@key|value.
_term = re.compile(r"(?:([GPIJ])(.?)|([LNSERTM])())@(.*)", re.DOTALL)


def engine_of(word: str) -> tuple[str, str, str] | None:
    """Letter, delimiter and pattern of a word of a compound; None for a bare glob."""
    if (parsed := _term.match(word)) is None:
        return None
    return parsed[1] or parsed[3], parsed[2] or ":", parsed[5]


class Compound:
    """A recursive-descent parser with Python's precedence, which Salt's has too: ``not`` before ``and`` before ``or``.

    As in Salt, words are what stands between spaces, and a ``not`` after a term means ``and not``. ``more`` are engines
    that mean something only where the target is resolved.
    """

    def __init__(self, text: str, more: Mapping[str, Engine] = NO_MORE) -> None:
        self._words = text.split()
        self._more = more
        self._at = 0
        self._terms = 0
        self._depth = 0

    def term(self) -> Term:
        """Parse all of it. Raises ``UsageInvalid``."""
        if not self._words:
            raise self._wrong("a compound target is empty", allowed=ENGINES_ALLOWED)
        whole = self._any_of()
        word = self._next()
        if word is None:
            return whole
        if word == ")":
            raise self._wrong("a parenthesis closes that was not opened", allowed="and, or, not, or the end")
        hint = f"operators are written small: {word.lower()}" if word.lower() in OPERATORS else None
        raise self._wrong("an operator is missing before this word", allowed="and, or, not, or the end", hint=hint)

    def _any_of(self) -> Term:
        choices = [self._all_of()]
        while self._next() == "or":
            self._at += 1
            choices.append(self._all_of())
        return any_of(choices)

    def _all_of(self) -> Term:
        needs = [self._one()]
        while (word := self._next()) in ("and", "not"):
            if word == "and":
                self._at += 1
            needs.append(self._one())
        return all_of(needs)

    def _one(self) -> Term:
        if self._next() != "not":
            return self._group_or_term()
        self._at += 1
        return none_of(self._group_or_term())

    def _group_or_term(self) -> Term:
        word = self._next()
        if word == "(":
            return self._group()
        if word is None or word in OPERATORS:
            raise self._wrong("a term is missing", allowed=f"{ENGINES_ALLOWED}, or ( … )")
        term = self._term(word)
        self._at += 1
        return term

    def _group(self) -> Term:
        self._depth += 1
        if self._depth > NESTING:
            raise self._wrong("parentheses nest too deep", allowed=f"at most {NESTING} deep")
        opened = self._at
        self._at += 1
        inner = self._any_of()
        if self._next() != ")":
            raise self._wrong(
                f"the parenthesis of word {opened + 1} is not closed",
                allowed="and, or, not or )",
                hint="parentheses need spaces around them: ( cam-1 or cam-2 )",
            )
        self._at += 1
        self._depth -= 1
        return Term(f"( {inner.words} )"[:WORDS_CHARACTERS], inner.test, inner.why)

    def _term(self, word: str) -> Term:
        self._terms += 1
        if self._terms > limits.TARGET_TERMS:
            raise self._wrong("a compound target has too many terms", allowed=f"at most {limits.TARGET_TERMS}")
        if (parsed := engine_of(word)) is None:
            if word.startswith("(") or word.endswith(")"):
                raise self._wrong(
                    "a parenthesis touches a word",
                    allowed=ENGINES_ALLOWED,
                    hint="parentheses need spaces around them: ( cam-1 or cam-2 )",
                )
            return target_terms.glob_term(word, self._where())
        engine, delimiter, pattern = parsed
        if engine in self._more:
            return self._more[engine](pattern, self._where())
        if engine in GRAIN_ENGINES:
            return GRAIN_ENGINES[engine](pattern, self._where(), delimiter)
        if engine in ENGINES:
            return ENGINES[engine](pattern, self._where())
        raise self._wrong(
            f"{engine}@ means {ENGINES_REFUSED[engine]}",
            allowed=ENGINES_ALLOWED,
            hint=f"an id that begins with {engine}@ is meant by L@{word[:128]}" if engine in "TM" else None,
        )

    def _next(self) -> str | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def _where(self) -> str:
        return f"word {self._at + 1} of the target"

    def _wrong(self, what: str, *, allowed: str, hint: str | None = None) -> UsageInvalid:
        word = self._next()
        return UsageInvalid(
            what, where=self._where(), found="the end" if word is None else shown(word), allowed=allowed, hint=hint
        )
