"""The mine of one station on a real store: what is refused, what stays, who reads it, and SSH devices that have it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import Refused
from device_agent.protocol import mine
from device_agent.protocol.messages import Grains, Hello, decode_value, encode_value
from device_agent.protocol.target_terms import Known
from device_agent.protocol.targeting import Target
from gateway.answers import Within
from gateway.config import SshSettings
from gateway.devices.ssh_secrets import Secret
from gateway.mine import words_up
from tests.peers.ssh_played import PASSWORD, played_device
from tests.peers.ssh_site import SshSite, ssh_site
from tests.peers.waiting import until

LOGIN = Secret(password=PASSWORD)


def entry(name: str, value: Any = 1, allow: str = "", kind: str = "glob") -> mine.Entry:
    return mine.Entry(name, encode_value(value), allow, kind)


def join(site: SshSite, *names: str, **grains: Any) -> None:
    for name in names:
        facts: Grains = {"id": name, **grains}
        site.rooms.registry.hello("mqtt", name, Hello("0" * 16, "1", facts))


async def keep(site: SshSite, device: str, *entries: mine.Entry, clear: bool = False) -> None:
    await Within(site.kept.to_devices, device).ask(mine.KEEP, mine.encode(mine.Keep(list(entries), clear)))


async def read(site: SshSite, device: str, tgt: str, *names: str, kind: str = "glob") -> dict[tuple[str, str], Any]:
    body = mine.encode(mine.Get(tgt, list(names), kind))
    found = mine.decode_found(await Within(site.kept.to_devices, device).ask(mine.GET, body))
    return {(each.device, each.name): decode_value(each.value) for each in found}


async def test_what_is_too_much_is_refused_as_a_whole_with_its_reason(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        join(site, "cam-1", "cam-2")
        await keep(site, "cam-1", entry("a", "first"))
        many: Sequence[mine.Entry] = [entry(f"n{number}") for number in range(mine.ENTRIES)]
        for wrong, reason in (
            (many, "mine_entries"),
            (
                [entry(f"n{number}", "x" * 60_000) for number in range(2)] + [entry("n3", "x" * 20_000)],
                "mine_too_large",
            ),
            ([entry("b"), mine.Entry("c", b"\xc1")], "malformed"),
        ):
            with pytest.raises(Refused) as error:
                await keep(site, "cam-1", *wrong)
            assert error.value.reason == reason
            assert site.rooms.metrics.peers["questions_of_devices", reason, "cam-1"] >= 1
        assert await read(site, "cam-2", "*", "a", "b", "n0") == {("cam-1", "a"): "first"}
        with pytest.raises(Refused, match="not_accepted"):
            await keep(site, "stranger", entry("a"))
        site.kept.mine._most = 200_000
        await keep(site, "cam-2", entry("a", "x" * 60_000), entry("b", "x" * 60_000))
        with pytest.raises(Refused, match="mine_full"):
            await keep(site, "cam-1", entry("a", "x" * 60_000), entry("b", "x" * 60_000))
        await keep(site, "cam-2", entry("a", "small"), clear=True)
        await keep(site, "cam-1", entry("a", "x" * 60_000), entry("b", "x" * 60_000))


@pytest.mark.parametrize("target", [("(", "pcre"), ("x", "nonsense")])
async def test_a_value_whose_target_is_wrong_is_named_and_costs_no_other(
    tmp_path: Path, target: tuple[str, str]
) -> None:
    async with ssh_site(tmp_path) as site:
        join(site, "cam-1", "cam-2")
        with pytest.raises(Refused) as error:
            await keep(site, "cam-1", entry("a", "first"), entry("b", 1, *target), entry("c", "third"))
        assert error.value.reason == "bad_target"
        assert "allow_tgt of b" in error.value.detail
        assert await read(site, "cam-2", "*", "a", "b", "c") == {("cam-1", "a"): "first", ("cam-1", "c"): "third"}
        with pytest.raises(Refused, match="bad_target"):
            await keep(site, "cam-1", entry("b", 1, *target))
        assert await read(site, "cam-2", "*", "a", "b", "c") == {("cam-1", "a"): "first", ("cam-1", "c"): "third"}


async def test_values_survive_a_restart_with_their_age_and_go_with_their_device(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        join(site, "cam-1", "cam-2")
        await keep(site, "cam-1", entry("a", {"deep": [1, 2]}), entry("b"))
        shelf = site.kept.mine.shelf("lisbon", "cam-1")
        assert shelf is not None
        kept = shelf.cells["a"].kept
        for _ in range(3):
            await keep(site, "cam-2", entry("a"))
        assert site.kept.mine.gauges()["mine_values"] == 3
    async with ssh_site(tmp_path) as site:
        again = site.kept.mine.shelf("lisbon", "cam-1")
        assert again is not None
        assert again.cells["a"].kept == kept
        assert await read(site, "cam-1", "cam-1", "a", "b") == {("cam-1", "a"): {"deep": [1, 2]}, ("cam-1", "b"): 1}
        site.rooms.registry.forget("cam-1")
        assert await read(site, "cam-2", "*", "b") == {}
        await site.kept.mine.sweep()
        gone = site.kept.mine.shelf("lisbon", "cam-1")
        assert gone is not None
        assert not gone.cells
        with pytest.raises(Refused, match="not_accepted"):
            await read(site, "cam-1", "*", "a")


async def test_who_may_read_a_value_is_judged_by_the_gateway_with_every_matcher(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        site.rooms.nodegroups.use({"docks": "rec-1,rec-2", "all": "G@kind:recorder or N@docks"})
        join(site, "cam-1", kind="camera")
        join(site, "rec-1", "rec-2", kind="recorder", ipv4=["192.0.2.7"])
        await keep(
            site,
            "cam-1",
            entry("all"),
            entry("glob", 2, "rec-*"),
            entry("grain", 3, "kind:camera", "grain"),
            entry("compound", 4, "G@kind:recorder and not rec-2", "compound"),
            entry("nodegroup", 5, "all", "nodegroup"),
            entry("gone", 6, "docks", "nodegroup"),
        )
        names = ("all", "glob", "grain", "compound", "nodegroup", "gone")
        site.rooms.nodegroups.use({"all": "G@kind:recorder"})
        for asker, expected in (
            ("cam-1", {"all", "grain"}),
            ("rec-1", {"all", "glob", "compound", "nodegroup"}),
            ("rec-2", {"all", "glob", "nodegroup"}),
        ):
            assert {name for _, name in await read(site, asker, "*", *names)} == expected, asker
        await keep(site, "rec-1", entry("all"))
        for tgt, kind in (
            ("rec-*", "glob"),
            ("cam-9,rec-1", "list"),
            ("rec-[0-9]", "pcre"),
            ("kind:rec*", "grain"),
            ("kind:(rec|x)", "grain_pcre"),
            ("192.0.2.0/24", "ipcidr"),
            ("rec-[1-3]", "range"),
            ("G@kind:recorder and not cam-*", "compound"),
            ("all", "nodegroup"),
        ):
            assert await read(site, "cam-1", tgt, "all", kind=kind) == {("rec-1", "all"): 1}, kind
        with pytest.raises(Refused, match="bad_target"):
            await read(site, "cam-1", "(", "all", kind="pcre")


async def test_no_device_finds_out_by_the_mine_what_is_in_the_pillar_of_others(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        site.rooms.nodegroups.use({"secret": "I@password:a*"})
        join(site, "cam-1", "cam-2")
        await keep(site, "cam-1", entry("a"))
        device = site.device("cam-1")
        # Somebody has just had a job for devices by their pillar.
        device.grains = Known(device.grains, {"password": "abc"})
        for tgt, kind in (
            ("password:a*", "pillar"),
            ("password:abc", "pillar_exact"),
            ("password:a.*", "pillar_pcre"),
            ("cam-* and I@password:a*", "compound"),
            ("not I@password:b*", "compound"),
            ("secret", "nodegroup"),
        ):
            with pytest.raises(Refused, match="bad_target"):
                await read(site, "cam-2", tgt, "a", kind=kind)
        for allow, kind in (("password:a*", "pillar"), ("I@password:a*", "compound"), ("secret", "nodegroup")):
            with pytest.raises(Refused, match="bad_target"):
                await keep(site, "cam-2", entry("b", 1, allow, kind))

        async def know(_: Target) -> None:
            device.grains = Known(device.grains, {"password": "xyz"})

        # Whoever may, at the station, reads by it, and by what it is now.
        site.rooms.registry.know = know
        reading = site.kept.mine_reading
        for tgt, meant in (("password:a*", []), ("password:x*", ["cam-1"])):
            found = await reading.read(tgt, "pillar", ["a"], asker=None, sites=True, most=1000)
            assert [value.device for value in found] == meant


async def test_many_values_are_read_and_too_many_bytes_are_refused(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        names = [f"cam-{number}" for number in range(300)]
        join(site, *names)
        for name in names:
            await keep(site, name, entry("name", name), entry("large", "x" * 1000))
        assert await read(site, "cam-1", "*", "name") == {(name, "name"): name for name in names}
        with pytest.raises(Refused, match=r"not_found.*at most"):
            await read(site, "cam-1", "*", "large")


async def test_a_value_that_is_the_same_again_is_not_told_above_again(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        join(site, "cam-1")
        await keep(site, "cam-1", entry("a", "same"))
        first = site.kept.mine.shelf("lisbon", "cam-1")
        await keep(site, "cam-1", entry("a", "same"))
        second = site.kept.mine.shelf("lisbon", "cam-1")
        await keep(site, "cam-1", entry("a", "same", "cam-*"))
        third = site.kept.mine.shelf("lisbon", "cam-1")
        assert first is not None
        assert second is not None
        assert third is not None
        assert second.cells["a"].changed == first.cells["a"].changed
        assert second.revision > first.revision
        assert third.cells["a"].changed == third.revision


async def told(site: SshSite, link: str, page: words_up.Page) -> int:
    body = await site.kept.to_sites.ask(link, words_up.TOLD, words_up.encode(page))
    return words_up.decode_position(body).revision


def line(name: str, value: Any = None, kept: float = 1.0) -> words_up.Line:
    return words_up.Line(name, kept, None if value is None else encode_value(value), "", "glob")


async def test_what_a_site_tells_is_kept_as_its_own_and_what_is_not_its_own_is_refused(tmp_path: Path) -> None:
    async with ssh_site(tmp_path) as site:
        book, refusals = site.kept.mine, site.rooms.metrics.peers
        assert await told(site, "porto", words_up.Page("one", 0, 0)) == 0
        page = words_up.Page("one", 0, 7, [words_up.DeviceMine("porto", "cam-1", [line("a", "x"), line("b", "y")])])
        assert await told(site, "porto", page) == 7
        assert await told(site, "porto", page) == 7, "the same again does no harm"
        assert await told(site, "porto", words_up.Page("one", 9, 12, page.devices)) == 7, "a gap is not taken"
        light = words_up.DeviceMine("porto", "cam-1", [line("a", kept=5.0), line("never")])
        assert await told(site, "porto", words_up.Page("one", 7, 8, [light])) == 8
        shelf = book.shelf("porto", "cam-1")
        assert shelf is not None
        assert {name: cell.kept for name, cell in shelf.cells.items()} == {"a": 5.0}
        assert refusals["uplink", "mine_unknown", "porto"] == 1
        foreign = words_up.DeviceMine("lisbon", "cam-1", [line("a", "forged")])
        assert await told(site, "porto", words_up.Page("one", 8, 9, [foreign])) == 9
        assert refusals["uplink", "foreign_site", "porto"] == 1
        assert book.shelf("lisbon", "cam-1") is None
        future = words_up.DeviceMine("porto", "cam-2", [line("a", "x", kept=2e11)])
        assert await told(site, "porto", words_up.Page("one", 9, 10, [future])) == 10
        late = book.shelf("porto", "cam-2")
        assert late is not None
        assert late.cells["a"].kept < 1e11, "nothing was told in the future"
        assert await told(site, "porto", words_up.Page("two", 0, 0)) == 0
        assert not any(each.cells for each in book.of_link("porto")), "another store tells everything anew"
        with pytest.raises(Refused, match=r"malformed|wrong_type"):
            await site.kept.to_sites.ask("porto", words_up.TOLD, b"\x93\x01")
        others = words_up.Others("porto", "cam-1", mine.Get("*", ["a"]))
        with pytest.raises(Refused, match="not_shared"):
            await site.kept.to_sites.ask("porto", words_up.OTHERS, words_up.encode(others))


async def test_ssh_devices_have_what_the_gateway_says_within_what_the_site_may_order(tmp_path: Path) -> None:
    settings = SshSettings(
        connect_seconds=20.0,
        keepalive_seconds=5.0,
        mine_functions={
            "test.echo": ["here"],
            "kernel": [{"mine_function": "grains.get"}, "kernel"],
            "file.read": ["/etc/shadow"],
        },
        mine_interval=0.02,
    )
    async with played_device() as camera, ssh_site(tmp_path, settings) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        join(site, "rec-1")
        wanted = {("cam-1", "test.echo"): "here", ("cam-1", "kernel"): "Linux"}

        def has() -> bool:
            shelf = site.kept.mine.shelf("lisbon", "cam-1")
            return shelf is not None and set(shelf.cells) == {"test.echo", "kernel"}

        await until(has, what="the first refresh")
        assert await read(site, "rec-1", "*", "test.echo", "kernel", "file.read") == wanted
        assert site.rooms.metrics.peers["mine", "not_granted", "cam-1"] >= 1
        before = site.rooms.metrics.counters["ssh_mine_refreshed"]
        await until(lambda: site.rooms.metrics.counters["ssh_mine_refreshed"] > before, what="another")
        assert camera.logins == 1, "over the connection that is kept"
