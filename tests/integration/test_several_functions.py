"""Several functions in one job: each is held to the policy by its own name, and what is told of it names them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import UsageInvalid
from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import OutcomeRecord, Return, decode_item, decode_upward, encode
from device_agent.protocol.several import SEVERAL
from gateway.devices.ssh_secrets import Secret
from gateway.files.wanted import urls_of
from gateway.jobs.request import JobRequest
from tests.peers.database import a_job, look
from tests.peers.office import Office, an_office
from tests.peers.ssh_played import PASSWORD, played_device
from tests.peers.ssh_site import ssh_site
from tests.peers.waiting import until

POLICY = """\
tokens:
  ada: admin
  anna: operator
  bob: operator
  carol: operator
rules:
  operator:
    - functions: [test.ping]
      targets: [cam-*]
      tokens: [anna]
    - functions: [test.version]
      targets: [cam-*, door-*]
      tokens: [anna]
    - functions: [test.echo]
      targets: ["*-1"]
      tokens: [anna]
    - functions: [grains.items]
      hold: true
      tokens: [anna]
    - functions: ["test.*", "_several.*"]
      tokens: [bob]
    - functions: [looks]
      tokens: [carol]
    - functions: [cmd.run]
      arguments:
        cmd.run: [{positional: [uptime]}]
      tokens: [carol]
"""
CENTRE = """\
centre:
  - functions: [test.*]
