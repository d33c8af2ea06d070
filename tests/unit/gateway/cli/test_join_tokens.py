"""gateway/cli/join_tokens.py and qr.py."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from gateway.cli import qr
from tests.peers.api_double import ISSUED, ApiDouble
from tests.unit.gateway.cli.conftest import Shell

TOKEN = "V50NGAROOST9Z3L5I4Q1S0/RJRKL$6FSEI$1.:1*PE05CI-MHFIAGNJ-G+ZO7MAO 0+ED:JC3/DIECA$CNEC.%5$9FQ$DTVD2G7$4781"
ID = "360c73b90e7c0fcf"


@pytest.fixture(autouse=True)
def one(api: ApiDouble) -> None:
    api.join_tokens = [
        {"id": ID, "state": "open", "uses": 1, "left": 1, "name": "{serial}", "expires": ISSUED, "made_by": "alice"}
    ]


def test_a_token_is_a_line_of_its_own_and_what_it_is_is_said_beside_it(api: ApiDouble, shell: Shell) -> None:
    finished = shell.run("keys", "token", "new")
    assert (finished.status, finished.out) == (0, "TOKEN 0\n")
    assert "1 token, until 2026-11-21T03:15:00Z; not shown again" in finished.error
    body = {"uses": 1, "serial": "", "seconds": 86_400.0, "name": "", "address": "", "count": 1}
    assert api.asked("POST", "/keys/tokens") == [({}, body)]


def test_what_is_asked_of_a_token_reaches_the_station(api: ApiDouble, shell: Shell) -> None:
    shell.here(
        *("keys", "token", "new", "--uses", "5", "--serial", "B8A44F", "--for", "1h"),
        *("--name", "cam-{number}", "--address", "192.0.2.1:1885", "--count", "3", "--json"),
    )
    ((_, body),) = api.asked("POST", "/keys/tokens")
    assert body == {
        "uses": 5,
        "serial": "B8A44F",
        "seconds": 3600.0,
        "name": "cam-{number}",
        "address": "192.0.2.1:1885",
        "count": 3,
    }


def test_json_is_one_object_for_each_token(shell: Shell) -> None:
    finished = shell.here("keys", "token", "new", "--count", "2", "--json")
    assert [json.loads(line)["text"] for line in finished.out.splitlines()] == ["TOKEN 0", "TOKEN 1"]
    assert finished.error == ""


def test_on_a_terminal_there_is_a_code_that_a_camera_can_read(shell: Shell) -> None:
    finished = shell.on_terminal("keys", "token", "new")
    code = [line for line in finished.out.splitlines() if line.startswith(qr.INK)]
    assert code == qr.terminal_lines("TOKEN 0")


def test_pictures_are_written_for_their_owner_alone_and_never_over_another(
    api: ApiDouble, shell: Shell, tmp_path: Path
) -> None:
    png, svg = tmp_path / "label.png", tmp_path / "label.svg"
    assert shell.here("keys", "token", "new", "--png", str(png), "--svg", str(svg)).status == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()
    assert stat.S_IMODE(png.stat().st_mode) == 0o600
    finished = shell.here("keys", "token", "new", "--png", str(png))
    assert (finished.status, str(png) in finished.error) == (2, True)
    assert shell.here("keys", "token", "new", "--png", str(tmp_path / "no" / "x.png")).status == 2
    # Nothing was made that nobody could read.
    assert len(api.asked("POST", "/keys/tokens")) == 1


def test_pictures_of_many_tokens_are_numbered(shell: Shell, tmp_path: Path) -> None:
    assert shell.here("keys", "token", "new", "--count", "3", "--svg", str(tmp_path / "label.svg")).status == 0
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == [f"label-{number}.svg" for number in (1, 2, 3)]


def test_a_code_fits_a_terminal_and_is_black_on_white_whatever_its_colours_are() -> None:
    lines = qr.terminal_lines(TOKEN)
    assert (len(lines), qr.width(TOKEN)) == (23, 45)
    assert {len(re.sub("\x1b[^m]*m", "", line)) for line in lines} == {45}
    assert all(line.startswith(qr.INK) and line.endswith(qr.PLAIN) for line in lines)


def test_tokens_are_a_table_without_their_text(shell: Shell) -> None:
    heading, row = (line.split() for line in shell.run("keys", "token", "list").out.splitlines())
    assert heading == ["ID", "STATE", "LEFT", "SERIAL", "NAME", "EXPIRES", "MADE", "BY"]
    assert row == [ID, "open", "1", "of", "1", "-", "{serial}", "2026-11-21T03:15:00Z", "alice"]
    assert json.loads(shell.here("keys", "token", "list", "--json").out)["text"] == ""


def test_no_tokens_says_so(api: ApiDouble, shell: Shell) -> None:
    api.join_tokens = []
    assert shell.here("keys", "token", "list").error.startswith("no tokens")


def test_a_token_is_ended(shell: Shell) -> None:
    assert shell.here("keys", "token", "revoke", ID).out == f"revoked {ID}\n"
    assert shell.here("keys", "token", "revoke", "nothing").status == 2


@pytest.mark.parametrize("option", [("--for", "soon"), ("--uses", "0"), ("--count", "1001")])
def test_a_wish_that_cannot_be_is_a_mistake(shell: Shell, option: tuple[str, str], api: ApiDouble) -> None:
    finished = shell.here("keys", "token", "new", *option)
    assert (finished.status, option[0] in finished.error) == (2, True)
    assert api.requests == []
