"""The package outstation-agent on a machine that has Debian's Python and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from tests.peers.agent_machines import AGENT, NAME, Pair, make_pair
from tests.peers.altered_packages import altered
from tests.peers.appliance import PREVIOUS, SECONDS, packages
from tests.peers.machines import Machine, TestBed
from tests.peers.waiting import until


async def installed(camera: Machine, package: Path) -> None:
    """Wait until this version is whole on the camera."""
    wanted = f"install ok installed {package.name.split('_')[1]}"

    async def there() -> bool:
        return wanted == await camera.said(
            "dpkg-query", "--show", "--showformat=${Status} ${Version}", "outstation-agent"
        )

    await until(there, SECONDS, f"{wanted} on the camera")


async def all_ran_once(pair: Pair, function: str) -> int:
    """How many jobs of this function there were; each was run once, and has one answer."""
    jobs = [json.loads(line) for line in (await pair.gateway.said("outstation", "jobs", "list", "--json")).splitlines()]
    jids = [job["jid"] for job in jobs if job["fun"] == function]
    for jid in jids:
        _, *outcomes = (await pair.gateway.said("outstation", "jobs", "show", jid, "--all", "--json")).splitlines()
        assert [json.loads(line)["executions"] for line in outcomes] == [1]
    return len(jids)


async def test_the_package_installs_joins_answers_is_upgraded_and_purged(bed: TestBed, tmp_path: Path) -> None:
    previous, current = packages("outstation-agent")
    pair = await make_pair(bed, previous)
    camera = pair.camera
    assert await pair.call("test.ping") is True
    shown = await camera.said("outstation-agent", "show")
    assert f"{NAME}\n" in shown
    assert " error " not in await camera.said("outstation-agent", "check")

    # An ordinary job upgrades the agent that runs it, is answered once, and leaves the package whole: also where the
    # package manager works on for longer than a stop of the agent waits for its jobs.
    await camera.write("/etc/outstation/agent.yaml", f"serial: {NAME}\ndrain_seconds: 0\n")
    await camera.run("systemctl", "restart", AGENT)
    await pair.status("connected to ")
    before = await camera.property_of(AGENT, "MainPID")
    there = f"/var/tmp/{current.name}"
    await camera.push(current, there)
    changes = await pair.call("pkg.install", f"sources={json.dumps([{'outstation-agent': there}])}")
    assert changes == {"outstation-agent": {"old": PREVIOUS, "new": current.name.split("_")[1]}}
    await pair.restarted(before)
    await pair.status("connected to ")
    assert await camera.said("dpkg", "--audit") == ""
    assert await camera.said("outstation-agent", "show") == shown
    assert await pair.call("test.ping") is True
    assert await all_ran_once(pair, "pkg.install") == 1

    # One that does not come up gives way to a package that lies on the device, as docs/upgrade.md says it is ordered.
    words = f"systemd-run --unit=way-back --on-active=1h sh -c 'outstation-agent status || dpkg --install {there}'"
    await pair.call("cmd.run", words)
    sick = altered(current, "9.1", tmp_path, {"device_agent/agent.py": "raise SystemExit('sick on purpose')\n"})
    await camera.push(sick, f"/var/tmp/{sick.name}")
    sources = f"sources={json.dumps([{'outstation-agent': f'/var/tmp/{sick.name}'}])}"
    await pair.gateway.run("outstation", "run", "--detach", NAME, "pkg.install", "--", sources)
    await installed(camera, sick)

    async def away() -> bool:
        return (await camera.run("outstation-agent", "status", check=False)).returncode != 0

    await until(away, SECONDS, "the end of the agent")
    # The hour is over.
    await camera.run("systemctl", "start", "way-back.service", seconds=SECONDS)
    await installed(camera, current)
    await pair.status("connected to ")
    assert await pair.call("test.ping") is True
    assert await all_ran_once(pair, "pkg.install") == 2

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
