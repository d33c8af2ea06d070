"""What the upgrade guard makes of what it sees, look by look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from gateway.upgrade.judging import Limits, Seen, Unit, Verdict, Watch, step

LIMITS = Limits(deadline=100, steady=10, package=1000, restarts=3, seen=2)
GATEWAY = "outstation-gateway.service"
GOOD = Unit("active", "running", pid=7)
INSTALLED = "install ok installed"


def watching(*errors: str) -> Watch:
    return Watch(before="1", errors=frozenset(errors), begun=0.0)


def look(
    at: float, unit: Unit = GOOD, *, version: str = "2", status: str = INSTALLED, busy: bool = False, **more: Unit
) -> Seen:
    units: Mapping[str, Unit] = {GATEWAY: unit, **more}
    return Seen(at=at, busy=busy, status=status, version=version, units=units)


def judged(*looks: Seen, watch: Watch | None = None) -> list[Verdict]:
    """The verdict after each look, up to the first that ends it."""
    watch = watch or watching()
    found = []
    for seen in looks:
        watch, verdict = step(watch, seen, LIMITS)
        found.append(verdict)
        if verdict.todo != "wait":
            break
    return found


def todos(looks: Sequence[Seen]) -> list[str]:
    """What is to be done after each look, whatever was done after the one before it."""
    watch = watching()
    found: list[str] = []
    for seen in looks:
        watch, verdict = step(watch, seen, LIMITS)
        found.append(verdict.todo)
    return found


def test_a_version_that_stays_healthy_is_healthy() -> None:
    verdicts = judged(*(look(at) for at in range(0, 20, 2)))
    assert [verdict.todo for verdict in verdicts] == ["wait"] * 5 + ["healthy"]


def test_nothing_is_judged_while_the_package_manager_works() -> None:
    half = [look(at, version="2", status="install ok unpacked", busy=True) for at in range(0, 900, 30)]
    assert {verdict.todo for verdict in judged(*half)} == {"wait"}


def test_a_package_that_was_not_set_up_is_set_up_once_more_and_then_goes_back() -> None:
    half = look(0, status="install ok half-configured")
    looks = [replace(half, at=at) for at in (0, 2, 4)]
    assert todos(looks) == ["wait", "set_up", "roll_back"]
    # One that it helped is judged as any other.
    assert todos([*looks[:2], *(look(at) for at in range(4, 18, 2))])[-1] == "healthy"


def test_a_package_that_was_cut_short_before_its_files_were_there_is_made_whole() -> None:
    for status in (
        "install reinstreq half-configured",
        "install reinstreq half-installed",
        "install ok half-installed",
    ):
        half = look(0, version="1", status=status)
        assert todos([half, replace(half, at=2)]) == ["wait", "mend"]
        busy = replace(half, busy=True)
        assert todos([busy, replace(busy, at=2), replace(busy, at=4)]) == ["wait"] * 3


def test_a_package_that_was_never_replaced_or_that_was_removed_is_let_go() -> None:
    assert judged(look(0, version="1"), look(2, version="1"))[-1].todo == "withdraw"
    gone = look(0, version="", status="deinstall ok config-files")
    assert judged(gone, replace(gone, at=2))[-1] == Verdict("withdraw", "the package was removed")


def test_a_package_manager_that_never_ends_is_not_waited_for_for_ever() -> None:
    half = look(0, status="install ok half-configured", busy=True)
    assert todos([half, *(replace(half, at=at) for at in (999, 1001, 1003, 1005))])[-1] == "roll_back"


def test_a_unit_that_failed_is_believed_at_the_second_look() -> None:
    failed = Unit("failed", "failed", "exit-code")
    assert [each.todo for each in judged(look(0, failed), look(2, failed))] == ["wait", "roll_back"]
    # One that was failed for a moment, as the old one stopped, is not.
    assert judged(look(0, failed), look(2), look(4))[-1].todo == "wait"


def test_a_unit_that_starts_again_and_again_goes_back() -> None:
    looks = [look(at, Unit("activating", "auto-restart", "exit-code", restarts=5 + at)) for at in range(6)]
    (*waited, last) = judged(*looks)
    assert {each.todo for each in waited} == {"wait"}
    assert last == Verdict("roll_back", f"{GATEWAY} was started again 3 times (exit-code)")


def test_a_new_process_begins_the_steady_time_anew() -> None:
    looks = [look(at, replace(GOOD, pid=at // 8)) for at in range(0, 40, 2)]
    assert {verdict.todo for verdict in judged(*looks)} == {"wait"}


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (Unit("activating", "start"), "is activating (start)"),
        (replace(GOOD, answers=False), "runs, and its API does not answer"),
        (replace(GOOD, errors=("store",)), "runs, and outstation check finds an error: store"),
    ],
    ids=["starts for ever", "does not answer", "finds an error"],
)
def test_a_version_that_is_not_healthy_in_time_goes_back(unit: Unit, words: str) -> None:
    *waited, last = judged(*(look(at, unit) for at in range(0, 120, 2)))
    assert {each.todo for each in waited} == {"wait"}
    assert last == Verdict("roll_back", f"not healthy within 100 s: {GATEWAY} {words}")


def test_an_error_that_was_there_before_or_is_not_of_this_machine_does_not_count() -> None:
    unit = replace(GOOD, errors=("store", "uplink"))
    assert judged(*(look(at, unit) for at in range(0, 12, 2)), watch=watching("store"))[-1].todo == "healthy"


def test_a_unit_that_somebody_stopped_is_not_judged() -> None:
    stopped = Unit("inactive", "dead")
    looks = [look(0), *(look(at, stopped) for at in range(2, 120, 2))]
    assert judged(*looks)[-1].todo == "withdraw"
    # One that the new version never started is.
    assert judged(*looks[1:], look(121, stopped))[-1].todo == "roll_back"


def test_a_unit_that_the_new_package_does_not_have_goes_back() -> None:
    assert judged(look(0, Unit("missing")), look(2, Unit("missing")))[-1].todo == "roll_back"


def test_every_unit_counts() -> None:
    looks = [look(at, broker=Unit("failed", "failed", "exit-code")) for at in range(0, 20, 2)]
    assert judged(*looks)[-1].todo == "roll_back"


def test_another_version_that_comes_meanwhile_is_judged_anew() -> None:
    looks = [*(look(at) for at in range(0, 10, 2)), *(look(at, version="3") for at in range(10, 30, 2))]
    verdicts = judged(*looks)
    assert verdicts[-1].todo == "healthy"
    assert len(verdicts) == 5 + 6
