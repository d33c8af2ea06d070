"""What a machine says of itself when it joins: the maker's words, or nothing that only looks like them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from device_agent.grains import machine_model, machine_serial
from device_agent.readings.machine import WORD_CHARACTERS


def written(root: Path, place: str, content: bytes) -> None:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_a_board_has_them_in_its_device_tree(tmp_path: Path) -> None:
    written(tmp_path, "proc/device-tree/serial-number", b"10000000abcdef01\0")
    written(tmp_path, "proc/device-tree/model", b"Raspberry Pi 4 Model B Rev 1.4\0")
    assert machine_serial(tmp_path) == "10000000abcdef01"
    assert machine_model(tmp_path) == "Raspberry Pi 4 Model B Rev 1.4"


def test_a_pc_has_them_in_its_dmi_table(tmp_path: Path) -> None:
    written(tmp_path, "sys/class/dmi/id/product_serial", b"SN-0815 \n")
    written(tmp_path, "sys/class/dmi/id/product_name", b"Edge  Box\t7\n")
    assert (machine_serial(tmp_path), machine_model(tmp_path)) == ("SN-0815", "Edge Box 7")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"To Be Filled By O.E.M.\n", b"Default string\n", b"0\n", b"\0\x1b\x07"]
)
def test_what_nobody_wrote_is_no_serial_number(tmp_path: Path, content: bytes) -> None:
    written(tmp_path, "sys/class/dmi/id/product_serial", content)
    written(tmp_path, "sys/class/dmi/id/product_name", content)
    assert machine_serial(tmp_path) == socket.gethostname()[:WORD_CHARACTERS]
    assert machine_model(tmp_path) == ""


def test_what_is_too_long_is_cut(tmp_path: Path) -> None:
    written(tmp_path, "proc/device-tree/serial-number", b"x" * 1000)
    assert machine_serial(tmp_path) == "x" * WORD_CHARACTERS
