"""A function that changes a device changes it and answers as stock Salt's does: on twins of a machine to throw away."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from device_agent import loader
from device_agent.trust.reach import MODULES
from tests.peers import functions_page
from tests.peers.function_cases import ALL
from tests.peers.function_stories import WITH_SALT, steps
from tests.peers.function_story import Story
from tests.peers.mine_calls import MINE
from tests.peers.rooted import SEPARATE
from tests.peers.salt_call import ARGUMENTS
from tests.peers.salt_machine import beside, other_arguments, twins
from tests.peers.salt_release import MINUTES

COMPARED = (
    MINE | {case.fun for case in ALL if case.salt != "no"} | steps("value", "shape", "differs", stories=WITH_SALT)
)
FIT = "mkdir -p /run/systemd/system; ln -s $(command -v busybox) /usr/bin/crontab"
"""So that all of Salt's modules load: those of systemd, and those for a crontab."""


def separate() -> bool:
    """This account may make namespaces with mounts of their own."""
    return os.geteuid() == 0 and subprocess.run([*SEPARATE, "true"], check=False, capture_output=True).returncode == 0


pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(60 * (MINUTES + 5)),
    pytest.mark.skipif(not separate(), reason="takes root, for namespaces to throw away"),
]


@pytest.mark.parametrize("story", WITH_SALT, ids=lambda story: story.name)
async def test_a_device_is_changed_as_stock_salt_changes_it(story: Story, salt: Path, tmp_path: Path) -> None:
    async with twins(salt, tmp_path) as (ours, theirs):
        found = await beside(story, ours, theirs)
    assert not found, "\n".join(found)


async def test_of_every_function_arguments_and_answers_are_held_against_salt(salt: Path, tmp_path: Path) -> None:
    differing, lacking = functions_page.words("Arguments"), functions_page.words("Not taken")
    not_asked = functions_page.named("Not asked of Salt")
    missing = functions_page.named("Functions of Salt that are not here")
    found = []
    async with twins(salt, tmp_path) as (_, theirs):
        await theirs.call("cmd.run", FIT)
        for name in loader.names():
            told = await theirs.call(ARGUMENTS, name)
            if told.outcome == "refused":
                found += [] if name in functions_page.named("Answers") else [f"{name} is not in Salt"]
                continue
            if (name in COMPARED) == (name in not_asked):
                found.append(f"{name} is neither compared nor said to be not asked, or both")
            other, without = other_arguments(loader.signature(name), told.value)
            found += [f"{name}: {word} in Salt's {told.value}" for word in other if (name, word) not in differing]
            found += [f"{name} lacks Salt's {word}" for word in without if (name, word) not in lacking]
            lacking -= {(name, word) for word in without}
        for name in (await theirs.call("sys.list_functions")).value:
            if name.partition(".")[0] in MODULES and name not in loader.names() and name not in missing:
                found.append(f"{name} of Salt is neither here nor named as missing")
    assert not found, "\n".join(found)
    assert not lacking, "the page names these as not taken, and they are taken or Salt has none"
