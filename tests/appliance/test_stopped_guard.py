"""A guard that is told to stop while it puts a version back, as by a shutdown: dpkg gets to its end, and it goes on."""

from __future__ import annotations

from pathlib import Path

from tests.peers.altered_packages import altered
from tests.peers.machines import Machine, TestBed
from tests.peers.upgrading import (
    GUARD,
    QUICK,
    SECONDS,
    answers,
    built,
    ended,
    installed,
    make_lisbon,
    record,
    tags_of,
    version_of,
)
from tests.peers.waiting import until

HERE, GO_ON = "/srv/it-is-here", "/srv/go-on"
WAITS = f'if [ -n "${{OUTSTATION_ROLLBACK:-}}" ]; then : >{HERE}; until [ -e {GO_ON} ]; do sleep 1; done; fi\n'
"""For a script of the version that is put back, which stands still until the test lets it."""

DROP_INS = f"/etc/systemd/system/{GUARD}.d"
SLOW = QUICK.replace("--deadline 60 --steady 5", "--deadline 100000 --steady 100000")


async def is_there(machine: Machine, path: str) -> bool:
    return (await machine.run("test", "-e", path, check=False)).returncode == 0


async def state_of_guard(machine: Machine, *states: str) -> None:
    async def reached() -> bool:
        return await machine.property_of(GUARD, "ActiveState") in states

    await until(reached, SECONDS, f"{GUARD} {' or '.join(states)}")


async def test_a_guard_that_is_stopped_leaves_no_package_half_done_and_goes_on_at_its_next_start(
    bed: TestBed, tmp_path: Path
) -> None:
    machine = await bed.machine("gateway")
    await make_lisbon(machine, altered(built(), "1.0", tmp_path, scripts={"postinst": WAITS}))
    await machine.run("outstation", "fire", "site/before/the/night")
    sick = {"gateway/station.py": "raise SystemExit('sick on purpose')\n"}
    await installed(machine, altered(built(), "1.1", tmp_path, sick), check=False)

    async def put_back() -> bool:
        return await is_there(machine, HERE)

    await until(put_back, SECONDS, "1.0 is being put back")
    await machine.run("systemctl", "stop", "--no-block", GUARD)
    await state_of_guard(machine, "deactivating", "inactive")
    assert await machine.sh("pgrep --exact dpkg || echo none") != "none"
    await machine.run("touch", GO_ON)
    await state_of_guard(machine, "inactive")

    # Nothing is half done. Where the version that is back served at once it was decided as well; else it is now.
    assert await machine.property_of(GUARD, "Result") == "success"
    assert await version_of(machine) == "1.0"
    assert await machine.said("dpkg", "--audit") == ""
    await machine.run("systemctl", "start", GUARD)
    back = await ended(machine, "1.1")
    assert (back["state"], back["before"], back["attempts"], back["rollbacks"]) == ("rolled_back", "1.0", 1, 1)
    await answers(machine)
    assert (await tags_of(machine)).count("site/before/the/night") == 1

    # One that only looks on puts the decision off, which somebody is told.
    await machine.write(f"{DROP_INS}/slow.conf", SLOW)
    await machine.run("systemctl", "daemon-reload")
    await installed(machine, altered(built(), "1.2", tmp_path))
    await machine.run("systemctl", "stop", GUARD)
    assert (await record(machine))["state"] == "watching"
    await answers(machine)
    said = await machine.sh("outstation check || true")
    assert "is not decided, and the upgrade guard does not run" in said
    assert f"sudo systemctl start {GUARD}" in said
    await machine.run("rm", f"{DROP_INS}/slow.conf")
    await machine.run("systemctl", "daemon-reload")
    await machine.run("systemctl", "start", GUARD)
    assert (await ended(machine, "1.2"))["state"] == "healthy"
    assert await version_of(machine) == "1.2"
