"""A gateway joins while its clock is wrong: it says so, and belongs to its fleet when the clock is right, untouched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.clock import STARTED_WALL
from tests.peers.jumping_clock import JumpingClock
from tests.peers.notified import played_supervisor
from tests.peers.system import System
from tests.peers.unjoined import unjoined
from tests.system.test_first_hour import accept, joining, token_of

DAY = 86_400
SET_IT = "sudo timedatectl set-ntp false; sudo timedatectl set-time 'YYYY-MM-DD HH:MM:SS'"

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("jump", "status", "joining_says"),
    [
        (-int(STARTED_WALL) + 120 * DAY, "clock: the clock says 1970-", "accepted: lisbon belongs to fleet"),
        (30 * 365 * DAY, "and the clock of this machine says 205", SET_IT),
    ],
    ids=["1970", "in 30 years"],
)
def test_it_says_that_and_goes_on_when_it_is_right(
    jump: int, status: str, joining_says: str, system: System, tmp_path: Path
) -> None:
    system.add_master("central")
    gateway = unjoined(system)
    clock = JumpingClock(tmp_path / "clock")
    clock.set(jump)
    with played_supervisor() as supervisor:
        with clock.within():
            gateway.start(supervisor.environment())
        # Who types has this machine's clock: sleep(3) does not know a false one that is so far off.
        thread, ended = joining(gateway, token_of(system), "--site", "lisbon", "--broker-host", "127.0.0.1")
        accept(system, "lisbon")
        system.until(lambda: status in supervisor.status and "timedatectl" in supervisor.status, "the status says it")
        checked = system.command("check", station="gateway", status=1)
        assert "timedatectl set-time 'YYYY-MM-DD HH:MM:SS'" in checked.out
        assert "days old" not in checked.out
        clock.set(0)
        thread.join()
        assert (ended[0].status, joining_says in ended[0].error) == (0, True), ended
        system.until(lambda: supervisor.status.startswith("lisbon: 0 of 0 devices here, master central"), "it is well")
