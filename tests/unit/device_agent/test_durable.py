"""A FIFO in the place of a file of the state folder stops the start with an error, and does not hang it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from device_agent.durable import open_regular, read_regular


def test_a_regular_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file") == read_regular(tmp_path / "link") == b"content"
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(tmp_path / "link", follow=False)


def test_a_file_that_is_not_there_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_a_fifo_a_socket_a_folder_and_a_device_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="it is not a regular file"):
        open_regular(tmp_path / "fifo")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(OSError, match="it is not a regular file"):
        open_regular(Path(os.devnull))
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="No such device"):
            open_regular(tmp_path / "socket")
