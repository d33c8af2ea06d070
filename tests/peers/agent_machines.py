"""A gateway and a camera on booted machines, each from its package: a fleet without a master, on one network.

The gateway's part is what docs/standalone.md says is typed, and the camera's what docs/agent.md says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.appliance import GATEWAY, SECONDS, SITE, install, packages
from tests.peers.machine_roots import CAMERA, Recipe
from tests.peers.machines import Machine, TestBed
from tests.peers.waiting import until

AGENT = "outstation-agent.service"
NAME = "cam-7"
GRANTS = ("looks", "reads", "changes", "shell")


@dataclass
class Pair:
    """The two machines, and what is asked of them."""

    gateway: Machine
    camera: Machine

    async def status(self, part: str) -> str:
        """Wait until ``systemctl status`` of the agent has this in its sentence; the whole sentence."""

        async def said() -> bool:
            return part in await self.camera.property_of(AGENT, "StatusText")

        try:
            await until(said, SECONDS, f"a status of the agent with {part!r}")
        except AssertionError as error:
            log = await self.camera.said("journalctl", "--no-pager", "-u", AGENT)
            raise AssertionError(f"{error}\n{log}") from error
        return await self.camera.property_of(AGENT, "StatusText")

    async def restarted(self, before: str) -> None:
        """Wait until the agent is another process than this one."""

        async def another() -> bool:
            return await self.camera.property_of(AGENT, "MainPID") not in {"0", before}

        await until(another, SECONDS, "another process of the agent")

    async def token(self) -> str:
        """A token for one device."""
        found = json.loads(await self.gateway.said("outstation", "keys", "token", "new", "--json"))
        return str(found["text"])

    async def call(self, function: str, *words: str) -> Any:
        """What a function returned on the camera. Raises AssertionError when it did not end ok."""
        done = await self.gateway.run("outstation", "run", "--json", NAME, function, "--", *words, check=False)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        [outcome] = [row for row in rows if row.get("type") == "outcome"]
        assert outcome["outcome"] == "ok", (function, words, outcome, done.stderr.decode())
        return outcome.get("value")


async def make_gateway(machine: Machine) -> None:
    """Install the package and make the machine the gateway of a site without a master."""
    await install(machine, packages()[1])
    await machine.run("systemctl", "stop", GATEWAY)
    await machine.write(
        "/etc/outstation/gateway.yaml", f"name: {SITE}\nbroker: {{mode: service, host: {machine.address}}}\n"
    )
    await machine.run("outstation", "fleet", "init", "--folder", "/srv/fleet", "--standalone")
    await machine.run("outstation", "gateway", "init", "--file", f"/srv/{SITE}.request")
    grants = [word for grant in GRANTS for word in ("--grant", grant)]
    bundle = ("--bundle", f"/srv/{SITE}.bundle", "--folder", "/srv/fleet")
    await machine.run("outstation", "fleet", "sign-site", f"/srv/{SITE}.request", *grants, *bundle)
    await machine.run("outstation", "gateway", "join", "--bundle", f"/srv/{SITE}.bundle")
    await machine.run("sh", "-c", "chown -R outstation:outstation /var/lib/outstation")
    await machine.run("systemctl", "restart", GATEWAY)

    async def answers() -> bool:
        return (await machine.run("outstation", "devices", "list", check=False)).returncode == 0

    await until(answers, SECONDS, "the gateway answers")


async def make_camera(machine: Machine, package: Path) -> None:
    """Install the agent from its file, on a machine that has nothing but Python."""
    await machine.write("/etc/outstation/agent.yaml", f"serial: {NAME}\n")
    await install(machine, package)


async def make_pair(bed: TestBed, package: Path, recipe: Recipe = CAMERA) -> Pair:
    """Both machines, the agent of this package joined."""
    pair = Pair(await bed.machine("gateway"), await bed.machine("camera", recipe))
    await make_gateway(pair.gateway)
    await make_camera(pair.camera, package)
    await pair.status("not joined yet: outstation-agent join TOKEN")
    await pair.camera.run("outstation-agent", "join", await pair.token())
    await pair.status("connected to ")
    return pair
