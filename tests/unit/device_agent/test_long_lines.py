"""What a device says in lines made to be long is read once, not once for each letter: else these tests do not end."""

from __future__ import annotations

import pytest

from device_agent.functions import disk
from device_agent.functions.network import reaching
from device_agent.packages import apt, opkg
from device_agent.readings import addresses, processes
from device_agent.readings.mounts import Filled, filled

MIB = 1024 * 1024
PATIENCE = pytest.mark.timeout(120)
NUMBERS = " ".join(["1", "2", "3", *["0"] * 48])


def long(pattern: str) -> str:
    return pattern * (MIB // len(pattern))


def told(stat: str, command: str = "") -> processes.Reading:
    """What is read of one process."""
    head = "boot\nself 999\nMemTotal: 1 kB\n%%\n%%\n"
    return processes.reading(f"{head}boot\n{stat}\n9 8 7 6 5 4 3\n{command}")


@PATIENCE
@pytest.mark.parametrize(
    "line",
    ["a ", "1 ", "- ", "a 1 1 1 ", "1 1 1 1% ", "1% ", " ", "a", "1", "/ ", "1 1 1 - x/ "],
)
def test_a_line_of_df(line: str) -> None:
    assert filled(f"heading\n{long(line)}\n") == []
    assert filled(f"heading\nd {long(line)} 9 8 7 6% /x y\n")[0].percent.strip() in {"6%", "-"}


def test_a_row_of_df_may_have_blanks_in_both_names() -> None:
    assert filled("heading\nmy  disk 3  -2 1 66% /mnt a\nnone - - - - /x\n1 2 3 4% /\n") == [
        Filled("my  disk", "3", "-2", "1", "66%", "/mnt a"),
        Filled("none", "-", "-", "-", "-", "/x"),
    ]


@PATIENCE
@pytest.mark.parametrize("piece", [") S 1 2", ") S 1\n", "\n", ")", ") ", ") S ", "(", "1 (", " 1", ") S 1 x\n"])
def test_the_name_of_a_process(piece: str) -> None:
    assert told(f"7 ({long(piece)}").processes == []
    name = long("\n)")
    [process] = told(f"7 ({name}) S {NUMBERS}").processes
    assert (process.pid, process.name) == (7, name)


@pytest.mark.parametrize("name", ["sh", "a b", ") S 1 2 3", "x\ny", ")\n(", ""])
def test_a_process_may_have_anything_in_its_name(name: str) -> None:
    [process] = told(f"7 ({name}) R {NUMBERS}", "run\0me\n) S 1 2\0").processes
    assert (process.name, process.state, process.parent) == (name, "R", 1)
    assert process.command == ("run", "me\n) S 1 2")


@PATIENCE
def test_what_else_takes_a_long_line_apart() -> None:
    for piece in ("A", "A=", 'A="', "AA ", '\\"', 'A="\\'):
        assert len(disk._PAIR.findall(long(piece))) <= MIB
    for piece in ("1", "1.", "1.1", "1 ", "a", "a (", "(1) "):
        assert len(reaching._MILLISECONDS.findall(long(piece))) == 0
        assert (reaching._NAMED.search(long(piece)) is None) == (piece != "(1) ")
    for piece in ("link/", "link/ ", "link/a 00:", "00:"):
        assert addresses.from_ip(f"1: x: <UP> {long(piece)}", "")["x"].hardware == ""
    for piece in ("a", "a:", "Failed to download ", "failed to download a", "a://"):
        assert len(opkg.refreshed(f"Failed to download {long(piece)}")) <= 1
    for piece in (" [", " [B", "] [", " "):
        assert len(apt.refreshed(f"Get:1 {long(piece)}x")) == 1
