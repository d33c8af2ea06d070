"""Beacons are changed while they run, in Salt's words, and what was saved counts at the next start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from device_agent import loader
from device_agent.local_host import LocalHost
from device_agent.own import Own
from device_agent.trust.reach import reach_of
from tests.peers.beacon_bench import NAME, Bench
from tests.peers.waiting import until

MEMORY: list[dict[str, Any]] = [{"percent": 0}, {"interval": 0.1}]
DISK: list[dict[str, Any]] = [{"/": "80%"}]


def told(done: bool, comment: str) -> dict[str, Any]:
    return {"result": done, "comment": comment}


async def test_they_are_added_changed_and_deleted_in_salts_words(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"diskusage": DISK})
    assert await bench.call("list") == "beacons:\n  diskusage:\n  - /: 80%\n"
    assert await bench.call("list", return_yaml=False) == {"diskusage": DISK}
    assert "diskusage" in await bench.call("list_available", return_yaml=False)
    assert yaml.safe_load(await bench.call("list_available"))["beacons"]
    assert await bench.call("add", "diskusage", DISK) == told(True, "Beacon diskusage is already configured.")
    assert await bench.call("add", "lod", []) == told(False, 'Beacon "lod" is not available.')
    assert await bench.call("add", "memusage", MEMORY, test=True) == told(True, "Beacon: memusage would be added.")
    wrong = await bench.call("add", "memusage", [{"interval": 1}])
    assert wrong["comment"].startswith(
        "Beacon memusage configuration invalid, not adding.\nConfiguration for memusage beacon requires percent."
    )
    assert await bench.call("add", "memusage", MEMORY) == told(True, "Added beacon: memusage.")
    root = [*DISK, {"beacon_module": "diskusage"}]
    assert await bench.call("add", "root", root) == told(True, "Added beacon: root.")
    assert await bench.call("modify", "swapusage", MEMORY) == told(True, "Beacon swapusage is not configured.")
    assert await bench.call("modify", "memusage", MEMORY) == told(True, "Job memusage in correct state")
    changed = await bench.call("modify", "memusage", [{"percent": 5}])
    assert changed["comment"] == "Modified beacon: memusage."
    assert "-percent:0\n" in changed["changes"]["diff"]
    assert "+percent:5\n" in changed["changes"]["diff"]
    invalid = await bench.call("modify", "memusage", [{"percent": "x"}])
    assert invalid["comment"].startswith("Beacon memusage configuration invalid, not modifying.\n")
    assert await bench.call("delete", "root", test=True) == told(True, "Beacon: root would be deleted.")
    assert await bench.call("delete", "root") == told(True, "Deleted beacon: root.")
    assert await bench.call("list", return_yaml=False) == {"diskusage": DISK, "memusage": [{"percent": 5}]}
    assert await bench.call("reset", test=True) == told(True, "Beacons would be reset.")
    assert await bench.call("reset") == told(True, "Beacon configuration reset.")
    assert await bench.call("list", return_yaml=False) == {}


async def test_they_are_enabled_and_disabled_one_by_one_and_all_together(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"memusage": [*MEMORY, {"fold": 0}]})
    async with bench.running():
        await until(lambda: bench.kept.events)
        assert await bench.call("disable_beacon", "memusage") == told(True, "Disabled beacon memusage on minion.")
        assert {"enabled": False} in (await bench.call("list", return_yaml=False))["memusage"]
        await until(lambda: not bench.beacons._running or bench.beacons._running["memusage"][1].done())
        bench.kept.events.clear()
        assert await bench.call("enable_beacon", "memusage") == told(True, "Enabled beacon memusage on minion.")
        await until(lambda: bench.kept.events)
        assert await bench.call("disable") == told(True, "Disabled beacons on minion.")
        await until(lambda: not bench.beacons._running)
        assert (await bench.call("list", return_yaml=False))["enabled"] is False
        bench.kept.events.clear()
        assert await bench.call("enable") == told(True, "Enabled beacons on minion.")
        await until(lambda: bench.kept.events)
    missing = told(False, "Beacon load is not currently configured.")
    assert await bench.call("enable_beacon", "load") == await bench.call("disable_beacon", "load") == missing
    assert await bench.call("enable", test=True) == told(True, "Beacons would be enabled.")
    assert await bench.call("disable", test=True) == told(True, "Beacons would be disabled.")
    assert await bench.call("enable_beacon", "x", test=True) == told(True, "Beacon x would be enabled.")
    assert await bench.call("enable_beacon", "") == told(False, "Beacon name is required.")


async def test_what_was_saved_counts_at_the_next_start_and_what_was_not_does_not(tmp_path: Path) -> None:
    settings = {"diskusage": DISK, "load": [{"averages": {"1m": [0, 1]}}]}
    bench = Bench(tmp_path, settings)
    await bench.call("add", "memusage", MEMORY)
    await bench.call("delete", "load")
    file = tmp_path / "beacons.conf"
    assert await bench.call("save") == told(True, f"Beacons saved to {file}.")
    assert file.stat().st_mode & 0o777 == 0o600
    await bench.call("reset")
    for given in (settings, settings | {"swapusage": MEMORY}):
        again = Bench(tmp_path, given)
        async with again.running():
            await until(lambda: again.kept.events)  # noqa: B023 - called at once
            wanted = {"diskusage": DISK, "memusage": MEMORY} | ({"swapusage": MEMORY} if given is not settings else {})
            assert await again.call("list", return_yaml=False) == wanted


@pytest.mark.parametrize("content", [b"beacons: [", b"\xff", b"- a", b"beacons: 7", b"x" * 2_000_000])
async def test_a_saved_file_that_does_not_read_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "beacons.conf").write_bytes(content)
    bench = Bench(tmp_path, {"memusage": MEMORY})
    async with bench.running():
        await until(lambda: bench.kept.events)
    assert await bench.call("list", return_yaml=False) == {"memusage": MEMORY}


async def test_what_cannot_be_saved_is_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "missing", {})
    saved = await bench.call("save")
    assert saved["result"] is False
    assert saved["comment"].startswith("Unable to write to beacons file at ")


async def test_beacons_of_the_pillar_run_and_are_not_changed_here(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {}, from_pillar="looks")
    bench.own.pillar._held = {"beacons": {"memusage": MEMORY}}
    async with bench.running():
        bench.beacons._take_pillar(bench.own)
        await until(lambda: bench.kept.of("memusage"))
        assert await bench.call("list", return_yaml=False, include_pillar=False) == {}
        assert await bench.call("list", return_yaml=False) == {"memusage": MEMORY}
        cannot = "beacon item memusage, it is configured in pillar."
        assert await bench.call("delete", "memusage") == told(False, f"Cannot delete {cannot}")
        assert await bench.call("disable_beacon", "memusage") == told(False, f"Cannot disable {cannot}")
        modified = await bench.call("modify", "memusage", [{"percent": 5}])
        assert modified["comment"] == f"Cannot modify {cannot}"
        assert modified["result"] is False
        bench.own.pillar._held = {"beacons": ["memusage"]}
        bench.beacons._take_pillar(bench.own)
        await until(lambda: not bench.beacons._running)


async def test_the_pillar_configures_nothing_that_tells_what_root_reads_unless_the_settings_say_so(
    tmp_path: Path,
) -> None:
    log = [{"file": str(tmp_path / "shadow")}, {"tags": {"t": {"regex": ".*"}}}]
    (tmp_path / "shadow").write_text("")
    bench = Bench(tmp_path, {}, from_pillar="looks")
    bench.own.pillar._held = {"beacons": {"log": log}}
    async with bench.running():
        bench.beacons._take_pillar(bench.own)
        [event] = await until(lambda: bench.kept.of("log"))
        assert "the pillar may not configure it" in event["error"]
        (tmp_path / "shadow").write_text("root:x\n")
    free = Bench(tmp_path, {}, from_pillar="all")
    free.own.pillar._held = {"beacons": {"log": [*log, {"interval": 0.1}]}}
    async with free.running():
        free.beacons._take_pillar(free.own)
        await until(lambda: "log" in free.beacons._running)

        async def written() -> bool:
            with (tmp_path / "shadow").open("a") as file:
                file.write("admin:y\n")
            return bool(free.kept.of("log"))

        await until(written)
    assert len(bench.kept.events) == 1
    assert free.kept.of("log")[0]["raw"] == "admin:y"


async def test_another_pillar_is_heard_when_it_is_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, {}, from_pillar="looks")
    given: dict[str, Any] = {}

    async def ask() -> dict[str, Any]:
        return given.copy()

    monkeypatch.setattr("device_agent.beacons.beacons.PILLAR_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(type(bench.own.pillar), "ask", lambda _self: ask())
    async with bench.running():
        await until(lambda: bench.own.pillar._held is not None)
        given["beacons"] = {"memusage": MEMORY}
        await bench.own.pillar.refresh()
        await until(lambda: bench.kept.of("memusage"))


async def test_without_an_agent_there_are_none_and_it_is_said(tmp_path: Path) -> None:
    ended = await loader.call("beacons.list", LocalHost({"id": NAME}), [], {}, Own())
    assert (ended.outcome, ended.why) == ("failed", "there are no beacons here: they run in an agent, and in a station")


async def test_passwords_are_asterisks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"x": [{"password": "secret"}, {"inner": [{"api_token": "t"}]}]})
    shown = await bench.call("list")
    assert "secret" not in shown
    assert shown.count("*" * 10) == 2


@pytest.mark.parametrize(
    ("arg", "kwarg", "reach"),
    [
        (["diskusage", DISK], {}, "changes"),
        (["log", []], {}, "shell"),
        (["mine", [{"beacon_module": "log"}]], {}, "shell"),
        (["mine"], {"beacon_data": [{"a": 1}, {"beacon_module": "log"}]}, "shell"),
        ([], {"name": "log", "beacon_data": []}, "shell"),
        ([[{"beacon_module": "log"}]], {"name": "mine"}, "shell"),
        (["mine", []], {}, "shell"),
        (["mine", [{"beacon_module": "load"}]], {}, "changes"),
        (["log", [{"beacon_module": "load"}]], {}, "changes"),
        ([], {}, "changes"),
    ],
)
def test_to_configure_a_beacon_that_tells_what_root_reads_is_as_good_as_a_shell(
    arg: list[Any], kwarg: dict[str, Any], reach: str
) -> None:
    assert reach_of("beacons.add", (arg, kwarg)) == reach_of("beacons.modify", (arg, kwarg)) == reach
    assert reach_of("beacons.add", None) == "shell"
