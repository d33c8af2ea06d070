"""gateway/checks/permissions.py and gateway/checks/repairs.py."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gateway.checks import box as boxes
from gateway.checks.box import Box
from gateway.checks.permissions import at_rest, check
from gateway.checks.repairs import repairs
from tests.unit.gateway.checks.conftest import Told, a_box

OTHER_USER = 12_345


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A station's folder as it should be, and its settings."""
    config = tmp_path / "gateway.yaml"
    config.write_text("name: lisbon\n", encoding="utf-8")
    config.chmod(0o644)
    made = a_box(tmp_path, config=config)
    made.state_dir.mkdir(mode=0o700)
    for name, mode in (("curve.key", 0o600), ("trust.keys", 0o600), ("station.sqlite", 0o644)):
        (made.state_dir / name).write_bytes(b"")
        (made.state_dir / name).chmod(mode)
    return made


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def mend(box: Box) -> list[str]:
    found = repairs(box)
    for repair in found:
        repair.do()
    return [repair.words for repair in found]


def test_a_folder_of_its_owner_alone_is_fine(box: Box) -> None:
    (finding,) = at_rest(box)
    assert (finding.severity, finding.finding) == ("ok", f"{box.state_dir} is its owner's alone")
    assert repairs(box) == []


async def test_a_running_station_looks_as_who_it_is(box: Box, facts: Told) -> None:
    facts.of_box = box
    (finding,) = await check(facts)
    assert finding.severity == "ok"


def test_what_others_may_look_at_is_told_and_closed(box: Box) -> None:
    box.state_dir.chmod(0o755)
    key = box.state_dir / "curve.key"
    key.chmod(0o640)
    (finding,) = at_rest(box)
    assert (finding.severity, finding.about) == ("error", "open")
    assert f"{box.state_dir}: its mode is 0755; {key}: its mode is 0640" in finding.finding
    assert "speak in its name" in finding.meaning
    assert finding.fix == f"outstation check --fix, or: chmod 700 {box.state_dir}; chmod 600 {key}"
    assert mend(box) == [f"chmod 700 {box.state_dir}", f"chmod 600 {key}"]
    assert (mode(box.state_dir), mode(key)) == (0o700, 0o600)
    assert at_rest(box)[0].severity == "ok"


def test_settings_that_others_may_write_are_told_and_closed(box: Box) -> None:
    assert box.config is not None
    box.config.chmod(0o666)
    (finding,) = at_rest(box)
    assert (finding.severity, finding.about) == ("error", "writable")
    assert "decides what this station does" in finding.meaning
    assert mend(box) == [f"chmod 644 {box.config}"]
    assert mode(box.config) == 0o644


def test_a_repair_never_gives_more(box: Box) -> None:
    key = box.state_dir / "trust.keys"
    key.chmod(0o440)
    mend(box)
    assert mode(key) == 0o400


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")
def test_files_of_another_user_are_told_and_given_back(box: Box) -> None:
    key = box.state_dir / "curve.key"
    os.chown(key, OTHER_USER, OTHER_USER)
    (finding,) = at_rest(box)
    assert (finding.severity, finding.about) == ("error", "owner")
    assert f"{key}: it belongs to {OTHER_USER}" in finding.finding
    assert "does not start" in finding.meaning
    assert f"chown -h root {key}" in finding.fix
    mend(box)
    assert key.stat().st_uid == 0
    assert at_rest(box)[0].severity == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")
def test_the_packages_folder_belongs_to_the_services_user(
    tmp_path: Path, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "STATE", tmp_path)
    monkeypatch.setattr(boxes, "SERVICE_USER", "daemon")
    assert {fault.split(" ")[2] for fault in mend(box)} == {"daemon"}
    assert box.state_dir.stat().st_uid == box.owner() != 0
    assert at_rest(box)[0].severity == "ok"


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    box = a_box(tmp_path / "deep")
    (finding,) = at_rest(box)
    assert (finding.severity, finding.about) == ("warning", "missing")
    assert finding.finding == f"there is no state folder: {box.state_dir}: it is not there"
    assert "has not started here yet" in finding.meaning
    assert finding.fix.startswith("outstation check --fix, or: install -d -m 700 -o ")
    mend(box)
    assert mode(box.state_dir) == 0o700


def test_a_link_in_the_folder_is_never_followed(box: Box, tmp_path: Path) -> None:
    victim = tmp_path / "shadow"
    victim.write_bytes(b"")
    victim.chmod(0o644)
    key = box.state_dir / "curve.key"
    key.chmod(0o644)
    (found,) = repairs(box)
    # Between the look and the deed.
    key.unlink()
    key.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        found.do()
    assert mode(victim) == 0o644
    assert repairs(box) == []


def test_a_folder_that_became_a_link_is_left_alone(box: Box, tmp_path: Path) -> None:
    (box.state_dir / "curve.key").chmod(0o644)
    (found,) = repairs(box)
    elsewhere = tmp_path / "etc"
    elsewhere.mkdir()
    (elsewhere / "curve.key").write_bytes(b"")
    (elsewhere / "curve.key").chmod(0o644)
    box.state_dir.rename(tmp_path / "aside")
    box.state_dir.symlink_to(elsewhere)
    with pytest.raises(OSError, match="Not a directory"):
        found.do()
    assert mode(elsewhere / "curve.key") == 0o644


def test_a_file_with_a_second_name_is_left_alone(box: Box, tmp_path: Path) -> None:
    key = box.state_dir / "curve.key"
    key.chmod(0o644)
    (tmp_path / "second").hardlink_to(key)
    (found,) = repairs(box)
    with pytest.raises(OSError, match="second name"):
        found.do()
    assert mode(key) == 0o644


def test_a_socket_at_which_nobody_answers_is_removed(box: Box) -> None:
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(box.socket))
        living.listen(1)
        assert repairs(box) == []
    (found,) = repairs(box)
    assert found.words == f"rm {box.socket}"
    found.do()
    assert not box.socket.exists()


def test_what_is_no_socket_is_never_removed(box: Box) -> None:
    box.socket.write_bytes(b"precious")
    assert repairs(box) == []


def test_pieces_of_the_settings_and_their_folder_are_looked_at_too(box: Box) -> None:
    assert box.config is not None
    folder = box.config.with_name("gateway.d")
    folder.mkdir()
    folder.chmod(0o777)
    piece = folder / "60-engines.yaml"
    piece.write_text("{}\n", encoding="utf-8")
    piece.chmod(0o666)
    (finding,) = at_rest(box)
    assert finding.about == "writable"
    assert f"{folder}: its mode is 0777; {piece}: its mode is 0666" in finding.finding
    assert mend(box) == [f"chmod 755 {folder}", f"chmod 644 {piece}"]
    assert at_rest(box)[0].severity == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_settings_of_an_ordinary_user_are_told_and_given_to_root(box: Box) -> None:
    assert box.config is not None
    os.chown(box.config, OTHER_USER, OTHER_USER)
    (finding,) = at_rest(box)
    assert (finding.severity, finding.about) == ("error", "foreign")
    assert mend(box) == [f"chown -h root {box.config}"]
    assert (box.config.stat().st_uid, box.config.stat().st_gid) == (0, OTHER_USER)
    assert at_rest(box)[0].severity == "ok"
