"""Files of operators, from spreadsheets and editors: what is wrong is named by its line, with a fix that works."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import UsageInvalid
from gateway.backup.passphrase import _in_file
from gateway.cli import ssh_inventory, ssh_words
from gateway.cli.key_acceptance import _listed
from gateway.cli.remote import _token

DID = "abcdefghijklmnopqrstuvwxyz"
INVENTORY = "name,address,user,password\nGerät-1,10.0.0.7,root,ge,heim\n".replace("ge,heim", '"ge,heim"')
KEYS = f"did,name\n{DID},Gerät\n"
READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "inventory": (INVENTORY, lambda file: [each.wish for each in ssh_inventory.read(file)]),
    "keys": (KEYS, _listed),
}


def with_separator(text: str, separator: str) -> str:
    return text.replace('"ge,heim"', "GEHEIM").replace(",", separator).replace("GEHEIM", "ge,heim")


def faults(read: Callable[[Path], Any], file: Path) -> tuple[list[str], Any]:
    """Where a file was refused, each time after its fix was typed, and what was read in the end."""
    found: list[str] = []
    for _ in range(4):
        try:
            return found, read(file)
        except UsageInvalid as error:
            wrong = error
        found.append((wrong.where or "").removeprefix(f"{file}:"))
        assert "heim" not in str(wrong), "a password is not shown"
        assert wrong.hint is not None
        subprocess.run(["/bin/sh", "-c", wrong.hint], check=True, timeout=60)
        file = Path(wrong.hint.rpartition(">")[2])
    raise AssertionError(found)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("head", ["", "sep={}\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "iso-8859-1", "utf-16"])
def test_a_spreadsheet_of_another_country_is_mended_by_what_is_offered(
    tmp_path: Path, kind: str, separator: str, head: str, encoding: str
) -> None:
    text, read = READERS[kind]
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text(text, encoding="utf-8")
    bad.write_bytes((head.format(separator) + with_separator(text, separator)).encode(encoding))
    where, found = faults(read, bad)
    assert found == read(good)
    wrong_line = {"iso-8859-1": ["3" if head else "2"], "utf-16": ["1"]}.get(encoding, [])
    assert where == [*wrong_line, "1"]


def test_sep_with_a_comma_is_one_line_too_many(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"sep=,\n{INVENTORY}", encoding="utf-8")
    where, found = faults(READERS["inventory"][1], file)
    assert where == ["1"]
    assert found[0]["password"] == "ge,heim"


def test_an_inventory_in_yaml_names_the_line_too(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes("- name: cam-1\n- name: Gerät\n".encode("iso-8859-1"))
    with pytest.raises(UsageInvalid, match="not UTF-8") as wrong:
        ssh_inventory.read(file)
    assert (wrong.value.where, wrong.value.found) == (f"{file}:2", "the byte 0xe4")


def test_every_device_without_a_name_is_named_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("- {name: null}\n- {name: cam-1, password: x}\n- {name: ''}\n- {address: 192.0.2.1}\n", "utf-8")
    found = ssh_inventory.read(file)
    assert [(each.line, each.fault and each.fault.what) for each in found] == [
        (1, "the device has no name"),
        (2, None),
        (3, "the device has no name"),
        (4, "the device has no name"),
    ]
    file.write_text("? [cam-1]\n: {password: heim}\ncam-2:\n  ? {password: heim}\n  : x\n", "utf-8")
    found = ssh_inventory.read(file)
    assert [(each.line, each.fault and each.fault.found) for each in found] == [
        (1, "a list or a mapping"),
        (3, "a list or a mapping"),
    ]


def test_a_quotation_mark_that_nothing_closes_is_named_where_it_opens(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('name,user\n"cam-1",root\n"cam-2,root\ncam-3,root\ncam-4,root\n', "utf-8")
    with pytest.raises(UsageInvalid, match="this is no CSV") as wrong:
        ssh_inventory.read(file)
    assert wrong.value.where == f"{file}:3"
    assert "a quotation mark opens in this row" in str(wrong.value.found)
    assert "stands in quotes" in str(wrong.value.allowed)


def test_a_row_of_several_lines_is_named_by_its_first_one(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('name,user,password\ncam-1,root,"a\nb"\ncam-2,root,"a\nb"\n', "utf-8")
    assert [each.line for each in ssh_inventory.read(file)] == [2, 4]


@pytest.mark.parametrize("typed", ["[::1]:22", "::1]", "[::1"])
def test_an_address_is_told_as_it_was_typed(tmp_path: Path, typed: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"name,address,password\ncam-1,{typed},x\ncam-2,[::1],x\n", "utf-8")
    assert [each.wish["host"] for each in ssh_inventory.read(file)] == [typed, "::1"]


@pytest.mark.parametrize("read", [ssh_words.text_of, _in_file, _token])
def test_a_secret_in_another_encoding_is_refused_and_no_byte_of_it_shown(
    tmp_path: Path, read: Callable[[Path], str]
) -> None:
    file = tmp_path / "secret"
    file.write_bytes("pässword\n".encode("iso-8859-1"))
    file.chmod(0o600)
    with pytest.raises(UsageInvalid) as wrong:
        read(file)
    assert "0xe4" not in str(wrong.value)
    assert str(file) in str(wrong.value)
    file.write_bytes(b"\xef\xbb\xbfword\r\n")
    assert read(file).strip() == "word", "a byte order mark is no part of a secret"
