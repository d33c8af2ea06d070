"""One command over every way to a device, and the same answer of the same function over each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from device_agent import loader
from device_agent.ended import Ended
from tests.peers import (
    function_cases_accounts,
    function_cases_keys,
    function_cases_packages,
    function_cases_rest,
    function_cases_services,
    function_cases_system,
)
from tests.peers.answers_alike import NOT_RUN, OF_THE_KIND, alike
from tests.peers.every_way import SITE, Ways, add_inside, add_over_ssh, add_swarm_inside, ended, machines
from tests.peers.finished import Finished
from tests.peers.function_case import ROOT, Case, placed
from tests.peers.function_cases import ALL
from tests.peers.function_story import UNSAID, Sh, Step, Story
from tests.peers.ssh_beds import debian, dropbear
from tests.peers.system import whole_system

FULL = bool(os.environ.get("OUTSTATION_EVERY_WAY"))
"""All cases, and everything that changes nothing on all devices; else one case of each function."""

AGENTS, WHOLE, SMALL = 200, 200, 20
SIMULATED = ("grains", "config", "camera")
"""Modules that tell of grains and settings: a swarm's are simulated."""

CHANGING = (
    "grains.setval",
    "grains.setvals",
    "grains.set",
    "grains.append",
    "grains.remove",
    "grains.delval",
    "grains.delkey",
)
"""Functions that write a file which all devices of a machine share."""

CROWDED = ("ps.top", "ps.pgrep", "ps.pkill", "status.pid", "status.procs", "status.all_status")
"""Functions that tell of every process, of which a machine that is two hundred devices has more than a return takes."""

pytestmark = [pytest.mark.system, pytest.mark.timeout(3600 if FULL else 300)]

STORIES = [
    *function_cases_accounts.STORIES,
    *function_cases_keys.STORIES,
    *function_cases_packages.STORIES,
    *function_cases_rest.STORIES,
    *function_cases_services.STORIES,
    *function_cases_system.STORIES,
]
ALONE = ("grains", "saltutil")
"""Modules of which a call sees what the calls beside it do: the facts that they set, the jobs that they are."""


NOT_PLAYED = {("sysctl.assign", "('net.ipv4.ip_forward', 'much')")}
"""Steps that these machines cannot play: that parameter is a file there, which takes every word."""


WORKERS = {"append_if_not_found", "prepend_if_not_found"}
"""Arguments that take a second Python, of which an agent finds none inside these machines."""

NOT_HELD = {("sysctl.show", "()")}
"""Steps of which only the sameness counts: BusyBox ends no line of what it writes into that file."""


def needed(stories: Sequence[Story]) -> list[Story]:
    """The stories without those whose functions have all been in others."""
    kept, played = [], set[str]()
    for story in stories:
        called = {step.fun for step in story.steps if isinstance(step, Step)}
        if not called <= played:
            kept.append(story)
            played |= called
    return kept


def first_of_each() -> list[Case]:
    """One case of each function, one that ends well where there is one."""
    chosen: dict[str, Case] = {}
    for case in ALL:
        known = chosen.get(case.fun)
        if known is None or (known.outcome != "ok" and case.outcome == "ok"):
            chosen[case.fun] = case
    return list(chosen.values())


CASES = [case for case in (ALL if FULL else first_of_each()) if case.fun not in NOT_RUN]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    folder = tmp_path_factory.mktemp("ways")
    folder.chmod(0o755)
    with whole_system() as system, machines(folder) as beds:
        system.add_master()
        system.add_gateway(SITE, "central")
        system.join(SITE)
        add_over_ssh(system, folder, {name: beds[name] for name in ("whole-ssh", "small-ssh")})
        for name in ("whole-agent", "small-agent"):
            add_inside(system, name, beds[name])
        system.present(4)
        yield Ways(system, beds)
        for name in ("whole-agent", "small-agent"):
            system.stop(name)


def test_every_function_is_run_or_has_its_reason() -> None:
    run = {case.fun for case in CASES} | {
        step.fun for story in STORIES for step in story.steps if isinstance(step, Step)
    }
    assert run.isdisjoint(NOT_RUN)
    assert sorted(run | NOT_RUN.keys()) == list(loader.names())


def test_a_function_has_one_answer_over_every_way(ways: Ways) -> None:
    ways.clean()
    given = "".join(
        f"rm -rf /tmp/ways/{number}; mkdir -p /tmp/ways/{number}; cd /tmp/ways/{number}; ( {case.given or ':'}\n)\n"
        for number, case in enumerate(CASES)
    )
    prepared = ways.sh(f"umask 022\n{given}")
    assert {status for status, _ in prepared.values()} == {0}, prepared
    wrong: list[str] = []
    for cases in (
        [each for each in enumerate(CASES) if each[1].fun.partition(".")[0] not in ALONE],
        *([each] for each in enumerate(CASES) if each[1].fun.partition(".")[0] in ALONE),
    ):
        answers = ways.ask([call(case.fun, case.arg, case.kwarg, f"/tmp/ways/{number}") for number, case in cases])
        for (_, case), found in zip(cases, answers, strict=True):
            told = {
                name: each for name, each in found.items() if name.endswith("ssh") or not WORKERS & case.kwarg.keys()
            }
            wrong += differences(case.fun, case.id, told, across=True)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("story", STORIES if FULL else needed(STORIES), ids=lambda story: story.name)
