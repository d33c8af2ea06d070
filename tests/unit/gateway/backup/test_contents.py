"""gateway/backup/contents.py: the list of files, which leads nowhere but where they belong."""

from __future__ import annotations

import io
from typing import Any

import pytest

from device_agent.trust.codec import encode
from gateway.backup.archive import Cost, SealedReader, SealedWriter, read_header
from gateway.backup.contents import Contents, Entry, read_contents, written
from gateway.backup.refusals import BackupRefused

PASSPHRASE = b"six words that were drawn by lot"
FILES = (
    Entry("trust.keys", 74),
    Entry("curve.key", 96),
    Entry("settings/main.yaml", 13),
    Entry("settings/pieces/10 port.yaml", 0),
    Entry("station.sqlite", 2**40),
)
LIST = Contents("lisbon", 1_795_230_900, "1.2", 7, has_keys=True, devices={"accepted": 3, "pending": 1}, files=FILES)


def archive_of(content: bytes) -> SealedReader:
    out = io.BytesIO()
    writer = SealedWriter(out, PASSPHRASE, cost=Cost(log_n=1))
    writer.write(content)
    writer.finish()
    out.seek(0)
    return SealedReader(out, read_header(out, "b"), PASSPHRASE, "b")


def refused(fields: Any) -> str:
    body = encode(fields)
    with pytest.raises(BackupRefused) as error:
        read_contents(archive_of(len(body).to_bytes(4, "big") + body), "b")
    return error.value.reason


def fields(**changes: Any) -> dict[str, Any]:
    """The list as it is written, with these changes."""
    return {
        "format": 1,
        "site": "lisbon",
        "taken": 1_795_230_900,
        "release": "1.2",
        "schema": 7,
        "keys": False,
        "devices": {},
        "files": [["station.sqlite", 1]],
        **changes,
    }


def test_what_is_listed_is_read_again() -> None:
    archive = archive_of(written(LIST) + b"and then the files")
    assert read_contents(archive, "b") == LIST
    assert archive.exactly(8) == b"and then"
    assert LIST.size == 2**40 + 74 + 96 + 13


@pytest.mark.parametrize(
    "name",
    [
        "lock",
        "../trust.keys",
        "/etc/passwd",
        "settings/pieces/../../x.yaml",
        "settings/pieces/.hidden.yaml",
        "settings/pieces/x.yaml/y.yaml",
        "settings/pieces/a\nb.yaml",
        "settings/pieces/.yaml",
        "policy/pieces/x.txt",
        "settings/",
        "",
    ],
)
def test_no_other_file_is_taken(name: str) -> None:
    assert refused(fields(files=[[name, 1], ["station.sqlite", 1]])) == "malformed"


@pytest.mark.parametrize(
    "changes",
    [
        {"files": []},
        {"files": [["root-lists", 1]]},
        {"files": [["station.sqlite", 1], ["root-lists", 1]]},
        {"files": [["root-lists", 1], ["root-lists", 1], ["station.sqlite", 1]]},
        {"files": [["root-lists", -1], ["station.sqlite", 1]]},
        {"files": [["root-lists", 2**24 + 1], ["station.sqlite", 1]]},
        {"files": [[f"policy/pieces/{n}.yaml", 2**24] for n in range(5)] + [["station.sqlite", 1]]},
        {"files": [["station.sqlite", 0]]},
        {"files": [["station.sqlite", True]]},
        {"files": [["station.sqlite"]]},
        {"files": "station.sqlite"},
        {"keys": True},
        {"keys": 1},
        {"files": [["trust.keys", 1], ["curve.key", 1], ["station.sqlite", 1]]},
        {"devices": {"accepted": "3"}},
        {"devices": []},
        {"site": b"lisbon"},
        {"taken": 1.5},
        {"more": 1},
    ],
    ids=str,
)
def test_a_list_of_another_kind_is_refused(changes: dict[str, Any]) -> None:
    assert refused(fields(**changes)) == "malformed"


def test_a_list_of_a_later_release_is_said_to_be_one() -> None:
    assert refused(fields(format=2, anything=1)) == "newer"


@pytest.mark.parametrize("content", [b"", b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\2\xa1", b"\0\0\0\1\x01"])
def test_no_list_at_all_is_refused(content: bytes) -> None:
    with pytest.raises(BackupRefused) as error:
        read_contents(archive_of(content), "b")
    assert error.value.reason == "malformed"
