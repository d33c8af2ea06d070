"""A stolen master without ``root-shell``, a gateway within its grants, an operator who may look: none gets a root shell
by another name. The device judges the first two for itself, by its own table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.messages import Return
from device_agent.trust.keys import SigningKey
from device_agent.trust.policy import SitePolicy
from device_agent.trust.root_list import MASTER_ROLES
from tests.peers.agent_process import agent_settings, joined
from tests.peers.broker import running_broker
from tests.peers.fleet import Fleet
from tests.peers.office import an_office
from tests.peers.played_station import PlayedStation, a_job, played_station
from tests.peers.trusted_site import TrustedSite
from tests.peers.waiting import until

NOBODY = "outstation-nobody"
"""An account that there is not: should one of these ever run, it does no harm."""

Call = tuple[str, list[Any], dict[str, Any]]


def ways_in(folder: Path) -> list[Call]:
    """Functions that are a root shell by another name."""
    return [
        ("cmd.run", [f"echo x > {folder}/way"], {}),
        ("file.write", [f"{folder}/way", "x"], {}),
        ("file.symlink", ["/bin/sh", f"{folder}/way"], {}),
        ("file.set_mode", [str(folder), "4755"], {}),
        ("file.find", [str(folder)], {"exec": f"touch {folder}/way"}),
        ("file.find", [str(folder), "delete"], {}),
        ("file.sed_contains", [f"{folder}/here", ".", "", f"w {folder}/way"], {}),
        ("camera.snapshot", [], {"save_to": f"{folder}/way"}),
        ("camera.snapshot", [None, "127.0.0.1", 80, "", "", f"{folder}/way"], {}),
        ("ssh.set_auth_key", [NOBODY, "AAAA"], {}),
        ("ssh.host_keys", [str(folder)], {}),
        ("ssh.user_keys", [NOBODY], {}),
        ("cron.set_special", [NOBODY, "@reboot", "true"], {}),
        ("cron.write_cron_file", [NOBODY, "/etc/passwd"], {}),
        ("pkg.install", [NOBODY], {}),
        ("user.chshell", [NOBODY, "/bin/sh"], {}),
        ("shadow.set_password", [NOBODY, "x"], {}),
        ("mount.mount", [f"{folder}/way", "/dev/null"], {"mkmnt": True}),
        ("sysctl.assign", [f"kernel.{NOBODY}", "x"], {}),
        ("service.enable", [NOBODY], {"root": str(folder)}),
        ("service.enable", [f"{folder}/way.service"], {}),
        ("service.mask", [], {"name": f"{folder}/way.service"}),
        ("service.start", ["debug-shell"], {}),
        ("service.start", [f"{NOBODY}@way"], {}),
        ("service.stop", [f"{NOBODY}.mount"], {}),
        ("group.members", [NOBODY, NOBODY], {}),
        ("camera.snapshot", [f"/{NOBODY}.cgi?way=1"], {}),
    ]


class Attack:
    """Orders, and what the one device says to them."""

    def __init__(self, station: PlayedStation, name: str) -> None:
        self._station = station
        self._name = name
        self._number = 0

    async def order(self, call: Call, key: SigningKey | None = None) -> Return:
        """The answer to one call, by master A unless another key signs it."""
        self._number += 1
        fun, arg, kwarg = call
        job = a_job(self._number, fun=fun, arg=arg, kwarg=kwarg)
        await self._station.deliver(job, key=key)
        await until(lambda: self._station.returns[job.jid][self._name], what=f"the answer to {fun}")
        return self._station.returns[job.jid][self._name][0]


async def test_a_master_without_the_role_has_no_other_way_to_a_root_shell(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "here").write_text("here\n")
    site = TrustedSite(Fleet("lisbon"))
    async with (
        running_broker(tmp_path) as broker,
        played_station(broker.address, site) as station,
        joined(station, agent_settings(station, tmp_path)) as agent,
    ):
        attack = Attack(station, agent.identity.name)
        for call in ways_in(folder):
            told = await attack.order(call)
            assert told.outcome == "refused", call
            assert told.why == f"not_granted: {call[0]} needs a master with the role root-shell"
        assert [each.name for each in folder.iterdir()] == ["here"]

        # What it is for goes on: it looks, reads, and manages.
        for call in (
            ("test.ping", [], {}),
            ("file.read", [f"{folder}/here"], {}),
            ("file.find", [str(folder)], {"name": "here"}),
            ("grains.set", ["place", "dock"], {}),
        ):
            told = await attack.order(call)
            assert told.outcome == "ok", told

        # The test could have failed: with the role it is let through.
        fleet = site.fleet
        fleet.next_root(masters=(fleet.a.as_master([*MASTER_ROLES, "root-shell"]), fleet.b.as_master()))
        await station.publish_bundle()
        told = await attack.order(("file.write", [f"{folder}/way", "x"], {}))
        assert told.outcome == "ok"
        assert (folder / "way").read_text() == "x\n"


@pytest.mark.parametrize("fun", [("looks",), ("looks", "reads", "changes"), ("f*", "c*", "s*", "looks")])
async def test_a_site_has_what_it_was_granted_and_no_root_shell_in_it(tmp_path: Path, fun: tuple[str, ...]) -> None:
    """The master that certified it has the role, so that the grants alone decide."""
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "here").write_text("here\n")
    fleet = Fleet("lisbon", policy=SitePolicy(fun=fun))
    fleet.next_root(masters=(fleet.a.as_master([*MASTER_ROLES, "root-shell"]), fleet.b.as_master()))
    async with (
        running_broker(tmp_path) as broker,
        played_station(broker.address, TrustedSite(fleet)) as station,
        joined(station, agent_settings(station, tmp_path)) as agent,
    ):
        attack, key = Attack(station, agent.identity.name), fleet.site.key
        for call in ways_in(folder):
            told = await attack.order(call, key)
            assert told.outcome == "refused", call
            assert told.why.startswith(f"not_granted: {call[0]}")
        assert [each.name for each in folder.iterdir()] == ["here"]
        for call, allowed in (
            (("test.ping", [], {}), True),
            (("file.read", [f"{folder}/here"], {}), fun != ("looks",)),
            (("grains.set", ["place", "dock"], {}), "changes" in fun),
        ):
            told = await attack.order(call, key)
            assert told.outcome == ("ok" if allowed else "refused"), call


async def test_a_site_is_not_lent_a_shell_by_a_master_that_has_none(tmp_path: Path) -> None:
    fleet = Fleet("lisbon", policy=SitePolicy(fun=("looks", "shell", "file.*")))
    async with (
        running_broker(tmp_path) as broker,
        played_station(broker.address, TrustedSite(fleet)) as station,
        joined(station, agent_settings(station, tmp_path)) as agent,
    ):
        attack, key = Attack(station, agent.identity.name), fleet.site.key
        told = await attack.order(("file.write", [f"{tmp_path}/way", "x"], {}), key)
        assert told.why == "not_granted: file.write needs a master with the role root-shell"
        assert (await attack.order(("file.dirname", ["/a/b"], {}), key)).outcome == "ok"
        assert not (tmp_path / "way").exists()


LOOKING = """\
tokens:
  anna: operator
rules:
  operator:
    - allow: [looks]
"""


async def test_an_operator_who_may_look_calls_nothing_that_changes(tmp_path: Path) -> None:
    async with an_office(tmp_path, LOOKING) as office:
        office.here("cam-1")
        changing: list[Call] = [
            ("service.restart", ["ntp"], {}),
            ("system.reboot", [], {}),
            ("grains.set", ["a", "b"], {}),
            ("saltutil.kill_all_jobs", [], {}),
            ("file.read", ["/etc/shadow"], {}),
            ("camera.snapshot", [], {}),
            ("state.apply", [], {}),
        ]
        for fun, arg, kwarg in [*changing, *ways_in(tmp_path)]:
            heard = await office.ask("anna", "POST", "/jobs", {"tgt": "cam-1", "fun": fun, "arg": arg, "kwarg": kwarg})
            assert heard.status == 403, fun
            assert "looks (changes nothing)" in heard.body.decode()
        assert not office.devices.delivered
        for fun in ("test.ping", "service.get_running", "status.uptime", "file.find"):
            heard = await office.ask("anna", "POST", "/jobs", {"tgt": "cam-1", "fun": fun})
            assert heard.status == 201, heard.body
