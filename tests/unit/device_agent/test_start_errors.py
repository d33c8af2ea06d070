"""device_agent/start_errors.py and late_mount.py: which errors end a start as a wrong setting does."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from device_agent import late_mount
from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, StartDeferred
from device_agent.late_mount import missing_mount, unmounted
from device_agent.settings_file import read_file
from device_agent.start_errors import passes, start_error
from device_agent.state_folder import StateFolder
from gateway.fleet.state_folder import made


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EADDRNOTAVAIL, "an address that DHCP brings later"),
        OSError(errno.EADDRINUSE, "a port of a process that ends"),
        OSError(errno.ENODEV, "an interface that is not there yet"),
        socket.gaierror(socket.EAI_AGAIN, "a silent name server"),
        socket.gaierror(socket.EAI_NONAME, "a name that is not known yet"),
        OSError(errno.EROFS, "a disk before its file system check"),
        OSError(errno.ENOSPC, "a full disk"),
        OSError(errno.EIO, "a disk that fails"),
        OSError(errno.EMFILE, "no descriptor left"),
    ],
    ids=str,
)
def test_what_passes_by_itself_ends_with_a_status_that_is_started_again(error: OSError) -> None:
    assert passes(error)
    deferred = start_error(error, "the port cannot be used", where="broker.port")
    assert (type(deferred), deferred.exit_status) == (StartDeferred, EXIT_NOT_ALL_OK)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG])
def test_what_an_operator_has_to_change_ends_with_the_status_of_wrong_settings(number: int) -> None:
    assert not passes(OSError(number, os.strerror(number)))
    assert start_error(OSError(number, "no"), "it cannot be used", where="state_dir").exit_status == EXIT_CONFIG


@pytest.mark.parametrize(
    ("path", "mounted", "missing"),
    [
        ("/data/outstation", ["/"], "/data"),
        ("/data", ["/"], "/data"),
        ("/data/outstation", ["/", "/data"], ""),
        ("/data/deep/outstation", ["/", "/data"], "/data/deep"),
        ("/data/outstation", ["/", "/data/outstation"], ""),
        ("/database/outstation", ["/"], ""),
        ("/var/lib/outstation", ["/"], ""),
        ("/var/lib/outstation", [], "/"),
    ],
)
def test_a_mount_point_above_a_path_has_to_be_mounted(path: str, mounted: list[str], missing: str) -> None:
    assert unmounted(path, ["none", "/", "/data", "/data/deep/"], mounted) == missing


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "fstab"
    made.write_text(f"# a comment\nLABEL=swap none swap sw 0 0\nLABEL=data {tmp_path}/data ext4 nofail 0 2\n")
    monkeypatch.setattr(late_mount, "FSTAB", made)
    (tmp_path / "data").mkdir()
    return made


def test_no_folder_is_made_in_a_mount_point_that_is_empty_yet(table: Path, tmp_path: Path) -> None:
    disk = tmp_path / "data"
    (tmp_path / "link").symlink_to(disk / "outstation")
    for folder in (disk / "outstation", tmp_path / "link" / "gateway"):
        with pytest.raises(StartDeferred, match="not mounted yet"):
            StateFolder(folder).take()
        with pytest.raises(StartDeferred, match="not mounted yet") as raised:
            made(folder)
        assert f"mount {disk}" in str(raised.value.hint)
    assert list(disk.iterdir()) == []
    table.write_text(f"LABEL=data {disk} ext4 noauto 0 2\n")
    assert made(disk / "outstation").is_dir(), "an operator mounts it by hand, or never"


def test_settings_on_a_disk_that_is_mounted_late_may_come(table: Path, tmp_path: Path) -> None:
    with pytest.raises(StartDeferred, match="not mounted yet"):
        read_file(tmp_path / "data" / "gateway.yaml")
    assert table.exists()


def test_without_a_table_of_mounts_nothing_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_mount, "FSTAB", tmp_path / "none")
    assert missing_mount(tmp_path / "data") == ""
