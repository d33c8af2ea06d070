"""A function, what it is given and what must come of it: as data, so that every host and stock Salt can be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from device_agent import loader
from device_agent.ended import Ended
from device_agent.host import Host
from device_agent.own import Own
from device_agent.pillar import HeldPillar
from device_agent.protocol.pillar import PillarTold

GRAINS: dict[str, Any] = {
    "id": "cam-7",
    "kernel": "Linux",
    "ps": "ps -efHww",
    "os": "Debian",
    "os_family": "Debian",
    "roles": ["camera", "edge"],
    "location": {"room": {"name": "Dock"}},
    "disks": [{"name": "sda"}],
    "serialnumber": "X1",
    "nothing": None,
}
PILLAR: dict[str, Any] = {
    "onvif": {"user": "camera", "password": "hunter2", "port": 8080},
    "servers": ["192.0.2.1", "192.0.2.2"],
    "empty": "",
    "nothing": None,
}
SETTINGS: dict[str, Any] = {
    "log_level": "info",
    "broker": {"host": "192.0.2.10", "port": 1883},
    "host.user": "camera",
}

ROOT = "{root}"
"""Stands for the case's own folder, in its arguments, its scripts and its answer."""

USER = "{user}"
"""Stands for a user of the machine who may do little: ``nobody``, where nothing else is said."""

Check = Callable[[Any], bool]


class Anything:
    """What is only known to be there."""

    def __repr__(self) -> str:
        return "anything"


ANYTHING = Anything()


@dataclass(frozen=True)
class Case:
    """One call. ``given`` and ``leaves`` are shell scripts that run in its folder, before and after."""

    fun: str
    arg: tuple[Any, ...] = ()
    kwarg: dict[str, Any] = field(default_factory=dict)
    given: str = ""
    value: Any = ANYTHING
    check: Check | None = None
    outcome: str = "ok"
    why: str = ""
    """What the reason has in it."""

    leaves: tuple[str, str] | None = None
    """A script, and what it prints when all is as it should be."""

    salt: Literal["value", "shape", "no"] = "value"
    """What stock Salt must answer alike; ``no`` where it has no such function or cannot be asked without a master."""

    root_only: bool = False

    @property
    def id(self) -> str:
        """What a test is called."""
        words = [*map(str, self.arg), *(f"{key}={value}" for key, value in self.kwarg.items())]
        return f"{self.fun} {' '.join(words)}".replace(f"{ROOT}/", "").replace("\n", "\\n")[:80].strip()


def placed(value: Any, folder: str, user: str = "nobody") -> Any:
    """The same with the case's folder and user in it."""
    if isinstance(value, str):
        return value.replace(ROOT, folder).replace(USER, user)
    if isinstance(value, dict):
        return {placed(key, folder, user): placed(inner, folder, user) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [placed(inner, folder, user) for inner in value]
    return value


class PillarStation:
    """A station that gives the pillar of the cases, whatever it is asked."""

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 0.0) -> bytes:
        return msgspec.msgpack.encode(PillarTold(msgspec.msgpack.encode(PILLAR)))


def own_of(folder: str) -> Own:
    """What the device of the cases has beside its machine."""
    station = PillarStation()
    return Own(settings=dict(SETTINGS), grains_file=f"{folder}/grains", station=station, pillar=HeldPillar(station))


async def play(host: Host, case: Case, folder: str, user: str = "nobody") -> None:
    """Make the call in a new folder of the host, and assert that what came of it is right."""
    made = await host.run(["/bin/sh", "-c", 'umask 022; rm -rf "$1" && mkdir -p "$1"', "sh", folder])
    assert made.returncode == 0, made.stderr
    await _script(host, case.given, folder)
    own = own_of(folder)
    arg, kwarg = placed(list(case.arg), folder, user), placed(case.kwarg, folder, user)
    ended = await loader.call(case.fun, host, arg, kwarg, own)
    assert_ended(ended, case, folder)
    if case.leaves is not None:
        script, printed = case.leaves
        assert await _script(host, script, folder) == placed(printed, folder)


def assert_ended(ended: Ended, case: Case, folder: str) -> None:
    """The call ended as the case says."""
    assert ended.outcome == case.outcome, ended
    assert placed(case.why, folder) in ended.why, ended
    if case.value is not ANYTHING:
        assert ended.value == placed(case.value, folder), ended
    if case.check is not None:
        assert case.check(ended.value), ended


async def _script(host: Host, script: str, folder: str) -> str:
    done = await host.run(["/bin/sh", "-c", f'umask 022; cd "$1" && {{ {script or ":"}\n}}', "sh", folder])
    assert done.returncode == 0, (script, done)
    return done.stdout.decode()
