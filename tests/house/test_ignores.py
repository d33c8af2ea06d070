"""Whoever silences a check says which rule and why, on the same line."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from tests.house.tree import CODE, listing, name, python_files

SILENCERS = re.compile(r"#\s*(noqa|type:\s*ignore|ruff:|mypy:|flake8:)", re.IGNORECASE)
NAMED = re.compile(r"#\s*(?:noqa:\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*|type: ignore\[[a-z-]+(?:,\s*[a-z-]+)*\])")
REASON = re.compile(r"[a-z]{2,}.*\s.*[a-z]{2,}", re.IGNORECASE)


def unexplained(source: str) -> Iterator[tuple[int, str]]:
    """Lines whose comment silences a check without naming its rule, or without two words of reason."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or not SILENCERS.search(token.string):
            continue
        rest = NAMED.sub("", token.string)
        if SILENCERS.search(rest) or not REASON.search(rest):
            yield token.start[0], token.string


def test_every_ignore_names_its_rule_and_its_reason() -> None:
    findings = [
        f"{name(path)}:{line}: {comment}"
        for path in python_files(*CODE)
        for line, comment in unexplained(path.read_text(encoding="utf-8"))
    ]
    assert not findings, listing(findings)


def test_a_bare_ignore_is_found() -> None:
    bare = ["noqa", "noqa: S101", "type: ignore", "type: ignore[misc]", "type: ignore  # the library is untyped"]
    bare += ["ruff: noqa", "noqa: S101 - because", "type: ignore[misc]  # noqa: S101"]
    found = [comment for _, comment in unexplained("".join(f"x = 1  # {comment}\n" for comment in bare))]
    assert found == [f"# {comment}" for comment in bare]


def test_an_ignore_with_rule_and_reason_passes() -> None:
    explained = ["noqa: S101, S102 - the port says so", "type: ignore[misc, arg-type]  # the library is untyped"]
    assert not list(unexplained("".join(f"x = 1  # {comment}\n" for comment in explained)))
