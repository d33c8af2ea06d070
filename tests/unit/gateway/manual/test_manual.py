"""gateway/manual: every command, setting and daemon has its place in a page, and formatters take each page as it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from device_agent.config import AgentSettings
from device_agent.settings import describe
from gateway.cli.command import usage
from gateway.cli.program import app
from gateway.config import StationSettings
from gateway.manual.__main__ import agent_pages, main, station_pages
from gateway.manual.documents import told
from gateway.manual.roff import Page
from tests.house.tree import ROOT

PAGES = {f"{page.name}({page.section})": page for page in (*station_pages(ROOT), *agent_pages(ROOT))}


def read(page: Page) -> str:
    """What a reader sees of a page, without the marks of the formatter."""
    text = re.sub(r"\\f[BP]|\\&|\\:", "", page.text())
    for mark, letter in ((r"\-", "-"), (r"\(aq", "'"), (r"\(dq", '"'), (r"\(ga", "`"), (r"\(ha", "^"), (r"\(ti", "~")):
        text = text.replace(mark, letter)
    return text.replace("\\e", "\\")


def command_lines() -> list[tuple[str, str]]:
    """Every command of the program, with the page that tells of it."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    found: list[tuple[str, str]] = []

    def walk(command: object, context: typer.Context, page: str) -> None:
        if isinstance(command, TyperGroup):
            for name, inner in command.commands.items():
                walk(inner, typer.Context(inner, context, info_name=name), page or f"outstation-{name}(1)")
        else:
            found.append((usage(context).removeprefix("usage: "), page))

    walk(root, typer.Context(root, info_name="outstation"), "")
    return found


@pytest.mark.parametrize(("line", "page"), command_lines(), ids=lambda each: each.partition(" [")[0])
def test_every_command_is_in_the_page_of_its_word(line: str, page: str) -> None:
    expected = line.replace("outstation agent", "outstation-agent") if page == "outstation-agent(1)" else line
    assert expected in read(PAGES[page])


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("outstation-gateway.yaml(5)", StationSettings),
        ("outstation-master.yaml(5)", StationSettings),
        ("outstation-agent.yaml(5)", AgentSettings),
    ],
)
def test_every_setting_is_in_the_page_of_its_file(name: str, table: type) -> None:
    page = read(PAGES[name])
    for setting in describe(table):
        assert f"\n{setting.key}\n" in page
        assert setting.description.replace("`", "").rstrip(".") in page


def test_every_service_has_a_page() -> None:
    for unit in (ROOT / "systemd").glob("outstation*.service"):
        assert f"{unit.stem}(8)" in PAGES


def test_the_words_the_targets_and_the_outcomes_are_in_section_7() -> None:
    page = read(PAGES["outstation(7)"])
    for word in ("spool, stream", "timed_out", "-N, --nodegroup", "accepted means on disk"):
        assert f"\n{word}\n" in page


def test_what_a_page_names_beside_itself_is_there() -> None:
    for name, page in PAGES.items():
        for other in re.findall(r"\b(outstation[a-z.-]*\([1-8]\))", read(page)):
            assert other in PAGES, f"{name} names {other}"


def test_a_document_is_told_with_all_that_it_has(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "# Title\n\nFirst `-x` words.\n\n## Part\n\n- one [link](other.md)\n  goes on\n- two\n\n    typed --so\n\n"
        "### Inner\n\n| a | b |\n|---|---|\n| `x\\|y` | means |\n\n```text\n.dot 'quoted'\n```\n"
    )
    page = Page("p", 7, "a page")
    told(page, document)
    text = page.text()
    assert '.SH "DESCRIPTION"\nFirst \\fB\\-x\\fP words.' in text
    assert ".IP \\(bu 2\none link goes on\n.IP \\(bu 2\ntwo\n" in text
    assert "typed \\-\\-so\n" in text
    assert '.SS "Inner"' in text
    assert "\\fBx|y\\fP\nmeans" in text
    assert "\\&.dot \\(aqquoted\\(aq\n" in text
    with pytest.raises(KeyError):
        told(page, document, {"Nowhere": "Nowhere"})


def test_the_pages_of_two_runs_are_the_same_bits(tmp_path: Path) -> None:
    for name in ("a", "b"):
        main(tmp_path / name, ROOT)
    files = {path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()}
    assert {str(each) for each in files} >= {
        "outstation/man1/outstation.1",
        "outstation-agent/man8/outstation-agent.8",
        "outstation/completions/zsh/_outstation",
    }
    for each in files:
        assert (tmp_path / "a" / each).read_bytes() == (tmp_path / "b" / each).read_bytes()


@pytest.mark.parametrize(
    "command",
    [["groff", "-K", "utf8", "-man", "-ww", "-z", "-T", "utf8"], ["mandoc", "-Tlint", "-W", "warning"]],
    ids=lambda each: each[0],
)
def test_a_formatter_finds_nothing_to_complain_of(command: list[str], tmp_path: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: packaging/appliance-packages")
    main(tmp_path, ROOT)
    for page in sorted(tmp_path.rglob("*.[1-8]")):
        done = subprocess.run([*command, str(page)], capture_output=True, text=True, timeout=120, check=False)
        assert (done.stdout, done.stderr) == ("", ""), page.name
