"""The unit of the upgrade guard agrees with the code."""

from __future__ import annotations

from configparser import RawConfigParser
from importlib.util import find_spec

from gateway.checks import upgrade as checks
from gateway.upgrade import keep, machine
from gateway.upgrade.record import FILE_NAME, FOLDER
from tests.house.tree import ROOT


def test_the_unit_starts_a_module_that_exists_on_what_it_writes() -> None:
    unit = RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep the case of keys
    unit.read_string((ROOT / "systemd" / keep.GUARD).read_text(encoding="utf-8"))
    *_, flag, module = unit["Service"]["ExecStart"].split()
    assert flag == "-m"
    assert find_spec(module) is not None
    assert unit["Unit"]["ConditionPathExists"] == str(FOLDER / FILE_NAME)
    # The package that is being put back runs its scripts below it.
    assert unit["Service"]["Type"] == "notify"
    assert float(unit["Service"]["TimeoutStopSec"]) >= machine.PUT_BACK_SECONDS + machine.COMMAND_SECONDS
    # SIGTERM is the guard's alone, which waits for dpkg.
    assert unit["Service"]["KillMode"] == "mixed"
    assert checks.GUARD == keep.GUARD
