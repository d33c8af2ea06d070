"""Names say what a thing is for; the words that say nothing are not used."""

from __future__ import annotations

import ast

from tests.house.tree import CODE, FLOORS, ROOT, listing, name, python_files, syntax

EMPTY_WORDS = {"base", "common", "core", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
EMPTY_ENDINGS = ("Base", "Handler", "Helper", "Impl", "Manager", "Util", "Utils")


def test_no_file_or_folder_has_a_name_that_says_nothing() -> None:
    findings = [
        name(path)
        for path in python_files(*CODE)
        for part in path.relative_to(ROOT).with_suffix("").parts
        if EMPTY_WORDS & set(part.lower().split("_"))
    ]
    assert not findings, listing(findings)


def test_no_class_has_a_name_that_says_nothing() -> None:
    findings = [
        f"{name(path)}:{node.lineno}: {node.name}"
        for path in python_files(*CODE)
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.ClassDef) and node.name.endswith(EMPTY_ENDINGS)
    ]
    assert not findings, listing(findings)


def test_every_folder_of_a_floor_is_a_package() -> None:
    folders = {path.parent for path in python_files(*FLOORS)}
    findings = [name(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()]
    assert not findings, listing(findings)


def test_every_floor_says_that_it_is_typed() -> None:
    assert all((ROOT / floor / "py.typed").is_file() for floor in FLOORS)
