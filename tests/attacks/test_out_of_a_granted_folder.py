"""An attacker who may use a function in one folder, or can make links there, gets no further than that folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from device_agent.errors import Refused
from device_agent.heard import Delivery
from device_agent.outbox import MemoryJournal
from device_agent.protocol.messages import Return
from device_agent.trust.policy import SitePolicy, check_function
from tests.peers.device_bench import Bench, deliver, job
from tests.peers.fleet import Fleet
from tests.peers.guarded import Guarded
from tests.peers.office import an_office

POLICY = """\
tokens: {{anna: operator}}
rules:
  operator:
    - functions: [file.write]
      arguments: {{file.write: [{{positional: ["{folder}/*", "*"]}}]}}
    - functions: [cp.get_file]
      arguments: {{cp.get_file: [{{positional: ["salt://site/*", "{folder}/*"]}}]}}
"""


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with asyncio.TaskGroup() as group:
        yield Bench(group, MemoryJournal())


@pytest.mark.parametrize(
    ("fun", "arg"),
    [
        ("file.write", ["/srv/allowed/../escaped.txt", "owned"]),
        ("file.write", ["/srv/allowed//../../etc/cron.d/x", "owned"]),
        ("file.write", ["/srv/allowed/./x", "owned"]),
        ("cp.get_file", ["salt://site/../fleet/secret", "/srv/allowed/x"]),
        ("cp.get_file", ["salt://site/x?saltenv=dev", "/srv/allowed/x"]),
        ("cp.get_file", ["salt://site/x", "/srv/allowed/../../etc/x"]),
    ],
)
async def test_an_operator_leaves_no_granted_folder_by_spelling(fun: str, arg: list[str], tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY.format(folder="/srv/allowed")) as office:
        office.here("cam-1")
        refused = await office.run("anna", fun, tgt="cam-1", arg=arg)
        assert (refused.status, refused.error["id"]) == (403, "policy.rule")
        assert "not granted with these arguments" in refused.error["what"]


async def test_a_job_by_such_a_rule_carries_the_folder_to_the_device(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY.format(folder="/srv/allowed")) as office:
        office.here("cam-1")
        view = (await office.run("anna", "file.write", tgt="cam-1", arg=["/srv/allowed/x", "a/../b"])).json()
        opened = office.rooms.open_jobs.get(view["jid"])
        assert opened is not None
        assert opened.job.folders == ["/srv/allowed"]


@pytest.mark.parametrize("fun", ["file.read", "file.write", "file.contains", "file.remove", "file.get_hash"])
async def test_a_device_follows_no_link_out_of_the_folder_of_a_job(bench: Bench, tmp_path: Path, fun: str) -> None:
    allowed, secret = tmp_path / "allowed", tmp_path / "secret"
    allowed.mkdir()
    secret.mkdir()
    (secret / "file").write_text("secret")
    (allowed / "link").symlink_to(secret)
    path = os.fspath(allowed / "link" / "file")
    bench.join()
    bench.give(
        deliver(
            job(
                1,
                fun=fun,
                arg=[path, "secret"][: 1 + (fun in {"file.write", "file.contains"})],
                folders=[os.fspath(allowed)],
            )
        )
    )
    await bench.settle()
    [told] = bench.taken()
    assert isinstance(told, Return)
    if fun == "file.contains":
        # As in Salt, a file that cannot be read contains nothing.
        assert (told.outcome, told.value) == ("ok", False)
    else:
        assert (told.outcome, "leads out of the folder" in told.why) == ("failed", True), told
    assert (secret / "file").read_text() == "secret"


def ordered(device: Guarded, **fields: Any) -> Any:
    delivery = device.tell_me(device.site.job(int(device.clock.monotonic()), **fields))
    assert isinstance(delivery, Delivery)
    return delivery.open()[0]


def test_a_site_leaves_no_granted_folder() -> None:
    fleet = Fleet(
        policy=replace(SitePolicy(), fun=("file.read",), arg={"file.read": ("/var/log/*", "path=/srv/*", "")})
    )
    device = Guarded(fleet)
    device.live()
    key = device.site.key
    assert ordered(device, key=key, fun="file.read", arg=["/var/log/syslog"]).folders == ["/var/log"]
    device.clock.move(1)
    assert ordered(device, key=key, fun="file.read", kwarg={"path": "/srv/x"}).folders == ["/srv"]
    for path in ("/var/log/../../etc/shadow", "/var/log//x", "/var/log/.", "/var/logs"):
        device.clock.move(1)
        with pytest.raises(Refused, match="with the argument"):
            ordered(device, key=key, fun="file.read", arg=[path])


GLOBS = {"file.*": ("", "path=/srv/b/*"), "file.read": ("", "/srv/*", "/srv/b/*", "/srv/a*", "path=/srv/*")}


@pytest.mark.parametrize(
    ("arg", "kwarg", "folders"),
    [
        (["/srv/x"], {}, ["/srv"]),
        (["/srv/b/x"], {}, ["/srv"]),
        ([["/srv/x"]], {}, ["/srv"]),
        ([[["/srv/x"]]], {}, ["/srv"]),
        ([], {"path": "/srv/b/x"}, ["/srv", "/srv/b"]),
        ([], {"path": [["/srv/b/x"]]}, ["/srv", "/srv/b"]),
    ],
)
def test_each_value_is_limited_by_the_globs_that_it_fits(arg: list[Any], kwarg: Any, folders: list[str]) -> None:
    grants = SitePolicy(fun=("file.read",), arg=GLOBS if not arg else {"file.read": GLOBS["file.read"]})
    assert sorted(set(check_function(grants, "file.read", arg, kwarg))) == folders


def test_a_wider_folder_of_another_glob_does_not_let_a_value_out_of_its_own() -> None:
    grants = SitePolicy(fun=("file.read",), arg={"file.read": ("/srv/a*", "/srv/b/*")})
    assert check_function(grants, "file.read", ["/srv/b/link/x"], {}) == ["/srv/b"]


async def test_several_functions_in_one_job_lend_each_other_no_folder(bench: Bench, tmp_path: Path) -> None:
    """One function may read all of a folder, another one may write below it in one place."""
    inner = tmp_path / "srv" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "srv" / "passwords").write_text("secret")
    (inner / "link").symlink_to("../passwords")
    bench.join()
    bench.give(
        deliver(
            job(
                1,
                fun="file.write",
                arg=[os.fspath(inner / "link"), "owned"],
                folders=[os.fspath(tmp_path / "srv"), os.fspath(inner)],
            )
        )
    )
    await bench.settle()
    [told] = bench.taken()
    assert isinstance(told, Return)
    assert (told.outcome, "leads out of the folder" in told.why) == ("failed", True), told
    assert (tmp_path / "srv" / "passwords").read_text() == "secret"


def test_a_master_is_limited_to_no_folder_unless_its_policy_says_so() -> None:
    device = Guarded()
    device.live()
    assert ordered(device, fun="file.read", arg=["/var/log/syslog"]).folders is UNSET
    device.clock.move(1)
    limited = ordered(device, fun="file.read", arg=["/var/log/syslog"], folders=("/var/log",))
    assert limited.folders == ["/var/log"]
