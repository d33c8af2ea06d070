"""gateway/engines/sources.py: which file is an engine, and whose it must be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from device_agent.errors import Refused
from gateway.engines.sources import SOURCE_BYTES, Sources

TEXT = b"def start(): ...\n"


class Brought:
    """What was synced."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def holds(self, path: str) -> bool:
        return path in self._files

    def verified(self, path: str) -> bytes:
        if self._files[path] == b"altered":
            raise Refused("altered", f"{path} has another hash")
        return self._files[path]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "engines"
    place.mkdir(mode=0o755)
    return place


def lay(place: Path, text: bytes = TEXT, mode: int = 0o644) -> Path:
    place.write_bytes(text)
    place.chmod(mode)
    return place


async def refused(sources: Sources, module: str) -> Refused:
    with pytest.raises(Refused) as caught:
        await sources.find(module)
    return caught.value


async def test_a_folder_comes_before_what_was_synced_and_that_before_the_release(folder: Path) -> None:
    sources = Sources([folder], Brought({"_engines/logtail.py": b"synced"}))
    assert (await sources.find("logtail")).path == "salt://_engines/logtail.py"
    assert (await sources.find("event_to_file")).builtin
    lay(folder / "logtail.py")
    found = await sources.find("logtail")
    assert (found.path, found.text, found.builtin) == (str(folder / "logtail.py"), TEXT, False)


async def test_one_that_is_nowhere_is_refused_with_every_place_that_was_looked_at(folder: Path) -> None:
    refusal = await refused(Sources([folder], Brought({})), "nothing")
    assert refusal.reason == "not_there"
    assert str(folder) in refusal.detail
    assert "saltutil.sync_engines" in refusal.detail
    assert (await refused(Sources([folder], Brought({})), "__init__")).reason == "not_there"


async def test_a_synced_one_that_was_altered_does_not_run(folder: Path) -> None:
    assert (await refused(Sources([folder], Brought({"_engines/a.py": b"altered"})), "a")).reason == "altered"


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
async def test_a_file_that_others_may_write_is_refused(folder: Path, mode: int) -> None:
    lay(folder / "a.py", mode=mode)
    refusal = await refused(Sources([folder], Brought({})), "a")
    assert (refusal.reason, "chmod go-w" in refusal.detail) == ("unsafe", True)


async def test_a_folder_that_others_may_write_is_refused_unless_it_is_sticky(folder: Path) -> None:
    lay(folder / "a.py")
    folder.chmod(0o777)
    assert (await refused(Sources([folder], Brought({})), "a")).reason == "unsafe"
    folder.chmod(0o1777)
    assert (await Sources([folder], Brought({})).find("a")).text == TEXT


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away takes root")
async def test_a_file_of_another_user_is_refused(folder: Path) -> None:
    os.chown(lay(folder / "a.py"), 12345, 0)
    refusal = await refused(Sources([folder], Brought({})), "a")
    assert (refusal.reason, "uid 12345" in refusal.detail) == ("unsafe", True)


async def test_a_link_a_pipe_and_too_much_are_refused(folder: Path) -> None:
    sources = Sources([folder], Brought({}))
    (folder / "link.py").symlink_to(lay(folder / "a.py"))
    assert (await refused(sources, "link")).reason == "unsafe"
    os.mkfifo(folder / "pipe.py", 0o600)
    assert (await refused(sources, "pipe")).reason == "unsafe"
    lay(folder / "large.py", b"#" * (SOURCE_BYTES + 1))
    assert (await refused(sources, "large")).reason == "oversized"
