"""A stock master whose job cache cannot store one job: its answers go up; one that stores none costs none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.salt_master import SaltMaster
from tests.peers.system import System

CACHE = "picky_cache"
NAMES = ["cam-00000", "cam-00001"]
PICKY = """

_save_load = save_load


def save_load(jid, clear_load, *args, **more):
    if os.path.exists(FULL) or "odd" in clear_load.get("arg", []):
        raise ValueError("as PostgreSQL does of a text with NUL in it, or when its disk is full")
    return _save_load(jid, clear_load, *args, **more)
"""


@pytest.fixture(scope="module")
def master(programs: Path) -> Iterator[SaltMaster]:
    """One with a job cache as Salt's own that is picky, and full while a file says so."""
    (own,) = programs.parent.glob("lib/python*/site-packages/salt/returners/local_cache.py")
    found = SaltMaster(programs, master_job_cache=CACHE)
    folder = found.folder / "modules" / "returners"
    folder.mkdir(parents=True)
    text = f"{own.read_text()}\nFULL = {str(found.folder / 'full')!r}\n{PICKY}"
    (folder / f"{CACHE}.py").write_text(text)
    found.settings["extension_modules"] = str(folder.parent)
    with found:
        yield found


@pytest.fixture(scope="module")
def site(master: SaltMaster) -> Iterator[System]:
    """A gateway that the master has accepted, with a swarm."""
    with System() as system:
        upstream = {"type": "salt", "masters": [master.address], "acceptance_wait_time": 1, "random_reauth_delay": 0.5}
        system.add_gateway("lisbon", upstream=upstream, broker={"mode": "embedded"})
        master.accept("lisbon")
        system.add_swarm(len(NAMES), "lisbon")
        system.present(len(NAMES), "lisbon")
        system.until(lambda: system.view("lisbon")["uplink"]["state"] == "connected", "it is connected")
        yield system


def returns(site: System) -> dict[str, Any]:
    (found,) = [row for row in site.view("lisbon", "/spool")["classes"] if row["class"] == "returns"]
    return dict(found)


def test_the_answers_to_a_job_that_it_cannot_store_go_up_and_hold_no_others(site: System, master: SaltMaster) -> None:
    odd = site.issue("lisbon", "cam-*", "test.echo", "odd")
    good = site.issue("lisbon", "cam-*", "test.echo", "good")
    site.until(lambda: master.returned(good) == dict.fromkeys(NAMES, "good"), "the rest goes up")
    site.until(lambda: master.returned(odd) == dict.fromkeys(NAMES, "odd"), "so do its answers")
    site.until(lambda: returns(site)["pending"] == 0, "nothing waits")
    assert returns(site)["dropped"] == {}


def test_one_that_stores_nothing_costs_no_answer(site: System, master: SaltMaster) -> None:
    full = master.folder / "full"
    full.touch()
    before = unconfirmed(site)
    jid = site.issue("lisbon", "cam-*", "test.echo", "hello")
    site.until(lambda: unconfirmed(site) >= before + 8, "it was told often")
    assert returns(site)["dropped"] == {}
    assert returns(site)["pending"] > 0
    full.unlink()
    site.until(lambda: master.returned(jid) == dict.fromkeys(NAMES, "hello"), "every answer is in the job cache")
    assert returns(site)["dropped"] == {}


def unconfirmed(site: System) -> int:
    """How often the master did not confirm something."""
    return site.counters("lisbon")["salt_unconfirmed"]
