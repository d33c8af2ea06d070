"""The repository speaks of the product: no folder of one machine, no host that packages come from."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.tree import CODE, listing, name, python_files, syntax, text_files

# In pieces, so that this file passes its own test.
MACHINE_PATHS = ("/wo" + "rk/", "/ro" + "ot/", "sha" + "red/", ".py" + "env", "/tmp" + "/w/")
REGISTRY_HOSTS = ("pyp" + "i.org", "python" + "hosted", "npm" + "js", "deb.deb" + "ian.org", "security.deb" + "ian.org")
FOREIGN = re.compile("|".join(rf"(?<![\w-]){re.escape(word)}" for word in (*MACHINE_PATHS, *REGISTRY_HOSTS)))


def test_no_text_names_a_machine_or_a_registry() -> None:
    findings = [
        f"{name(path)}:{number}: {line.strip()[:160]}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert not findings, listing(findings)


@pytest.mark.parametrize("text", [f"see {word}x" for word in (*MACHINE_PATHS, *REGISTRY_HOSTS)])
def test_a_machine_or_a_registry_would_be_found(text: str) -> None:
    assert FOREIGN.search(text)


def test_every_module_begins_with_its_purpose() -> None:
    findings = [
        name(path)
        for path in python_files(*CODE)
        if path.read_text(encoding="utf-8").strip() and not ast.get_docstring(syntax(path))
    ]
    assert not findings, listing(findings)
