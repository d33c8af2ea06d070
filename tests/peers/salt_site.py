"""A site without a master of ours: a gateway with simulated devices below stock Salt masters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from device_agent.trust.policy import SitePolicy
from tests.peers.file_server import settled
from tests.peers.salt_master import SaltMaster
from tests.peers.system import System, whole_system

NAME = "lisbon"
"""Of the gateway, and of its key at the masters."""

POLICY = SitePolicy(
    fun=("looks", "event.*"),
    org={"salt": ("looks", "cmd.*", "event.*", "saltutil.kill_job")},
    arg={"cmd.run": ("echo *",)},
)
"""As ``outstation fleet sign-site --origin salt`` grants it."""


class Answered(NamedTuple):
    """What the ledger of the spool says of answers, and of what goes with them: the job itself, and its end."""

    accepted: int
    delivered: int
    dropped: dict[str, int]
    confirmed: int
    """Answers of devices alone, each as often as a master has confirmed that it has it."""


class SaltSite:
    """What a test asks of the gateway and of its masters together."""

    def __init__(self, system: System, masters: Sequence[SaltMaster], devices: int) -> None:
        self.system = system
        self.masters = masters
        self.ids = system.add_swarm(devices, NAME)
        system.present(devices, NAME)

    def links(self) -> dict[str, dict[str, Any]]:
        """Where the gateway's links stand, by the master's address."""
        uplink = self.system.view(NAME)["uplink"]
        return {link["address"]: link for link in uplink["links"]}

    def connected(self, *masters: SaltMaster) -> None:
        """Wait until the gateway is connected to these masters, or to all."""
        wanted = {master.address for master in masters or self.masters}
        self.system.until(
            lambda: all(link["state"] == "connected" for place, link in self.links().items() if place in wanted),
            "the gateway is signed in",
        )

    def active(self) -> str:
        """The address of the active master; empty while there is none."""
        return next((place for place, link in self.links().items() if link["role"] == "active"), "")

    def cut(self) -> None:
        """Take the lines to all masters away, until ``mend``."""
        body = {"content-type": "application/json"}
        assert self.system.ask(NAME, "POST", "/spool/drill", b'{"seconds": 3600}', body)[0] == 200

    def mend(self) -> None:
        assert self.system.ask(NAME, "POST", "/spool/drill/end")[0] == 200
        self.connected()

    def spooled(self) -> int:
        """How much waits for a master."""
        pending: int = self.system.view(NAME)["spool_pending"]
        return pending

    def answers(self) -> Answered:
        """What was spooled of answers so far, and what became of it."""
        (found,) = [each for each in self.system.view(NAME, "/spool")["classes"] if each["class"] == "returns"]
        confirmed = self.system.counters(NAME)["salt_answers_sent"]
        return Answered(found["accepted"], found["delivered"], found["dropped"], confirmed)

    def balanced(self) -> None:
        """Wait until nothing waits for a master, and see that the ledger says what the rows say."""
        self.system.until(lambda: self.spooled() == 0, "every answer is confirmed")
        assert self.system.view(NAME, "/spool/verify")["equal"]

    def answered(self, master: SaltMaster, *words: str) -> None:
        """Every device answers a ping at once, each once."""
        answers = master.salt("cam-*", "test.ping", *words)
        assert answers.by_device() == dict.fromkeys(self.ids, True), self.told(master)
        assert answers.status == 0, answers

    def told(self, master: SaltMaster) -> str:
        """The ends of both logs."""
        return f"the gateway's log ends:\n{self.system.log(NAME)[-6000:]}\n{master.told()}"


@contextmanager
def salt_site(
    *masters: SaltMaster, devices: int, placed: Mapping[str, bytes] | None = None, **given: Any
) -> Iterator[SaltSite]:
    """A gateway that these masters have let in, with its devices. ``given`` are settings of its section upstream.

    ``placed``: files that an operator has put beside the gateway's keys for Salt masters.
    """
    addresses = [master.address for master in masters]
    quick = {"acceptance_wait_time": 1, "random_reauth_delay": 0, "auth_timeout": 60, "master_alive_interval": 5}
    with whole_system() as system:
        for name, content in (placed or {}).items():
            settled(system.state_of(NAME) / "salt" / name, content)
        system.add_gateway(NAME, granted=POLICY, upstream={"type": "salt", "masters": addresses, **quick, **given})
        for master in masters:
            master.accept(NAME)
        site = SaltSite(system, masters, devices)
        site.connected()
        yield site
