"""What a function returns has the shape that stock Salt gives it, and its value where it is about the machine."""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from device_agent import loader
from device_agent.ended import Ended
from device_agent.local_host import LocalHost
from tests.peers.function_case import GRAINS, PILLAR, SETTINGS, Case, own_of, placed
from tests.peers.function_cases import ALL
from tests.peers.functions_page import listed
from tests.peers.salt_call import answers
from tests.peers.salt_machine import How, answer, unlike
from tests.peers.salt_release import MINUTES

CASES = [case for case in ALL if case.salt != "no"]


def is_listed(case: Case) -> bool:
    """Whether the page says that this call ends otherwise than in Salt, by its function or with named arguments."""
    given = {f"{key}={value}" for key, value in case.kwarg.items()}
    spans = (span.split() for row in listed("Answers") for span in row[0])
    return any(case.fun == name and set(conditions) <= given for name, *conditions in spans)


@pytest.mark.system
@pytest.mark.timeout(60 * MINUTES)
async def test_each_function_answers_as_stock_salt_does(salt: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("the calls are made as root, as Salt makes them")
    asked = [question(case, f"{tmp_path}/salt/{number}") for number, case in enumerate(CASES)]
    told = answers(salt, tmp_path / "stock", asked, GRAINS, {**SETTINGS, "pillar": PILLAR})
    found = []
    for number, (case, theirs) in enumerate(zip(CASES, told, strict=True)):
        ended = await ours(case, f"{tmp_path}/ours/{number}")
        how: How = "shape" if case.salt == "shape" else "value"
        folders = (f"{tmp_path}/ours/{number}", f"{tmp_path}/salt/{number}")
        wrong = "Salt has no such function" if theirs.get("missing") else unlike(answer(ended), theirs, how, folders)
        if wrong and not is_listed(case):
            found.append(f"{case.id}: {wrong}")
    assert not found, "\n".join(found)


def question(case: Case, folder: str) -> dict[str, Any]:
    """A call as Salt is asked it."""
    given = {"arg": placed(list(case.arg), folder), "kwarg": placed(case.kwarg, folder)}
    return {"fun": case.fun, **given, "given": case.given, "folder": folder}


async def ours(case: Case, folder: str) -> Ended:
    """The same call here."""
    host = LocalHost(deepcopy(GRAINS))
    script = f'umask 022; mkdir -p "$1"; cd "$1" && {{ {case.given or ":"}\n}}'
    assert (await host.run(["/bin/sh", "-c", script, "sh", folder])).returncode == 0
    arg, kwarg = placed(list(case.arg), folder), placed(case.kwarg, folder)
    return await loader.call(case.fun, host, arg, kwarg, own_of(folder))