def test_a_function_that_changes_a_machine_does_the_same_over_every_way(story: Story, ways: Ways) -> None:
    ways.clean()
    meant = {
        name for name in ways.beds if {"whole": "debian", "small": "busybox"}[name.partition("-")[0]] in story.kinds
    }
    # A restart that is not played is the end of a machine.
    asked = meant if any(isinstance(step, Step) and step.fun == "system.reboot" for step in story.steps) else ways.beds
    wrong: list[str] = []
    for step in story.steps:
        if isinstance(step, Step) and (step.fun, str(step.arg)) in NOT_PLAYED:
            continue
        if isinstance(step, Sh):
            said = ways.sh(step.script)
            wrong += [
                f"{step.script}: {name} {said[name]}"
                for name in meant
                if said[name][0] or (step.says is not None and said[name][1] != step.says)
            ]
            continue
        [found] = ways.ask([call(step.fun, step.arg, dict(step.kwarg), "")], asked)
        wrong += [f"{name} {step}: {found[name]}" for name in meant if not kept(step, found[name])]
        wrong += differences(step.fun, str(step), found, across=meant == ways.beds.keys())
    assert not wrong, "\n".join(wrong)


EVERYWHERE = (
    ("test.ping",),
    ("test.echo", "it's a $(word) é"),
    ("cmd.run", "uname -s; id -u; echo $((6 * 7))"),
    ("file.get_hash", "/proc/sys/kernel/random/boot_id"),
    ("network.ip_addrs",),
    ("status.nproc",),
)
"""What all devices are asked, whose answer is one on this machine."""


def test_one_command_asks_all_of_them_and_gives_one_table(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with (
        whole_system() as system,
        debian(tmp_path / "whole") as whole,
        dropbear(tmp_path / "small", apart=True) as small,
    ):
        system.add_master()
        system.add_gateway(SITE, "central")
        system.join(SITE)
        # The agents live on the machine that the SSH devices are, so that they have the same to tell.
        devices = {f"agent-{number:05d}" for number in range(AGENTS - 1)} | {"alone"}
        add_swarm_inside(system, AGENTS - 1, whole, "agent-")
        add_inside(system, "alone", whole)
        for prefix, bed, count in (("whole", whole, WHOLE), ("small", small, SMALL)):
            named = {f"{prefix}-{number:03d}": bed for number in range(count)}
            add_over_ssh(system, tmp_path, named)
            devices |= named.keys()
        system.present(len(devices))
        for fun, *words in EVERYWHERE:
            finished = system.command("run", "*", fun, *(f"'{word}'" if word.isalpha() else word for word in words))
            table(finished, devices)
        for case in alike_everywhere() if FULL else ():
            jid = system.issue("central", "*", case.fun, *case.arg, kwarg=case.kwarg)
            told_by = system.ended("central", jid).by_device()
            assert told_by.keys() == devices
            told = {name: ended(each) for name, each in told_by.items()}
            first = {True: told["whole-000"], False: told["small-000"]}
            wrong = [name for name in devices if not alike(case.fun, told[name], first[not name.startswith("small")])]
            assert not wrong, (case.id, [(name, told[name]) for name in wrong[:3]], first)
        for name in ("alone", "agent-"):
            system.stop(name)


def table(finished: Finished, devices: set[str]) -> None:
    """The words of the command: one line for each device, ok and the same value in all of them."""
    assert (finished.status, finished.error.partition(": ")[2]) == (0, f"{len(devices)} expected: {len(devices)} ok\n")
    rows: dict[str, str] = {}
    name = ""
    for line in finished.out.splitlines():
        if not line.startswith(" "):
            name, word, value = (*line.split(None, 2), "")[:3]
            assert word == "ok", line
            assert name not in rows
            rows[name] = value
        else:
            rows[name] += f"\n{line}"
    assert rows.keys() == devices
    assert len(set(rows.values())) == 1, rows


def alike_everywhere() -> list[Case]:
    """The cases that change nothing, and that all devices of a machine may be asked at once."""
    return [
        case
        for case in first_of_each()
        if not case.given
        and ROOT not in f"{case.arg}{case.kwarg}"
        and case.fun not in {*NOT_RUN, *CHANGING, *CROWDED}
        and case.fun.partition(".")[0] not in {*ALONE, *SIMULATED}
    ]


def call(fun: str, arg: Any, kwarg: dict[str, Any], folder: str) -> tuple[str, list[Any], dict[str, Any]]:
    """A call as it is ordered, which is in text."""
    words = [each.decode() if isinstance(each, bytes) else each for each in arg]
    return fun, placed(words, folder, "camera"), placed(kwarg, folder, "camera")


def kept(step: Step, found: Ended) -> bool:
    """Whether an answer is what the story says."""
    if (step.fun, str(step.arg)) in NOT_HELD:
        return found.outcome == step.outcome
    right = step.value is UNSAID or (step.value(found.value) if callable(step.value) else found.value == step.value)
    return right and found.outcome == step.outcome and step.why in found.why


def differences(fun: str, what: str, found: dict[str, Ended], *, across: bool) -> list[str]:
    """Where two that must say the same do not."""
    pairs = [("whole-agent", "whole-ssh"), ("small-agent", "small-ssh")]
    if across and fun not in OF_THE_KIND:
        pairs.append(("whole-ssh", "small-ssh"))
    return [
        f"{what}\n  {one}: {found[one]}\n  {other}: {found[other]}"
        for one, other in pairs
        if one in found and other in found and not alike(fun, found[one], found[other])
    ]
