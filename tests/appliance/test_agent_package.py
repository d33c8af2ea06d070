"""The package outstation-agent on a machine that has Debian's Python and nothing else."""

from __future__ import annotations

from tests.peers.agent_machines import AGENT, NAME, make_camera, make_pair
from tests.peers.appliance import packages
from tests.peers.machines import TestBed


async def test_the_package_installs_joins_answers_is_upgraded_and_purged(bed: TestBed) -> None:
    previous, current = packages("outstation-agent")
    pair = await make_pair(bed, previous)
    camera = pair.camera
    assert await pair.call("test.ping") is True
    shown = await camera.said("outstation-agent", "show")
    assert f"{NAME}\n" in shown
    assert " error " not in await camera.said("outstation-agent", "check")
    before = await camera.property_of(AGENT, "MainPID")

    await make_camera(camera, current)
    await pair.status("connected to ")
    assert await camera.property_of(AGENT, "MainPID") != before
    assert await camera.said("outstation-agent", "show") == shown
    assert await pair.call("test.ping") is True

    # What hangs is ended by its watchdog; what is killed comes back.
    for signal in ("STOP", "KILL"):
        at = await camera.property_of(AGENT, "MainPID")
        if signal == "STOP":
            await camera.run("mkdir", "-p", "/run/systemd/system/outstation-agent.service.d")
            drop_in = "/run/systemd/system/outstation-agent.service.d/soon.conf"
            await camera.write(drop_in, "[Service]\nWatchdogSec=5\n")
            await camera.run("systemctl", "daemon-reload")
            await camera.run("systemctl", "restart", AGENT)
            await pair.status("connected to ")
            at = await camera.property_of(AGENT, "MainPID")
        await camera.run("kill", f"-{signal}", at)
        await pair.restarted(at)
        await pair.status("connected to ")
    assert await pair.call("test.ping") is True

    await camera.run("apt-get", "purge", "--yes", "outstation-agent")
    left = "find / -xdev -name '*outstation*' -not -path '/proc/*' -not -path '/var/tmp/*' -not -path '/var/log/*'"
    assert await camera.sh(left) == ""
    assert await camera.said("dpkg", "--audit") == ""
