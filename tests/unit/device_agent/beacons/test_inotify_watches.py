"""Paths that are one file or folder share a watch of the kernel; a folder that is moved takes its watch with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from device_agent.beacons.port import Found
from tests.unit.device_agent.beacons.test_files import told, watching

Look = Callable[[], Awaitable[list[Found]]]

WHOLE = {"mask": ["create"], "recurse": True}
PART = {"mask": ["modify"]}


@pytest.mark.parametrize("part_first", [False, True])
async def test_a_folder_and_one_in_it_tell_each_what_is_wanted_of_it(tmp_path: Path, part_first: bool) -> None:
    inner = tmp_path / "s"
    inner.mkdir()
    files: dict[str, Any] = {str(tmp_path): WHOLE, str(inner): PART}
    if part_first:
        files = dict(reversed(files.items()))
    async with watching("inotify", [{"files": files}]) as look:
        (inner / "new").touch()
        assert told(await look()) == [(str(inner), str(inner / "new"), "IN_CREATE")]
        (inner / "new").write_text("x")
        assert told(await look()) == [(str(inner), str(inner / "new"), "IN_MODIFY")]


async def test_what_two_entries_want_of_one_path_is_told_once(tmp_path: Path) -> None:
    inner = tmp_path / "s"
    inner.mkdir()
    both = {"mask": ["create", "modify"], "recurse": True}
    async with watching("inotify", [{"files": {str(tmp_path): both, str(inner): both}}]) as look:
        (inner / "new").write_text("x")
        assert told(await look()) == [
            (str(inner), str(inner / "new"), "IN_CREATE"),
            (str(inner), str(inner / "new"), "IN_MODIFY"),
        ]


async def test_a_folder_with_two_paths_is_told_under_both_at_each_look(tmp_path: Path) -> None:
    real, link = tmp_path / "run", tmp_path / "var-run"
    real.mkdir()
    link.symlink_to(real)
    async with watching("inotify", [{"files": {str(real): {"mask": ["create"]}, str(link): {}}}]) as look:
        for name in "abc":
            (real / name).touch()
            assert set(told(await look())) == {
                (str(real), str(real / name), "IN_CREATE"),
                (str(link), str(link / name), "IN_CREATE"),
            }
        link.unlink()
        link.mkdir()
        assert told(await look()) == [(str(link), str(link), "IN_CREATE")]
        (real / "d").touch()
        assert told(await look()) == [(str(real), str(real / "d"), "IN_CREATE")]


async def test_an_entry_that_is_told_once_does_not_end_the_watch_of_another(tmp_path: Path) -> None:
    inner = tmp_path / "s"
    inner.mkdir()
    for turn, files in enumerate(
        (
            {str(tmp_path): WHOLE, str(inner): {"mask": ["modify", "oneshot"]}},
            {str(inner): {"mask": ["modify", "excl_unlink", "oneshot"]}, str(tmp_path): WHOLE},
        )
    ):
        async with watching("inotify", [{"files": files}]) as look:
            for number in range(3):
                name = inner / f"{turn}-{number}"
                name.touch()
                assert told(await look()) == [(str(inner), str(name), "IN_CREATE")]


async def test_a_hard_link_is_told_under_both_names(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    files = {str(tmp_path / "a"): PART, str(tmp_path / "b"): PART}
    async with watching("inotify", [{"files": files}]) as look:
        (tmp_path / "a").write_text("x")
        assert {each[1] for each in told(await look())} == {str(tmp_path / "a"), str(tmp_path / "b")}


async def _next(look: Look) -> list[tuple[str, str, str]]:
    """What the third look finds: by then a folder that left the tree is let go."""
    await look()
    await look()
    return told(await look())


@pytest.mark.parametrize("auto_add", [False, True])
async def test_a_folder_that_was_moved_out_is_not_told_under_its_old_path(tmp_path: Path, auto_add: bool) -> None:
    tree, elsewhere = tmp_path / "tree", tmp_path / "elsewhere"
    (tree / "a/deep").mkdir(parents=True)
    options = {"recurse": True, "auto_add": auto_add, "mask": ["create", "modify", "delete"]}
    async with watching("inotify", [{"files": {str(tree): options}}]) as look:
        (tree / "a").rename(elsewhere)
        (elsewhere / "at-once").touch()
        assert await look() == []
        (elsewhere / "deep/x").touch()
        assert await _next(look) == []
        (elsewhere / "y").touch()
        (elsewhere / "deep/x").write_text("x")
        assert await look() == []
        # It is told again when it is back.
        elsewhere.rename(tree / "a")
        await look()
        (tree / "a/z").touch()
        assert told(await look()) == ([(str(tree / "a"), str(tree / "a/z"), "IN_CREATE")] if auto_add else [])


@pytest.mark.parametrize("auto_add", [False, True])
async def test_a_folder_that_was_renamed_in_the_tree_is_told_under_its_new_path(tmp_path: Path, auto_add: bool) -> None:
    for name in ("a/deep", "b"):
        (tmp_path / name).mkdir(parents=True)
    options = {"recurse": True, "auto_add": auto_add, "mask": ["create"], "exclude": [str(tmp_path / "b/cache")]}
    async with watching("inotify", [{"files": {str(tmp_path): options}}]) as look:
        (tmp_path / "a/deep/before").touch()
        (tmp_path / "a").rename(tmp_path / "b/new")
        (tmp_path / "b/new/deep/after").touch()
        new = str(tmp_path / "b/new/deep")
        before = (str(tmp_path / "a/deep"), str(tmp_path / "a/deep/before"), "IN_CREATE")
        assert told(await look()) == [before, (new, f"{new}/after", "IN_CREATE")]
        (tmp_path / "b/new/deep/later").touch()
        assert await _next(look) == []
        (tmp_path / "b/new/deep/last").touch()
        assert told(await look()) == [(new, f"{new}/last", "IN_CREATE")]
        (tmp_path / "b/new").rename(tmp_path / "b/cache")
        (tmp_path / "b/cache/deep/x").touch()
        assert await look() == []


async def test_a_folder_that_took_the_place_of_an_empty_one_is_told_under_its_new_path(tmp_path: Path) -> None:
    for name in ("new", "place"):
        (tmp_path / name).mkdir()
    options = {"recurse": True, "auto_add": True, "mask": ["create", "delete"]}
    async with watching("inotify", [{"files": {str(tmp_path): options}}]) as look:
        place = tmp_path / "place"
        (tmp_path / "new").rename(place)
        await look()
        (place / "x").touch()
        assert told(await look()) == [(str(place), str(place / "x"), "IN_CREATE")]
        (place / "x").unlink()
        place.rmdir()
        assert told(await look()) == [
            (str(place), str(place / "x"), "IN_DELETE"),
            (str(tmp_path), str(place), "IN_DELETE|IN_ISDIR"),
        ]


async def test_a_move_is_told_to_an_entry_that_wants_to_know(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    options = {"recurse": True, "mask": ["moved_from", "moved_to"]}
    async with watching("inotify", [{"files": {str(tree): options}}]) as look:
        (tree / "a").rename(tree / "b")
        (tree / "b").rename(tmp_path / "out")
        assert told(await look()) == [
            (str(tree), str(tree / "a"), "IN_MOVED_FROM|IN_ISDIR"),
            (str(tree), str(tree / "b"), "IN_MOVED_TO|IN_ISDIR"),
            (str(tree), str(tree / "b"), "IN_MOVED_FROM|IN_ISDIR"),
        ]


async def test_a_folder_that_went_to_the_tree_of_another_entry_is_its_own(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    (one / "a").mkdir(parents=True)
    other.mkdir()
    follows = {"recurse": True, "auto_add": True, "mask": ["create"]}
    async with watching("inotify", [{"files": {str(one): follows, str(other): follows}}]) as look:
        (one / "a").rename(other / "a")
        assert await _next(look) == []
        (other / "a/x").touch()
        assert told(await look()) == [(str(other / "a"), str(other / "a/x"), "IN_CREATE")]


async def test_a_path_whose_parent_was_moved_is_let_go(tmp_path: Path) -> None:
    (tmp_path / "parent/watched").mkdir(parents=True)
    async with watching("inotify", [{"files": {str(tmp_path / "parent/watched"): {"mask": ["create"]}}}]) as look:
        (tmp_path / "parent").rename(tmp_path / "old")
        assert await look() == []
        (tmp_path / "old/watched/x").touch()
        assert await look() == []
        (tmp_path / "old").rename(tmp_path / "parent")
        assert [each[2] for each in told(await look())] == ["IN_CREATE"]
        (tmp_path / "parent/watched/y").touch()
        assert [each[1] for each in told(await look())] == [str(tmp_path / "parent/watched/y")]
