"""device_agent/folder_limits.py: a path in a granted folder leads out of it by no link, over every way to a machine."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from device_agent.beneath import beneath_all
from device_agent.folder_limits import limited
from device_agent.host import Host
from device_agent.local_host import LocalHost
from tests.peers.host_places import Place


@pytest.fixture
def granted(there: Place) -> Host:
    """The host, limited to the folder ``in`` that has a link out of it to a file and to a folder."""
    (there.outside / "in").mkdir()
    (there.outside / "out").mkdir()
    (there.outside / "out" / "secret").write_text("secret")
    (there.outside / "in" / "own").write_text("own")
    (there.outside / "in" / "deep").mkdir()
    (there.outside / "in" / "file").symlink_to(there.at("out/secret"))
    (there.outside / "in" / "folder").symlink_to("../out")
    (there.outside / "in" / "inner").symlink_to("own")
    (there.outside / "in" / "absolute").symlink_to(there.at("in/deep"))
    return limited(there.host, [there.at("in")])


Operation = Callable[[Host, str], Awaitable[object]]
OPERATIONS: dict[str, Operation] = {
    "read": lambda host, path: host.read(path),
    "write": lambda host, path: host.write(path, b"owned"),
    "stat": lambda host, path: host.stat(path),
    "list": lambda host, path: host.list(path),
    "run": lambda host, path: host.run(["touch", path]),
    "run in": lambda host, path: host.run(["true"], cwd=path),
}


@pytest.mark.parametrize("name", ["file", "folder/secret", "folder/new", "deep/../folder/secret"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_no_link_leads_out(there: Place, granted: Host, operation: str, name: str) -> None:
    path = there.at(f"in/{name}")
    with pytest.raises(OSError) as refused:
        await OPERATIONS[operation](granted, path)
    assert (refused.value.errno, refused.value.filename) == (errno.EXDEV, path)
    assert (there.outside / "out" / "secret").read_text() == "secret"
    assert sorted(each.name for each in (there.outside / "out").iterdir()) == ["secret"]


async def test_nothing_is_removed_or_put_through_a_link_of_a_folder(there: Place, granted: Host) -> None:
    for attempt in (
        granted.remove(there.at("in/folder/secret")),
        granted.append(there.at("in/folder/new"), b"x", at=0),
        granted.replace(there.at("in/own"), there.at("in/folder/secret")),
    ):
        with pytest.raises(OSError, match="leads out"):
            await attempt
    assert (there.outside / "out" / "secret").read_text() == "secret"
    assert (there.outside / "in" / "own").exists()


async def test_what_is_inside_works_as_before(there: Place, granted: Host) -> None:
    assert await granted.read(there.at("in/inner")) == b"own"
    await granted.write(there.at("in/absolute/new"), b"new")
    assert (there.outside / "in" / "deep" / "new").read_text() == "new"
    assert await granted.stat(there.at("in/nothing/here")) is None
    assert await granted.list(there.at("in/deep")) == ["new"]
    assert (await granted.run(["cat", there.at("in/deep/new")])).stdout == b"new"
    await granted.remove(there.at("in/file"))
    assert (there.outside / "out" / "secret").exists()
    found = await granted.stat(there.at("in/folder"), follow=False)
    assert found is not None
    assert found.kind == "link"


async def test_what_is_outside_is_not_limited(there: Place, granted: Host) -> None:
    assert await granted.read(there.at("out/secret")) == b"secret"
    assert limited(there.host, []) is there.host


async def test_a_link_that_is_swapped_meanwhile_is_not_followed_here(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("secret")
    host = limited(LocalHost({}), [str(tmp_path / "in")])
    place, done = tmp_path / "in" / "place", asyncio.Event()

    def swap() -> None:
        """A folder and a link out change places, as an attacker in the folder would have it."""
        folder, link = tmp_path / "in" / "a", tmp_path / "in" / "b"
        folder.mkdir()
        (folder / "file").write_text("own")
        link.symlink_to(tmp_path / "out")
        for _ in range(2000):
            folder.rename(place)
            place.rename(folder)
            link.rename(place)
            place.rename(link)

    async def read() -> set[bytes]:
        found = set()
        while not done.is_set():
            try:
                found.add(await host.read(str(place / "file")))
            except OSError:
                continue
        return found

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        await asyncio.to_thread(swap)
        done.set()
    assert b"secret" not in reading.result()


async def test_a_link_stays_below_the_inner_of_two_granted_folders(there: Place) -> None:
    """One function of a job is limited to ``in``, another one to ``in/deep``: a link leaves neither."""
    (there.outside / "in" / "deep").mkdir(parents=True)
    (there.outside / "in" / "beside").write_text("beside")
    (there.outside / "in" / "deep" / "own").write_text("own")
    (there.outside / "in" / "deep" / "link").symlink_to("../beside")
    host = limited(there.host, [there.at("in"), there.at("in/deep")])
    assert await host.read(there.at("in/deep/own")) == b"own"
    assert await host.list(there.at("in/deep")) == ["link", "own"]
    assert await host.list(there.at("in/deep/")) == ["link", "own"]
    await host.write(there.at("in/deep/new"), b"new")
    for operation in OPERATIONS.values():
        with pytest.raises(OSError, match="leads out"):
            await operation(host, there.at("in/deep/link"))
    assert (there.outside / "in" / "beside").read_text() == "beside"


async def test_the_way_to_the_inner_of_two_granted_folders_is_limited_too(there: Place) -> None:
    (there.outside / "in").mkdir()
    (there.outside / "out").mkdir()
    (there.outside / "out" / "secret").write_text("secret")
    (there.outside / "in" / "deep").symlink_to(there.at("out"))
    host = limited(there.host, [there.at("in"), there.at("in/deep")])
    for operation in OPERATIONS.values():
        with pytest.raises(OSError, match="leads out"):
            await operation(host, there.at("in/deep/secret"))
    assert (there.outside / "out" / "secret").read_text() == "secret"


@pytest.mark.parametrize("operation", ["list", "stat"])
async def test_a_name_that_becomes_a_link_after_the_walk_is_not_followed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """The last part of a path changes to a link right after the walk found a folder there."""
    (tmp_path / "in" / "place").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "secret").write_text("secret")
    host = limited(LocalHost({}), [str(tmp_path / "in")])

    def walk_then_swap(*args: Any, **kwargs: Any) -> str:
        kept = beneath_all(*args, **kwargs)
        (tmp_path / "in" / "place").rmdir()
        (tmp_path / "in" / "place").symlink_to(tmp_path / "out")
        return kept

    monkeypatch.setattr("device_agent.folder_limits.beneath_all", walk_then_swap)
    if operation == "list":
        with pytest.raises(OSError, match="Not a directory"):
            await host.list(str(tmp_path / "in" / "place"))
    else:
        found = await host.stat(str(tmp_path / "in" / "place"))
        assert found is not None
        assert found.kind == "link"
