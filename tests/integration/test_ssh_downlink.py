"""Devices without an agent, over SSH: they are here, they run jobs, and what goes wrong has its reason."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE
from pathlib import Path

import asyncssh
import pytest
from msgspec.structs import replace

from gateway.checks import ssh_link
from gateway.config import SshSettings
from gateway.devices.ssh_book import Wanted
from gateway.devices.ssh_secrets import Sealing, Secret
from gateway.downlinks.ssh_width import START
from tests.peers.ssh_played import PASSWORD, new_key, played_device, shell, something_else
from tests.peers.ssh_site import ALICE, ssh_site
from tests.peers.waiting import until

LOGIN = Secret(password=PASSWORD)
DEAD_PORT = 1


async def test_a_device_is_here_and_runs_what_it_is_sent(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        known = site.device("cam-1")
        assert (known.link, known.grains["id"], known.grains["kernel"]) == ("ssh", "cam-1", "Linux")
        ended = (await site.run("test.ping", "cam-1"))["cam-1"]
        assert (ended.outcome, ended.value, ended.executions) == ("ok", True, 1)
        ended = (await site.run("cmd.run", "cam-1", arg=["echo out; echo err >&2; exit 3"]))["cam-1"]
        assert (ended.outcome, ended.retcode, ended.value) == ("failed", 3, "out\nerr")
        await until(lambda: len(site.events("salt/minion/cam-1/start")) == 1, what="its start event")
        assert camera.logins == 1, "one connection for all of it"
        view = site.ssh.view("cam-1")
        assert view is not None
        assert (view["state"], view["connected"], view["trouble"]) == ("used", True, "")


async def test_a_wrong_host_key_is_never_accepted_and_told(tmp_path: Path) -> None:
    async with played_device() as camera, played_device() as good, ssh_site(tmp_path) as site:
        other = " ".join(new_key().export_public_key("openssh").decode().split()[:2])
        await site.add("cam-1", camera.port, (other,), LOGIN)
        await site.add("cam-2", good.port, good.host_keys, LOGIN)
        await site.away("cam-1", f"host_key_changed: {camera.key.get_fingerprint()} is not one of the pinned SHA256:")
        await site.here("cam-2")
        ended = await site.run("test.ping", "cam-1", "cam-2")
        assert ended["cam-1"].outcome == "unreachable"
        assert (ended["cam-1"].why or "").startswith("host_key_changed: SHA256:")
        assert ended["cam-2"].outcome == "ok"
        assert camera.logins == 0, "the password was not shown to it"
        await until(
            lambda: [event["act"] for event in site.events("outstation/device/cam-1/ssh")][-1:] == ["host_key_changed"]
        )
        [finding] = await ssh_link.check(site.rooms.facts)
        assert (finding.severity, finding.fix.rpartition(": ")[2]) == ("error", "outstation devices key cam-1")


async def test_a_wrong_password_is_refused_and_not_tried_all_the_time(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, Secret(password="wrong"))
        await site.away("cam-1", "login_refused: ")
        ended = (await site.run("test.ping", "cam-1"))["cam-1"]
        assert (ended.outcome, (ended.why or "").split(":")[0]) == ("unreachable", "login_refused")
        view = site.ssh.view("cam-1")
        assert view is not None
        assert view["next_look_seconds"] > 20
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN, poll_seconds=30.0)
        await site.here("cam-1")


async def test_what_listens_but_speaks_no_ssh_is_told_as_such(tmp_path: Path) -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n" * 3000)
        await writer.drain()
        await reader.read()

    async def binary(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-garbage\r\n" + bytes(range(256)) * 400)
        await writer.drain()
        await reader.read()

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await asyncio.Event().wait()

    keys = (" ".join(new_key().export_public_key("openssh").decode().split()[:2]),)
    async with (
        something_else(web) as first,
        something_else(binary) as second,
        something_else(silent) as third,
        ssh_site(tmp_path, SshSettings(connect_seconds=5.0)) as site,
    ):
        for number, port in enumerate((first, second, third, DEAD_PORT)):
            await site.add(f"cam-{number}", port, keys, LOGIN)
        await site.away("cam-0", "not_ssh: ")
        await site.away("cam-1", "not_ssh: ")
        await site.away("cam-2", "timed_out: no answer within 5 s while waiting for its first word")
        await site.away("cam-3", "connection_refused: ")


async def test_a_connection_that_breaks_under_a_job_leaves_it_unknown(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        jid = await site.start("cmd.run", "cam-1", arg=["sleep 600 # marked"])
        await until(lambda: any("marked" in command for command in camera.commands), what="the command")
        camera.hang_up()
        ended = (await site.outcomes(jid))["cam-1"]
        assert (ended.outcome, ended.executions) == ("unknown", 1)
        await site.here("cam-1")
        assert (await site.run("test.ping", "cam-1"))["cam-1"].outcome == "ok"


async def test_a_job_that_waits_for_its_connection_can_be_cancelled(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path, SshSettings(connect_seconds=30.0)) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        camera.door.clear()
        camera.hang_up()
        await until(lambda: camera.logins == 2, what="it is logged in to again")
        jid = await site.start("cmd.run", "cam-1", arg=["echo marked"])
        await until(lambda: site.under_way("cam-1") == [jid], what="it waits")
        await site.rooms.delivery.cancel(jid)
        ended = (await site.outcomes(jid))["cam-1"]
        assert (ended.outcome, ended.why, ended.executions) == ("cancelled", "cancelled before it started", 0)
        camera.door.set()
        assert (await site.run("cmd.run", "cam-1", arg=["echo next"]))["cam-1"].value == "next"
        assert not any("marked" in command for command in camera.commands)


async def test_settings_are_read_and_grains_collected_anew_without_an_agent_too(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        assert (await site.run("config.get", "cam-1", arg=["port"]))["cam-1"].value == camera.port
        shown = (await site.run("config.items", "cam-1"))["cam-1"].value
        assert (shown["user"], shown["login"]) == ("root", "password")
        assert PASSWORD not in str(shown)
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN, poll_seconds=777.0)
        assert (await site.run("config.get", "cam-1", arg=["poll_seconds"]))["cam-1"].value == 777.0
        site.device("cam-1").grains["kernel"] = "of yesterday"
        assert (await site.run("saltutil.refresh_grains", "cam-1"))["cam-1"].value is True
        await until(lambda: site.device("cam-1").grains["kernel"] == "Linux", what="its grains anew")


async def test_one_job_at_a_time_and_others_are_not_delayed(tmp_path: Path) -> None:
    async with played_device() as slow, played_device() as quick, ssh_site(tmp_path) as site:
        await site.add("cam-1", slow.port, slow.host_keys, LOGIN)
        await site.add("cam-2", quick.port, quick.host_keys, LOGIN)
        await site.here("cam-1", "cam-2")
        flag = tmp_path / "flag"
        jid = await site.start("cmd.run", "cam-1", arg=[f"while ! test -e {flag}; do sleep 0.05; done; echo first"])
        second = await site.start("cmd.run", "cam-1", arg=["echo second"])
        assert (await site.run("cmd.run", "cam-2", arg=["echo here"]))["cam-2"].value == "here"
        assert not any("second" in command for command in slow.commands)
        flag.touch()
        assert (await site.outcomes(jid))["cam-1"].value == "first"
        assert (await site.outcomes(second))["cam-1"].value == "second"


async def test_a_hung_device_is_stopped_by_the_run_limit_and_a_flood_is_cut(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        ended = (await site.run("cmd.run", "cam-1", arg=["sleep 600"], run_limit=1.0))["cam-1"]
        assert (ended.outcome, ended.why) == ("timed_out", "stopped after 1 s")
        ended = (await site.run("cmd.run", "cam-1", arg=["yes | head -c 3000000"]))["cam-1"]
        assert ended.outcome == "ok"
        assert len(ended.value) < 140_000
        assert "more bytes were cut" in ended.value


async def test_a_device_behind_another_is_reached_through_it(tmp_path: Path) -> None:
    async with played_device() as jump, played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("jump", jump.port, jump.host_keys, LOGIN)
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN, jump="jump")
        await site.here("jump", "cam-1")
        assert (await site.run("cmd.run", "cam-1", arg=["echo $SSH_X through"]))["cam-1"].value == "through"
        jump.password = "changed"
        jump.hang_up()
        await site.away("cam-1", "jump_unreached: through jump: login_refused")


async def test_after_a_restart_what_ran_is_known_and_what_was_cut_short_is_unknown(tmp_path: Path) -> None:
    async with played_device() as camera:
        async with ssh_site(tmp_path) as site:
            await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
            await site.here("cam-1")
            jid = await site.start("cmd.run", "cam-1", arg=["sleep 600 # marked"])
            await until(lambda: any("marked" in command for command in camera.commands), what="the command")
        async with ssh_site(tmp_path) as site:
            ended = (await site.outcomes(jid))["cam-1"]
            assert (ended.outcome, ended.why) == ("unknown", "the gateway stopped while it ran")
            assert sum("marked" in command for command in camera.commands) == 1
            assert (await site.run("test.ping", "cam-1"))["cam-1"].outcome == "ok"


async def test_no_more_connections_are_open_than_the_settings_say_and_idle_ones_are_closed(tmp_path: Path) -> None:
    settings = SshSettings(connect_seconds=20.0, connections=2, idle_seconds=1.0)
    async with played_device() as camera, ssh_site(tmp_path, settings) as site:
        names = [f"cam-{number}" for number in range(5)]
        for name in names:
            await site.add(name, camera.port, camera.host_keys, LOGIN)
        await site.here(*names)
        ended = await site.run("cmd.run", *names, arg=["echo here"])
        assert {each.value for each in ended.values()} == {"here"}
        assert site.ssh.status()["connected"] <= 2
        await until(lambda: site.ssh.status()["connected"] == 0, what="nobody uses them")
        assert all(site.device(name).present for name in names), "an idle connection that we close says nothing"
        assert (await site.run("test.ping", "cam-0"))["cam-0"].outcome == "ok"


async def test_a_device_with_a_shell_that_says_rubbish_of_itself_is_here_nevertheless(tmp_path: Path) -> None:
    async def rubbish(process: asyncssh.SSHServerProcess[bytes]) -> None:
        line = process.command or ""
        run = await asyncio.create_subprocess_exec("/bin/sh", "-c", line, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        said, wrong = await run.communicate(b"")
        mark, _, answer = said.partition(b"\n")
        process.stdout.write(mark + b"\n" + (answer if b"here" in answer else bytes(range(256)) * 500))
        process.stderr.write(wrong)
        process.exit(run.returncode or 0)

    async with played_device(rubbish) as camera, played_device() as good, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.add("cam-2", good.port, good.host_keys, LOGIN)
        await site.here("cam-1", "cam-2")
        ended = await site.run("cmd.run", "cam-1", "cam-2", arg=["echo here"])
        assert {name: each.value for name, each in ended.items()} == {"cam-1": "here", "cam-2": "here"}


async def test_a_device_that_answers_without_a_shell_is_away_and_its_words_are_shown(tmp_path: Path) -> None:
    async def rubbish(process: asyncssh.SSHServerProcess[bytes]) -> None:
        process.stdout.write(b"-- Setup --\r\n1) Status\r\n2) Reboot\r\nIhre Wahl f\xfcr Ger\xe4t: ")
        process.exit(0)

    async with played_device(rubbish) as camera, played_device() as good, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.add("cam-2", good.port, good.host_keys, LOGIN)
        await site.away("cam-1", "no_shell: the account gives no POSIX shell; it said '-- Setup -- 1) Status 2) Reboot")
        await site.here("cam-2")
        ended = await site.run("test.ping", "cam-1", "cam-2")
        assert ended["cam-1"].outcome == "unreachable"
        assert (ended["cam-1"].why or "").startswith("no_shell: the account gives no POSIX shell; it said '-- Setup --")
        assert ended["cam-2"].value is True
        view = site.ssh.view("cam-1")
        assert view is not None
        assert (view["state"], view["next_look_seconds"] > 20) == ("away", True), "tried rarely: only an operator helps"
        [finding] = await ssh_link.check(site.rooms.facts)
        assert finding.finding.startswith("cam-1 lets this gateway in and runs no command: no_shell: ")
        assert finding.fix.endswith("outstation devices set cam-1 --ssh USER@HOST")


async def test_a_menu_that_waits_for_a_choice_is_shown_when_the_time_is_over(tmp_path: Path) -> None:
    typed: list[bytes] = []

    async def menu(process: asyncssh.SSHServerProcess[bytes]) -> None:
        process.stdout.write(b"1) Status  2) Reboot\r\n> ")
        typed.append(await process.stdin.read())

    async with played_device(menu) as camera, ssh_site(tmp_path, SshSettings(facts_seconds=1.0)) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.away("cam-1", "no_shell: the account gives no POSIX shell; it said '1) Status 2) Reboot >'")
    assert not any(typed), "nothing is typed into a menu"


async def test_a_device_that_hangs_up_after_every_command_is_not_logged_in_to_all_the_time(tmp_path: Path) -> None:
    hung: list[int] = []

    async def once(process: asyncssh.SSHServerProcess[bytes]) -> None:
        await shell(process)
        asyncio.get_running_loop().call_later(0.1, end)

    def end() -> None:
        camera.hang_up()
        hung.append(camera.logins)

    async with played_device(once) as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        await until(lambda: hung == [1, 2], what="it is looked at again once, since it hung up")
        await until(lambda: (site.ssh.view("cam-1") or {}).get("next_look_seconds", 0) > 30, what="its turn is known")
        assert hung == [1, 2]
        assert site.device("cam-1").present
        assert (await site.run("cmd.run", "cam-1", arg=["echo here"]))["cam-1"].value == "here"


async def test_a_job_has_the_grains_of_a_device_collected_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        monkeypatch.setenv("SHELL", "/bin/another")
        assert site.device("cam-1").grains["shell"] != "/bin/another"
        assert (await site.run("saltutil.refresh_grains", "cam-1"))["cam-1"].value is True
        assert site.device("cam-1").grains["shell"] == "/bin/another"
        assert (await site.run("grains.get", "cam-1", arg=["shell"]))["cam-1"].value == "/bin/another"


async def test_what_was_mended_while_a_device_was_looked_at_is_tried_at_once(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        await asyncio.Event().wait()

    asked = asyncio.Event()
    # What listens there is given up after so long, and then the device is tried where it is.
    given_up = SshSettings(connect_seconds=8.0)
    async with played_device() as camera, something_else(silent) as wrong, ssh_site(tmp_path, given_up) as site:
        await site.add("cam-1", wrong, camera.host_keys, LOGIN)
        await asked.wait()
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")


async def test_devices_that_hang_hold_up_no_other_when_all_are_looked_at(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        asked.append(1)
        await reader.read()
        await asyncio.Event().wait()

    asked: list[int] = []
    hanging = 3 * int(START)
    # So long that the test would be over before the first of them is given up.
    patient = SshSettings(connect_seconds=120.0, connections=2)
    async with played_device() as camera, something_else(silent) as port, ssh_site(tmp_path, patient) as site:
        for number in range(hanging):
            await site.add(f"hung-{number:02}", port, camera.host_keys, LOGIN)
        await until(lambda: len(asked) == hanging, what="all of them are waited for")
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        assert (await site.run("cmd.run", "cam-1", arg=["echo here"]))["cam-1"].value == "here"
        assert site.ssh.status()["width"] == START


async def test_what_opens_the_door_and_cannot_be_opened_itself_is_told_as_such(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN, enabled=False)
        book = site.site.ssh_book
        book._sealing = Sealing(bytes(32))  # As after a restore with new keys.
        (device,) = book.all()
        await book.put([Wanted(replace(device, enabled=True), None)], ALICE)
        await site.away("cam-1", "login_unusable: the password of cam-1 cannot be opened")
        assert camera.logins == 0
        await until(lambda: "login_unusable" in [each["act"] for each in site.events("outstation/device/cam-1/ssh")])
        (finding,) = await ssh_link.check(site.rooms.facts)
        assert "cannot use the login of cam-1" in finding.finding
        assert finding.fix.startswith("outstation devices set cam-1 ")


async def test_a_device_that_is_removed_or_disabled_is_left_alone_at_once(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.add("cam-2", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1", "cam-2")
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN, enabled=False)
        await site.away("cam-1", "an operator disabled it")
        assert (await site.run("test.ping", "cam-1"))["cam-1"].why == "an operator disabled it"
        await site.site.ssh_book.remove("cam-2", "sold", ALICE)
        await until(lambda: site.ssh.status()["connected"] == 0, what="both connections are closed")
        assert site.ssh.view("cam-2") is None
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN, enabled=True)
        await site.here("cam-1")
