"""An agent that cannot start says in the status of its unit what is wrong and what to type, as the page has it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.peers.notified import played_supervisor
from tests.peers.small_disk import small_disk
from tests.peers.with_fstab import with_fstab
from tests.peers.wrong_starts_page import rows

ROWS = rows("agent")
PROGRAM = (sys.executable, "-m", "device_agent", "run", "--config")
NO_PRIVILEGE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


def no_yaml(config: Path, _state: Path, _stack: ExitStack) -> None:
    config.write_text("serial: cam-7\n  broker: [\n", encoding="utf-8")


def no_setting(config: Path, _state: Path, _stack: ExitStack) -> None:
    config.write_text("log_levle: info\n", encoding="utf-8")


def settings_unread(config: Path, _state: Path, _stack: ExitStack) -> None:
    config.chmod(0)


def closed_folder(_config: Path, state: Path, _stack: ExitStack) -> None:
    state.mkdir(mode=0o500)


def full(config: Path, state: Path, stack: ExitStack) -> None:
    disk = stack.enter_context(small_disk(state.with_name("disk")))
    (disk.folder / "state").mkdir(mode=0o700)
    config.write_text(yaml.safe_dump({"serial": "cam-7", "state_dir": str(disk.folder / "state")}), encoding="utf-8")
    disk.fill()


def disk_late(config: Path, state: Path, _stack: ExitStack) -> None:
    disk = state.with_name("disk")
    disk.mkdir()
    config.write_text(yaml.safe_dump({"serial": "cam-7", "state_dir": str(disk / "state")}), encoding="utf-8")


def no_identity(_config: Path, state: Path, _stack: ExitStack) -> None:
    state.mkdir(mode=0o700)
    (state / "identity").write_bytes(b"bits that flash has lost")


def no_token(_config: Path, state: Path, _stack: ExitStack) -> None:
    state.mkdir(mode=0o700)
    (state / "token").write_text("half of it", encoding="utf-8")


SCENARIOS: dict[str, Callable[[Path, Path, ExitStack], None]] = {
    "the settings are no YAML": no_yaml,
    "a setting that does not exist": no_setting,
    "the settings cannot be read": settings_unread,
    "the state directory cannot be used": closed_folder,
    "the disk of the state directory is not mounted yet": disk_late,
    "the disk is full at the start": full,
    "the identity is damaged": no_identity,
    "the token was not copied whole": no_token,
}


def test_the_page_and_these_tests_know_the_same_wrong_starts() -> None:
    assert ROWS.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_wrong_start_says_what_is_wrong_and_what_to_type(name: str, tmp_path: Path) -> None:
    config, state = tmp_path / "agent.yaml", tmp_path / "state"
    config.write_text(yaml.safe_dump({"serial": "cam-7", "state_dir": str(state)}), encoding="utf-8")
    within: tuple[str, ...] = NO_PRIVILEGE if os.geteuid() == 0 else ()
    if "mounted" in name:
        within = with_fstab(tmp_path, f"LABEL=data {tmp_path / 'disk'} ext4 defaults 0 2\n")
    with ExitStack() as stack, played_supervisor() as supervisor:
        SCENARIOS[name](config, state, stack)
        agent = await asyncio.create_subprocess_exec(
            *within,
            *PROGRAM,
            str(config),
            env={**os.environ, **supervisor.environment()},
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await agent.communicate()
        assert ROWS[name].does == f"ends with {agent.returncode}", said.decode()
        assert ROWS[name].fits(supervisor.status), supervisor.status
