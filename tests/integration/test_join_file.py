"""What a gateway is told to join with, in a file or on a stick, is what a stranger wrote; and what it leaves behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
import zmq

from device_agent.errors import ConfigInvalid, NotFound, StationFailed, UsageInvalid
from device_agent.trust.token import SiteToken
from gateway.fleet.join_file import FILE_BYTES, FILE_NAME, JoinWish, read_wish
from gateway.fleet.join_settings import name_of, write_wish
from gateway.fleet.usb_stick import sticks, wish_on_a_stick
from upstream.curve import key_bytes

KEY = zmq.curve_keypair()[0].decode()
OTHER = zmq.curve_keypair()[0].decode()
ROOT = "0f" * 16
TOKEN = SiteToken(bytes.fromhex(ROOT), key_bytes(KEY), ("tcp://203.0.113.7:4510",)).text()
GOOD = {"site": "lisbon", "token": TOKEN}


def at(address: str, key: str = KEY) -> dict[str, str]:
    return {"address": address, "key": key}


def wish_in(folder: Path, said: object) -> JoinWish:
    file = folder / FILE_NAME
    file.write_text(said if isinstance(said, str) else yaml.safe_dump(said))
    return read_wish(file)


def test_masters_with_a_fleet_are_as_good_as_a_token_each_the_best_last(tmp_path: Path) -> None:
    masters = [at("tcp://a:1"), at("tcp://b:2", OTHER), at("tcp://c:3")]
    wish = wish_in(tmp_path, {"site": "lisbon", "masters": masters, "fleet": ROOT})
    tokens = [SiteToken.from_text(text) for text in wish.tokens()]
    assert [(token.curve, token.addresses) for token in tokens] == [
        (key_bytes(OTHER), ("tcp://b:2",)),
        (key_bytes(KEY), ("tcp://a:1", "tcp://c:3")),
    ]
    assert wish_in(tmp_path, {"site": "lisbon", "masters": masters}).tokens() == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"site": "lisbon"}, "token is missing"),
        ({"token": TOKEN}, "site is missing"),
        ({**GOOD, "site": "../etc"}, "site cannot be this"),
        ({**GOOD, "token": "NOT ONE"}, "token"),
        ({**GOOD, "masters": [at("tcp://a:1")]}, "token goes without"),
        ({"site": "lisbon", "masters": [at("tcp://a:1", "short")]}, "key"),
        ({"site": "lisbon", "masters": [at("tcp://*:1")], "fleet": ROOT}, "masters"),
        ({**GOOD, "policy": "/tmp/mine"}, "there is no such setting"),
        ({**GOOD, "broker": {"rules_dir": "/etc"}}, "there is no such setting"),
        ("site: !!python/object:os.system {}\n", "site cannot be this"),
        ("[1, 2]", "a mapping"),
        ("site: lisbon\nsite: porto\n", "twice"),
        ("\x00", "not YAML"),
    ],
    ids=lambda each: str(each)[:30].replace("/", "|"),
)
def test_what_is_wrong_in_it_is_named_and_nothing_else_can_be_said(said: object, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as error:
        wish_in(tmp_path, said)
    assert why in str(error.value)
    assert FILE_NAME in str(error.value.where)


def test_only_a_plain_file_of_bounded_size_is_read(tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    real.write_text(yaml.safe_dump(GOOD))
    link, pipe, folder, large = (tmp_path / name for name in ("link", "pipe", "folder", "large"))
    link.symlink_to(real)
    os.mkfifo(pipe)
    folder.mkdir()
    large.write_text("#" * (FILE_BYTES + 1))
    for path in (link, pipe, folder, large, tmp_path / "nowhere"):
        with pytest.raises(ConfigInvalid, match="the file to join with"):
            read_wish(path)
    assert read_wish(real).site == "lisbon"


def test_pieces_beside_the_file_say_nothing(tmp_path: Path) -> None:
    pieces = tmp_path / Path(FILE_NAME).stem
    pieces = pieces.with_suffix(".d")
    pieces.mkdir()
    (pieces / "evil.yaml").write_text("site: porto\n")
    assert wish_in(tmp_path, GOOD).site == "lisbon"


def test_it_goes_into_a_piece_that_all_may_read_and_leaves_what_people_wrote(tmp_path: Path) -> None:
    config = tmp_path / "etc" / "gateway.yaml"
    assert name_of(config) == ""
    wish = wish_in(tmp_path, {"site": "lisbon", "masters": [at("tcp://a:1")], "broker": {"host": "192.0.2.10"}})
    piece = write_wish(config, wish)
    assert name_of(config) == "lisbon"
    assert yaml.safe_load(piece.read_text()) == {
        "name": "lisbon",
        "broker": {"host": "192.0.2.10"},
        "masters": [at("tcp://a:1")],
    }
    assert [path.stat().st_mode & 0o777 for path in (piece, piece.parent, config)] == [0o644, 0o755, 0o644]
    with pytest.raises(UsageInvalid, match="another site"):
        write_wish(config, wish_in(tmp_path, {**GOOD, "site": "porto"}))
    assert name_of(config) == "lisbon"


def test_settings_that_would_be_wrong_with_it_stay_what_they_were(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text("broker: {mode: external}\nlog_levle: info\n")
    with pytest.raises(ConfigInvalid, match="no such setting"):
        write_wish(config, wish_in(tmp_path, GOOD))
    assert not (tmp_path / "gateway.d" / "50-join.yaml").exists()


def test_where_nothing_can_be_written_it_says_who_may(tmp_path: Path) -> None:
    (tmp_path / "gateway.d").write_text("in the way")
    (tmp_path / "gateway.yaml").write_text("")
    with pytest.raises((StationFailed, ConfigInvalid)) as error:
        write_wish(tmp_path / "gateway.yaml", wish_in(tmp_path, GOOD))
    assert error.value.hint


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kernel shows of two disks, one of them a stick; mount(8) is played by a copy of a folder."""
    for disk, removable, parts in (("sda", "0", ["sda1"]), ("sdb", "1", ["sdb1", "sdb2"]), ("vda", "1", [])):
        (tmp_path / "block" / disk).mkdir(parents=True)
        (tmp_path / "block" / disk / "removable").write_text(f"{removable}\n")
        for part in parts:
            (tmp_path / "block" / disk / part).mkdir()
            (tmp_path / "dev" / part).mkdir(parents=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mount").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/mounted\ncp -a "$5/." "$6" 2>/dev/null\n')
    (programs / "umount").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/unmounted\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return tmp_path


def test_a_stick_is_mounted_read_only_for_a_moment_and_no_other_disk_is_looked_at(machine: Path) -> None:
    assert sticks(machine / "block", machine / "dev") == (["sdb1", "sdb2", "sdb"], [])
    (machine / "dev" / "sda1" / FILE_NAME).write_text(yaml.safe_dump({**GOOD, "site": "evil"}))
    (machine / "dev" / "sdb2" / FILE_NAME).write_text(yaml.safe_dump(GOOD))
    assert wish_on_a_stick(machine / "block", machine / "dev").site == "lisbon"
    mounted = (machine / "mounted").read_text().splitlines()
    assert all(line.startswith("-t vfat,exfat -o ro,nosuid,nodev,noexec ") for line in mounted)
    assert not any("sda" in line for line in mounted)
    assert len((machine / "unmounted").read_text().splitlines()) == len(mounted) == 2


def test_a_link_on_a_stick_leads_nowhere_and_it_is_let_go(machine: Path) -> None:
    (machine / "dev" / "sdb1" / FILE_NAME).symlink_to("/etc/hostname")
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        wish_on_a_stick(machine / "block", machine / "dev")
    assert (machine / "unmounted").read_text().count("\n") == 1


def test_without_a_stick_it_says_what_is_looked_for(machine: Path) -> None:
    with pytest.raises(NotFound, match=FILE_NAME) as error:
        wish_on_a_stick(machine / "block", machine / "dev")
    assert "looked at sdb1, sdb2, sdb" in str(error.value.found)
    with pytest.raises(NotFound) as error:
        wish_on_a_stick(machine / "nothing", machine / "dev")
    assert error.value.found == "no USB stick and no SD card"