"""
AUDIT = "SELECT verdict, fun, arguments, subject FROM audit WHERE action = 'run' ORDER BY id"
PING, VERSION, ID = ["test.ping", [], {}], ["test.version", [], {}], ["cmd.run", ["id"], {}]


def audited(office: Office) -> list[Any]:
    return look(office.rooms.writer._path, AUDIT)


async def test_what_is_told_of_a_job_names_every_function(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        arg = [["uptime", {"__kwarg__": True, "cwd": "/"}], []]
        heard = await office.run("ada", "cmd.run,test.ping", arg=arg)
        assert heard.status == 201, heard.body
        view = heard.json()
        assert (view["fun"], view["arg"], view["kwarg"]) == (
            "cmd.run,test.ping",
            [["uptime", {"cwd": "/", "__kwarg__": True}], []],
            {},
        )
        opened = office.rooms.open_jobs.get(view["jid"])
        assert opened is not None
        assert opened.job.fun == SEVERAL
        assert audited(office) == [("allow", "cmd.run,test.ping", "cmd.run uptime cwd=/; test.ping", "*")]


@pytest.mark.parametrize(
    ("user", "fun", "arg", "word"),
    [
        ("anna", "test.ping,cmd.run", [[], ["id"]], "no rule grants cmd.run"),
        ("anna", "cmd.run,test.ping", [["id"], []], "no rule grants cmd.run"),
        ("bob", "test.ping,cmd.run", [[], ["id"]], "no rule grants cmd.run"),
        ("bob", "test.ping,grains.items", [[], []], "no rule grants grains.items"),
        ("carol", "test.ping,cmd.run", [[], ["id"]], "cmd.run is not granted with these arguments"),
        ("carol", "test.ping,grains.set", [[], ["a", "b"]], "no rule grants grains.set"),
    ],
)
async def test_one_that_is_not_granted_is_enough(
    user: str, fun: str, arg: list[Any], word: str, tmp_path: Path
) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        heard = await office.run(user, fun, "cam-1", arg=arg)
        assert heard.status == 403, heard.body
        assert word in heard.body.decode()
        assert len(office.rooms.open_jobs) == 0
        ((verdict, functions, _, _),) = audited(office)
        assert (verdict, functions) == ("deny", fun)


async def test_each_has_its_rule_and_its_arguments(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        assert (await office.run("carol", "test.ping,cmd.run", arg=[[], ["uptime"]])).status == 201
        assert (await office.run("bob", "test.ping,test.version", arg=[[], []])).status == 201


async def test_a_job_is_for_those_devices_on_which_each_of_its_functions_is_granted(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        heard = await office.run("anna", "test.ping,test.version,test.echo", "cam-?", arg=[[], [], ["x"]])
        assert heard.status == 201, heard.body
        narrowed = "( ( ( cam-? ) and ( cam-* ) ) and ( cam-* or door-* ) ) and ( *-1 )"
        assert (heard.json()["tgt"], heard.json()["tgt_type"]) == (narrowed, "compound")
        await until(lambda: office.devices.delivered == [(heard.json()["jid"], "cam-1")])
        office.here("cam-1", "cam-2")
        refused = await office.run("anna", "test.ping,test.echo", "cam-?", arg=[[], ["x"]])
        assert refused.status == 403
        assert "test.echo is not granted on 1 of its devices: cam-2" in refused.body.decode()


async def test_one_that_waits_for_a_release_holds_the_job(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        heard = await office.run("anna", "test.ping,grains.items", "cam-1", arg=[[], []])
        assert (heard.status, heard.json()["held"]) == (201, True)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"fun": "test.ping,", "arg": [[], []]}, "module.function"),
        ({"fun": "test.ping, test.version", "arg": [[], []]}, "module.function"),
        ({"fun": "test.ping,test.version"}, "2 functions take as many lists"),
        ({"fun": "test.ping,test.echo", "arg": [[], "x"]}, "2 functions take as many lists"),
        ({"fun": "test.ping,test.version", "arg": [[], []], "kwarg": {"x": 1}}, "named arguments"),
        ({"fun": "test.ping,test.version", "arg": [[], []], "sealed": True}, "one function in a sealed job"),
        ({"fun": "test.ping,saltutil.kill_job", "arg": [[], ["1"]]}, "order it by itself"),
        ({"fun": SEVERAL, "arg": [PING]}, "cannot be one job"),
        ({"fun": f"{SEVERAL},test.ping", "arg": [[], []]}, "module.function"),
        ({"fun": ",".join(["test.versions_report"] * 7), "arg": [[]] * 7}, "at most 130"),
    ],
)
async def test_what_is_none_is_refused_in_words(asked: dict[str, Any], word: str, tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        heard = await office.ask("ada", "POST", "/jobs", {"tgt": "cam-1", **asked})
        assert heard.status == 400, heard.body
        assert word in heard.body.decode()


@pytest.mark.parametrize(
    ("calls", "sealed", "lets"),
    [([PING, VERSION], False, True), ([PING, ID], False, False), ([PING, VERSION], True, False)],
)
async def test_what_the_centre_may_do_is_judged_for_each(
    calls: list[Any], sealed: bool, lets: bool, tmp_path: Path
) -> None:
    async with an_office(tmp_path, CENTRE) as office:
        office.here("cam-1")
        job = a_job(1, fun=SEVERAL, arg=[] if sealed else calls, sealed=sealed)
        await office.rooms.acceptance.accept_from_above(Parcel(encode(job), ()), 60.0, "central")
        ((verdict, functions, _, _),) = audited(office)
        assert verdict == ("allow" if lets else "deny")
        assert functions == (SEVERAL if sealed else ",".join(each[0] for each in calls))
        (outcome,) = look(office.rooms.writer._path, "SELECT outcome, why FROM outcomes") or [("", "")]
        assert outcome[0] == ("" if lets else "refused")


async def test_what_is_no_list_of_functions_is_refused_from_above_and_counted(tmp_path: Path) -> None:
    async with an_office(tmp_path, CENTRE) as office:
        office.here("cam-1")
        job = a_job(1, fun=SEVERAL, arg=[["test.ping,cmd.run", ["id"], {}]])
        await office.rooms.acceptance.accept_from_above(Parcel(encode(job), ()), 60.0, "central")
        assert office.rooms.metrics.refusals["uplink", "malformed"] == 1
        assert len(office.rooms.open_jobs) == 0


@pytest.mark.parametrize(("arg", "sealed"), [([["test.ping,cmd.run", ["id"], {}]], False), ([], True)])
async def test_what_nobody_can_read_is_cancelled_by_an_admin_alone(
    arg: list[Any], sealed: bool, tmp_path: Path
) -> None:
    async with an_office(tmp_path, POLICY, "porto") as office:
        job = a_job(1, fun=SEVERAL, arg=arg, sealed=sealed, user="root")
        await office.rooms.acceptance.accept_from_above(Parcel(encode(job), ()), 60.0, "central")
        assert office.rooms.open_jobs.get(job.jid) is not None
        refused = await office.ask("anna", "POST", f"/jobs/{job.jid}/cancel")
        assert refused.status == 403, refused.body
        assert "what the job calls cannot be told" in refused.body.decode()
        cancels = look(office.rooms.writer._path, "SELECT user, verdict FROM audit WHERE action = 'cancel'")
        assert cancels == [("anna", "deny")]
        assert (await office.ask("ada", "POST", f"/jobs/{job.jid}/cancel")).status == 200


async def test_a_device_over_ssh_calls_one_after_another(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, Secret(password=PASSWORD))
        await site.here("cam-1")
        arg = [[f"echo one > {tmp_path}/said"], [], [f"cat {tmp_path}/said; exit 3"], []]
        functions = "cmd.run,test.ping,cmd.shell,test.nobody"
        ended = (await site.run(functions, "cam-1", arg=arg))["cam-1"]
        assert isinstance(ended.value, dict)
        assert list(ended.value) == functions.split(",")
        assert (ended.value["cmd.run"], ended.value["test.ping"], ended.value["cmd.shell"]) == ("", True, "one")
        assert ended.value["test.nobody"].startswith("unknown_function")
        assert (ended.outcome, ended.retcode, ended.executions) == ("failed", 3, 1)
        assert "cmd.shell" in (ended.why or "")
        (event,) = site.events("salt/job/*/new")
        assert (event["fun"], event["arg"]) == (functions.split(","), arg)
        (event,) = site.events("salt/job/*/close")
        assert event["fun"] == functions.split(",")


async def test_the_retcode_of_each_goes_up_with_the_answer(tmp_path: Path) -> None:
    async with an_office(tmp_path, masters=True) as office:
        office.here("cam-1")
        request = JobRequest(tgt="*", fun="test.ping,test.retcode", arg=[[], [3]])
        jid = await office.rooms.acceptance.submit(request, "ops")
        codes = {"test.ping": 0, "test.retcode": 3}
        said = Return(jid=jid, fun="test.ping,test.retcode", outcome="ok", retcode=3, value={}, retcodes=codes)
        decoded = decode_upward(encode(said))
        assert isinstance(decoded, Return)
        await office.rooms.collection.returned("cam-1", decoded, 1)
        await until(lambda: office.rooms.open_jobs.get(jid) is None, what="the end of the job")
        items = [decode_item(body) for _, body in await office.rooms.spool.read("returns", 0)]
        (record,) = (item for item in items if isinstance(item, OutcomeRecord))
        assert record.retcodes == codes
        plain = Return(jid=jid, fun="test.ping", outcome="ok")
        assert b"retcodes" not in encode(plain)


async def test_the_files_that_one_of_them_names_are_named(tmp_path: Path) -> None:
    arg = [["test.ping", [], {}], ["cp.get_file", ["salt://a", "/b"], {"saltenv": "prod"}]]
    assert list(urls_of(a_job(1, fun=SEVERAL, arg=arg))) == ["salt://a?saltenv=prod"]
    assert list(urls_of(a_job(1, fun=SEVERAL, arg=["salt://a"]))) == []


async def test_a_request_from_within_is_held_to_the_same(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        with pytest.raises(UsageInvalid, match="cannot be one job"):
            await office.rooms.acceptance.submit(JobRequest(tgt="*", fun="test.ping,x", arg=[[], []]), "ops")
