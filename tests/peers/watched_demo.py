"""The demo with a tap on its broker: a fleet, a site, devices by token and by fingerprint, jobs, a loss, a theft.

The steps are those of ``outstation demo``, asked for through the API, with canaries in what only its readers may know.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from device_agent.identity import Identity, IdentityFile
from device_agent.trust.token import JoinToken
from gateway.cli.key_client import KeyClient
from tests.peers.canaries import Canary
from tests.peers.hacked_broker import hacked_broker, tapped
from tests.peers.system import Ended, System, assert_exactly_once, whole_system
from tests.peers.tap import Message, Tap

SITE = "lisbon"
SWARM = 3
NORTH, SOUTH, ROOF = "door-north", "door-south", "door-roof"


@dataclass
class WatchedDemo:
    """The system as the demo leaves it, and somebody with every right at its broker."""

    system: System
    tap: Tap
    door: int
    """The port of the attacker's door."""
    root: bytes = b""
    said: list[Message] = field(default_factory=list)
    """Everything that was said at the broker during the demo."""
    secrets: list[Canary] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    alive: list[str] = field(default_factory=list)
    """The devices that are here when the demo has ended."""

    @property
    def marks(self) -> Path:
        """Where each run of one command by a device leaves a line."""
        return self.system.folder / "marks"

    def identity(self, name: str) -> Identity:
        """What is on the flash of an agent."""
        found = IdentityFile(self.system.folder / name).load()
        assert found is not None
        return found

    def canary(self, name: str) -> Canary:
        """Another secret that is looked for."""
        self.secrets.append(Canary(name))
        return self.secrets[-1]

    def run(self, tgt: str, fun: str, *arg: object, station: str = "central", **given: object) -> Ended:
        """A job, when it has ended."""
        self.ended.append(self.system.ended(station, self.system.issue(station, tgt, fun, *arg, **given)))
        return self.ended[-1]

    def works_on(self) -> Ended:
        """A job that every device does once, after all that was said before it."""
        self.system.present(len(self.alive))
        jid = self.system.issue("central", ",".join(self.alive), "test.ping", tgt_type="list")
        ended = self.system.ended("central", jid)
        assert_exactly_once(ended, self.alive)
        return ended

    def keys(self) -> set[tuple[str, str, str]]:
        """Name, identity and state of every device that the site has heard of."""
        found = self.system.view(SITE, "/keys?kind=device")["keys"]
        return {(key["name"], key["did"], key["state"]) for key in found}

    def dids(self) -> list[str]:
        """Every identity that the site has heard of."""
        return sorted(did for _, did, _ in self.keys())


@contextmanager
def watched_demo() -> Iterator[WatchedDemo]:
    """The demo, up to its end; everything of it still runs."""
    with whole_system() as system:
        system.add_master()
        with hacked_broker(system.temporary()) as door:
            system.add_gateway(SITE, "central")
        with tapped(door) as tap:
            system.join(SITE)
            demo = WatchedDemo(system, tap, door)
            demo.root = bytes.fromhex(system.view(SITE, "/fleet")["root"])
            _devices_join(demo)
            _jobs_run(demo)
            _a_device_is_lost(demo)
            _a_device_is_stolen(demo)
            # Devices are told some seconds after that their answers are kept.
            system.until(lambda: any(topic.endswith("/g/all/ack") for topic, _ in tap.heard()), "the devices are told")
            demo.said = tap.heard()
            yield demo


def _devices_join(demo: WatchedDemo) -> None:
    system = demo.system
    grain = demo.canary("a grain").text
    swarm = system.add_swarm(SWARM, SITE)
    for name in (NORTH, SOUTH):
        system.add_agent(name, SITE, kind="door", floor=0, secret=grain)
        token = JoinToken.from_text((system.folder / f"{name}.token").read_text())
        demo.secrets.append(Canary(f"the token of {name}", token.secret))
    keys = KeyClient(system.stations[SITE])
    keys.open_window({"seconds": 300.0, "max": 1})
    broker = system.stations[SITE].station().broker or {}
    given = {
        "site": SITE,
        "root": demo.root.hex(),
        "broker": {"host": "127.0.0.1", "port": broker["enroll_port"]},
        "drain_seconds": 0.5,
    }
    system.start_agent(ROOF, {"kind": "door", "floor": 4, "secret": grain}, None, given)
    system.until(lambda: keys.find(ROOF, "device"), f"{ROOF} asks to join")
    [waiting] = keys.find(ROOF, "device")
    keys.decide(ROOF, "accept", {"fingerprint": waiting.fingerprint})
    demo.alive = sorted([*swarm, NORTH, SOUTH, ROOF])
    system.present(len(demo.alive))
    for name in (NORTH, SOUTH, ROOF):
        identity = demo.identity(name)
        demo.secrets += [
            Canary(f"the password of {name}", identity.password.encode()),
            Canary(f"the key of {name}", identity.sig.private),
            Canary(f"the sealing key of {name}", identity.kem.private),
        ]
    demo.secrets.append(Canary("the first group key", demo.identity(NORTH).groups.newest))


RUNS = 4
"""How often devices ran the command that leaves a line."""


def _jobs_run(demo: WatchedDemo) -> None:
    system = demo.system
    argument, single, value = (demo.canary(f"an argument {how}") for how in ("to all", "to one", "of the site"))
    returned = demo.canary("a return")
    (system.folder / "secret").write_text(returned.text)
    doors = {"tgt_type": "grain"}
    assert demo.run("*", "test.echo", argument.text).job.counts == {"ok": len(demo.alive)}
    assert demo.run("kind:door", "grains.get", "secret", **doors).job.counts == {"ok": 3}
    compound = {"tgt_type": "compound"}
    assert demo.run(f"G@kind:door and not {ROOF}", "test.ping", **compound).job.counts == {"ok": 2}
    assert demo.run("*", "test.echo", value.text, station=SITE).job.counts == {"ok": len(demo.alive)}
    assert demo.run(NORTH, "test.echo", single.text, sealed=True).outcomes[0].value == single.text
    read = demo.run("door-*", "cmd.run", f"cat {system.folder / 'secret'}")
    assert [outcome.value for outcome in read.outcomes] == [returned.text] * 3
    demo.run("kind:door", "cmd.run", f"echo ran >> {demo.marks}", **doors)
    slow = system.issue("central", "cam-*", "test.sleep", 1.0)
    system.until(lambda: sum(system.waiting(SITE, slow).values()) == SWARM, "the swarm has it")
    system.stations["central"].cancel(slow)
    demo.ended.append(system.ended("central", slow))


def _a_device_is_lost(demo: WatchedDemo) -> None:
    demo.system.kill(ROOF)
    demo.alive.remove(ROOF)
    demo.system.present(len(demo.alive))
    assert demo.run("door-*", "test.ping").words()[ROOF] == "unreachable"


def _a_device_is_stolen(demo: WatchedDemo) -> None:
    system = demo.system
    KeyClient(system.stations[SITE]).decide(SOUTH, "revoke", {"why": "stolen"})
    system.stop(SOUTH)
    demo.alive.remove(SOUTH)
    system.present(len(demo.alive))
    demo.works_on()
    # Under the group key of now, so that nothing but its number keeps a job from being said again.
    demo.run(NORTH, "cmd.run", f"echo ran >> {demo.marks}")
    demo.run("cam-*", "test.ping")
    demo.run("cam-00000", "test.ping", sealed=True)
    system.until(lambda: demo.identity(NORTH).groups.epoch == 2, "the next group key is on flash")
    demo.secrets.append(Canary("the second group key", demo.identity(NORTH).groups.newest))
