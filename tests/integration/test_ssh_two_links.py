"""One device with an agent and over SSH: which link is used, and that no job runs over both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from device_agent.protocol.links import Answered, Parcel
from device_agent.protocol.messages import Gone, Hello
from gateway.devices.ssh_secrets import Secret
from gateway.jobs.handed_out import handed_out
from tests.peers.ssh_played import PASSWORD, played_device
from tests.peers.ssh_site import SshSite, ssh_site
from tests.peers.waiting import until

NAME = "cam-1"
AGENT = "a1" * 8


class PaperMqtt:
    """The other link, which only counts."""

    name: ClassVar[str] = "mqtt"

    def __init__(self) -> None:
        self.delivered = 0
        self.cancelled: list[str] = []

    async def deliver(self, parcel: Parcel, remaining: float, names: Sequence[str]) -> None:
        self.delivered += 1

    async def cancel(self, jid: str, names: Sequence[str]) -> None:
        self.cancelled.append(jid)

    async def confirm(self, answered: Answered) -> None:
        return


def agent_comes(site: SshSite) -> None:
    site.rooms.registry.hello("mqtt", NAME, Hello(AGENT, "0.1", {"id": NAME}))
    site.rooms.registry.welcomed(NAME)


def link(site: SshSite) -> tuple[str, bool]:
    known = site.device(NAME)
    return known.link, known.present


async def test_the_agent_comes_first_and_ssh_takes_over_at_once(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        mqtt = site.rooms.downlinks["mqtt"] = PaperMqtt()
        await site.add(NAME, camera.port, camera.host_keys, Secret(password=PASSWORD))
        await site.here(NAME)
        agent_comes(site)
        view = site.ssh.view(NAME)
        assert view is not None
        assert (link(site), view["state"]) == (("mqtt", True), "standby")

        jid = await site.start("cmd.run", NAME, arg=["echo marked"])
        await until(lambda: mqtt.delivered == 1, what="the job goes to the agent")
        site.rooms.registry.gone(NAME, Gone(AGENT))
        assert link(site) == ("ssh", True), "it was known to be reached, so nothing is waited for"
        assert (await site.run("cmd.run", NAME, arg=["echo over ssh"]))[NAME].value == "over ssh"
        opened = site.rooms.open_jobs.get(jid)
        assert opened is not None
        site.rooms.delivery.moved(NAME)
        assert (await site.run("test.ping", NAME))[NAME].outcome == "ok"
        assert not any("marked" in command for command in camera.commands), "the agent may have run it"
        assert await handed_out(site.rooms.reader, jid) == {NAME: "mqtt"}

        agent_comes(site)
        await until(lambda: mqtt.delivered == 2, what="the agent is asked again")
        assert link(site) == ("mqtt", True)


async def test_what_runs_over_ssh_is_answered_there_when_the_agent_comes_back(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    async with played_device() as camera, ssh_site(tmp_path / "site") as site:
        mqtt = site.rooms.downlinks["mqtt"] = PaperMqtt()
        await site.add(NAME, camera.port, camera.host_keys, Secret(password=PASSWORD))
        await site.here(NAME)
        jid = await site.start(
            "cmd.run", NAME, arg=[f"while ! test -e {flag}; do sleep 0.05; done; echo done # marked"]
        )
        await until(lambda: any("marked" in command for command in camera.commands), what="the command")
        agent_comes(site)
        flag.touch()
        assert (await site.outcomes(jid))[NAME].value == "done"
        assert mqtt.delivered == 0
        journal = site.site.ssh_journals.of(NAME)
        await until(lambda: not journal.unconfirmed(), what="it is confirmed where it was done")
