"""``salt-cp`` of a stock master writes files on devices behind a gateway."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.trust.policy import SitePolicy
from tests.peers.salt_master import SaltMaster
from tests.peers.system import System, whole_system

NAME = "lisbon"
DOOR = "door"
TEXT = "Tür: offen\nzweite Zeile\n"


@pytest.fixture(scope="module")
def site(master: SaltMaster) -> Iterator[System]:
    """A gateway with one agent below the master."""
    granted = SitePolicy(org={"salt": ("looks", "cp.recv*")})
    upstream = {"type": "salt", "masters": [master.address], "acceptance_wait_time": 1, "random_reauth_delay": 0}
    with whole_system() as system:
        system.add_gateway(NAME, granted=granted, upstream=upstream)
        master.accept(NAME)
        system.add_agent(DOOR, NAME)
        system.present(1, NAME)
        system.until(lambda: system.view(NAME)["uplink"]["state"] == "connected", "it is connected")
        yield system


def copied(master: SaltMaster, *words: str) -> dict[str, Any]:
    """What ``salt-cp`` printed, by device."""
    done = master.run("salt-cp", "--out=json", *words)
    assert done.status == 0, done
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.mark.short
@pytest.mark.usefixtures("site")
def test_salt_cp_writes_a_text_on_a_device(master: SaltMaster, tmp_path: Path) -> None:
    source, target = tmp_path / "motd", tmp_path / "there"
    source.write_text(TEXT, encoding="utf-8")
    assert copied(master, DOOR, str(source), str(target)) == {DOOR: {str(target): True}}
    assert target.read_text(encoding="utf-8") == TEXT


@pytest.mark.short
@pytest.mark.usefixtures("site")
def test_salt_cp_chunked_writes_a_large_file_with_its_mode(master: SaltMaster, tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "folder" / "to"
    content = random.Random(1).randbytes(200_000)
    source.write_bytes(content)
    source.chmod(0o640)
    assert copied(master, "--chunked", DOOR, str(source), str(target)) == {DOOR: {str(target): True}}
    assert target.read_bytes() == content
    assert target.stat().st_mode & 0o777 == 0o640


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("words", [[], ["--no-compression"]], ids=["gzip", "no compression"])
def test_salt_cp_chunked_writes_a_folder_with_its_empty_folders(
    words: list[str], master: SaltMaster, tmp_path: Path
) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    contents = {"small": b"\x00\xff\n", "below/large": random.Random(2).randbytes(150_000)}
    for name, content in contents.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    (source / "empty").mkdir()
    answers = copied(master, "--chunked", *words, DOOR, str(source), f"{target}/")
    assert answers == {DOOR: {f"{target}/from/{name}": True for name in [*contents, "empty"]}}
    assert {name: (target / "from" / name).read_bytes() for name in contents} == contents
    assert list((target / "from" / "empty").iterdir()) == []


@pytest.mark.usefixtures("site")
def test_a_file_that_is_too_large_for_a_job_is_refused_in_words(master: SaltMaster, tmp_path: Path) -> None:
    source, target = tmp_path / "large", tmp_path / "there"
    source.write_text("x" * 300_000)
    (said,) = copied(master, DOOR, str(source), str(target)).values()
    assert said.startswith("refused: "), said
    assert not target.exists()
