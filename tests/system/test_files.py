"""Files from a master's git repository to a site's devices, as an operator sees them; and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.file_server import committed, sha256
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

FIRMWARE = os.urandom(400_000)
DEVICES = 3


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with whole_system() as started:
        folder = started.folder / "srv"
        (folder / "next").mkdir(parents=True)
        (folder / "next/a.conf").write_bytes(b"of next\n")
        (folder / "next/large").write_bytes(os.urandom(1_100_000))
        committed(folder / "repo", {"camera/a.conf": b"first\n", "camera/fw.bin": FIRMWARE})
        roots = {"base": [{"git": str(folder / "repo"), "ref": "main"}], "next": [str(folder / "next")]}
        started.add_master(file_roots=roots)
        settings = {"cache_megabytes": 1, "fresh_seconds": 0.0}
        started.add_gateway("lisbon", "central", broker=started.add_broker(), files=settings)
        started.join("lisbon", grants=["cp.*", "looks", "reads"])
        started.add_swarm(DEVICES, "lisbon")
        started.present(DEVICES)
        yield started


def test_what_is_served_is_told_at_the_master_and_at_the_site(system: System) -> None:
    commit = committed(system.folder / "srv/repo", {"camera/b.conf": b"b\n"})
    system.until(
        lambda: system.command("files", "find", "salt://camera/a.conf", "--json").json("file")[0]["commit"] == commit,
        "the new commit is served",
    )
    for station in ("central", "lisbon"):
        listed = system.command("files", "list", station=station, status=0)
        lines = {line.strip() for line in listed.out.splitlines()}
        assert lines >= {"camera/a.conf", "camera/b.conf", "camera/fw.bin"}
        (found,) = system.command("files", "find", "salt://camera/fw.bin", "--json", station=station).json("file")
        assert (found["sha256"], found["size"], found["commit"]) == (sha256(FIRMWARE), len(FIRMWARE), commit)
    assert commit in system.command("files", "find", "camera/a.conf", status=0).out
    (files,) = system.command("files", "list", "--saltenv", "next", "--json", status=0).json("files")
    assert (files["paths"], files["commits"]) == (["a.conf", "large"], [])
    assert "no such" in system.command("files", "find", "no such", status=2).error
    assert "bad_path" in system.command("files", "find", "../secret", status=2).error


def test_a_job_knows_the_commit_of_the_files_that_it_names(system: System) -> None:
    commit = committed(system.folder / "srv/repo", {"camera/c.conf": b"c\n"})
    system.until(lambda: system.view("central", "/files")["commits"] == [commit], "the new commit is served")
    jid = system.issue("central", "*", "cp.get_file_str", "salt://camera/c.conf")
    ended = system.ended("central", jid)
    assert {outcome.value for outcome in ended.outcomes} == {"c\n"}
    assert ended.job.commits == f"base:{commit}"
    assert f"base:{commit}" in system.command("jobs", "show", jid, status=0).out
    assert f"base:{commit}" in system.command("audit", "list", "--jid", jid, "--json", status=0).out
    system.until(lambda: system.job("lisbon", jid).commits == f"base:{commit}", "the site knows it too")
    # A site that has heard of the file knows what its own job is made from.
    own = system.issue("lisbon", "*", "cp.get_file_str", "salt://camera/c.conf")
    assert system.ended("lisbon", own).job.commits == f"base:{commit}"
    other = system.issue("central", "*", "cp.get_file_str", "salt://a.conf?saltenv=next")
    ended = system.ended("central", other)
    assert ({outcome.value for outcome in ended.outcomes}, ended.job.commits) == ({"of next\n"}, "")


def test_a_gateway_that_was_killed_serves_what_it_has_while_the_master_is_away(system: System) -> None:
    jid = system.issue("central", "*", "cp.cache_file", "salt://camera/fw.bin")
    ended = system.ended("central", jid)
    assert {sha256(Path(outcome.value).read_bytes()) for outcome in ended.outcomes} == {sha256(FIRMWARE)}
    system.kill("lisbon")
    system.stop("central")
    system.restart("lisbon")
    system.present(DEVICES, "lisbon")
    system.add_agent("late", "lisbon")
    system.present(DEVICES + 1, "lisbon")
    ended = system.ended("lisbon", system.issue("lisbon", "late", "cp.cache_file", "salt://camera/fw.bin"))
    kept = system.state_of("late") / "cache/files/base/camera/fw.bin"
    assert [outcome.value for outcome in ended.outcomes] == [str(kept)]
    assert sha256(kept.read_bytes()) == sha256(FIRMWARE)
    unknown = system.ended("lisbon", system.issue("lisbon", "late", "cp.cache_file", "salt://never/asked"))
    assert ["cut_off" in (outcome.why or "") for outcome in unknown.outcomes] == [True]
    cache = system.command("files", "cache", station="lisbon", status=0)
    assert "camera/fw.bin" in cache.out
    assert "outstation_files_cache_bytes" in system.ask("lisbon", "GET", "/metrics")[1].decode()
    system.restart("central")
    system.connected("lisbon")


def test_what_does_not_fit_into_the_cache_is_refused_with_its_reason_and_others_are_served(system: System) -> None:
    jid = system.issue("central", "cam-00000", "cp.cache_file", "salt://large?saltenv=next")
    (outcome,) = system.ended("central", jid).outcomes
    assert outcome.outcome == "failed"
    assert "cache_full" in (outcome.why or "")
    assert "cache_full" in system.command("files", "cache", station="lisbon", status=1).error
    jid = system.issue("central", "cam-00000", "cp.get_file_str", "salt://a.conf?saltenv=next")
    (outcome,) = system.ended("central", jid).outcomes
    assert outcome.value == "of next\n"
