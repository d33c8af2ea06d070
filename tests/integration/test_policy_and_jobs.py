"""Jobs are held to the policy: whoever issues them here, and whatever comes from above."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import PolicyRefused
from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import Job, OutcomeRecord, encode
from device_agent.protocol.targeting import compile_target
from gateway.devices.policy import Operator
from tests.peers.central import a_record
from tests.peers.clock import HandClock
from tests.peers.database import a_job, look, spooled
from tests.peers.office import Office, an_office
from tests.peers.waiting import until

POLICY = """\
tokens:
  ada: admin
  anna: operator
  bob: operator
  carol: approver
  eve: viewer
rules:
  operator:
    - functions: [test.ping]
      targets: [cam-*]
      sites: [lisbon, porto]
      tokens: [anna]
    - functions: [test.echo]
      hold: true
    - functions: [cmd.run]
      arguments:
        cmd.run: [{positional: [uptime]}]
      tokens: [bob]
"""
CENTRE = """\
centre:
  - functions: [test.ping]
    targets: [cam-*]
  - functions: [cmd.run]
    users: [root]
    hold: true
"""
AUDIT = "SELECT user, door, action, verdict, fun, arguments, subject, jid FROM audit ORDER BY id"


def audited(office: Office) -> list[Any]:
    return [row for row in look(office.rooms.writer._path, AUDIT) if row[2] != "enter"]


async def test_a_job_runs_in_the_name_of_who_asked_and_the_audit_has_it_with_its_reason(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        body = {"tgt": "cam-?", "fun": "test.ping", "why": "ticket 7", "user": "claimed"}
        heard = await office.ask("anna", "POST", "/jobs", body)
        assert heard.status == 201
        view = heard.json()
        assert (view["user"], view["why"], view["held"]) == ("anna via api (claimed)", "ticket 7", False)
        jid = view["jid"]
        assert await until(lambda: office.devices.delivered) == [(jid, "cam-1")]
        narrowed = "compound: ( cam-? ) and ( cam-* )"
        assert audited(office) == [("anna via api (claimed)", "api", "run", "allow", "test.ping", "", narrowed, jid)]
        assert look(office.rooms.writer._path, "SELECT why FROM audit") == [("ticket 7",)]


@pytest.mark.parametrize(
    ("user", "asked", "words"),
    [
        ("anna", {"tgt": "*"}, ["not granted on 1 of its devices: ups-1", "on cam-*"]),
        ("anna", {"tgt": "cam-1,ghost", "tgt_type": "list"}, ["1 of its devices: ghost"]),
        ("anna", {"tgt": "ghost"}, ["1 of its devices: ghost"]),
        ("anna", {"tgt": "cam-m"}, ["at site madrid", "at lisbon, porto"]),
        ("anna", {"tgt": "cam-(1| )", "tgt_type": "pcre"}, ["cannot be limited", "within cam-*"]),
        ("anna", {"tgt": "cam-1", "fun": "sys.doc"}, ["no rule grants sys.doc", "test.ping, test.echo"]),
        ("anna", {"tgt": "cam-1", "fun": "cmd.run", "arg": ["uptime"]}, ["no rule grants cmd.run"]),
        ("bob", {"tgt": "cam-1", "fun": "cmd.run", "arg": ["reboot"]}, ["not granted with these arguments", "uptime"]),
        (
            "bob",
            {"tgt": "cam-1", "fun": "cmd.run", "arg": ["uptime"], "kwarg": {"shell": "x"}},
            ["with these arguments"],
        ),
        ("bob", {"tgt": "cam-1"}, ["no rule grants test.ping"]),
        ("anna", {"tgt": "cam-* and I@a:b*", "tgt_type": "compound"}, ["pillar.get is not granted on all"]),
        ("anna", {"tgt": "a:b", "tgt_type": "pillar_exact"}, ["a target by pillar", "name, grain or address"]),
        ("carol", {"tgt": "cam-1"}, ["carol may not run jobs", "approver: view, keys, release"]),
        ("eve", {"tgt": "cam-1"}, ["eve may not run jobs", "viewer: view"]),
        ("mallory", {"tgt": "cam-1"}, ["mallory may not run jobs", "no role"]),
    ],
)
async def test_what_no_rule_grants_is_refused_with_who_what_and_what_would_be(
    user: str, asked: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    async with an_office(tmp_path, POLICY, "porto", "madrid", name="lisbon") as office:
        office.here("cam-1", "ups-1")
        await office.rooms.inbox.commit_records("madrid", "0" * 16, [a_record("cam-m", "madrid", 1)])
        heard = await office.run(user, **asked)
        assert (heard.status, heard.error["id"]) == (403, heard.error["id"])
        assert heard.error["id"] in {"policy.rule", "policy.role"}
        told = " ".join(heard.error.values())
        for word in [*words, user]:
            assert word in told
        assert heard.error["hint"]
        assert len(office.rooms.open_jobs) == 0
        (row,) = audited(office)
        assert (row[0].partition(" ")[0], row[1], row[3], row[7]) == (user, "api", "deny", "")


async def test_an_admin_is_held_to_no_rule(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("ups-1")
        heard = await office.run("ada", "cmd.run", arg=["reboot"])
        assert (heard.status, heard.json()["tgt"], heard.json()["held"]) == (201, "*", False)


async def test_without_a_policy_file_an_operator_runs_everything_but_the_shell(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        assert (await office.ask("o", "POST", "/jobs", {"tgt": "*", "fun": "test.ping"}, role="operator")).status == 201
        refused = await office.ask("o", "POST", "/jobs", {"tgt": "*", "fun": "cmd.run"}, role="operator")
        assert refused.error["what"] == (
            "o may not do this: cmd.run is for admins, unless a rule names it: it is as good as a root shell"
        )


@pytest.mark.parametrize(
    ("tgt", "kind", "means"),
    [
        ("cam-*", "glob", True),
        ("*", "glob", False),
        ("not", "glob", None),
        ("G@x*", "glob", None),
        ("cam-1", "glob", True),
        ("cam-1,cam-2", "list", True),
        ("cam-.", "pcre", True),
        (".*", "pcre", False),
        ("os:*", "grain", False),
        ("os:.*", "grain_pcre", False),
        ("0.0.0.0/0", "ipcidr", False),
        ("{cam,ups}-1", "range", True),
        ("cam-1 or ups-1", "compound", False),
        ("cam-1 and not ups-1", "compound", True),
    ],
)
async def test_a_job_of_limited_targets_reaches_no_device_that_nobody_knew(
    tgt: str, kind: str, means: bool | None, tmp_path: Path
) -> None:
    """The station knows no device yet; whatever the target matches later, ups-1 itself says that it is not meant."""
    async with an_office(tmp_path, POLICY) as office:
        heard = await office.run("anna", tgt=tgt, tgt_type=kind)
        if means is None:
            assert heard.status in (201, 403)
        else:
            assert heard.status == 201, heard.body
        if heard.status == 201:
            view = heard.json()
            target = compile_target(view["tgt"], view["tgt_type"])
            grains = {"os": "x", "ipv4": ["192.0.2.1"]}
            assert not target.matches("ups-1", grains)
            if means is not None:
                assert target.matches("cam-1", grains)


async def test_a_job_goes_to_no_site_that_is_not_granted(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY, "porto", "madrid", "relay", name="central") as office:
        await office.rooms.inbox.commit_records("relay", "0" * 16, [a_record("x", "lisbon", 1, link="relay")])
        jid = (await office.run("anna", tgt="cam-*")).json()["jid"]
        opened = office.rooms.open_jobs.get(jid)
        assert opened is not None
        # The way to a granted site is open; of what the relay has beside it, its own policy decides.
        assert set(opened.branches) == {"porto", "relay"}


async def test_one_cancels_what_is_ones_own_or_what_one_may_run(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY, "porto") as office:
        mine = (await office.run("anna", tgt="cam-*", late="run")).json()["jid"]
        of_ada = (await office.run("ada", "sys.doc", tgt="*", late="run")).json()["jid"]
        for user, jid, status in (
            ("bob", mine, 403),
            ("eve", mine, 403),
            ("carol", mine, 403),
            ("anna", of_ada, 403),
            ("anna", mine, 200),
            ("ada", of_ada, 200),
        ):
            heard = await office.ask(user, "POST", f"/jobs/{jid}/cancel")
            assert heard.status == status, (user, heard.body)
        rows = [row for row in audited(office) if row[2] == "cancel"]
        assert [(row[0], row[3], row[7]) for row in rows] == [
            ("bob", "deny", mine),
            ("eve", "deny", mine),
            ("carol", "deny", mine),
            ("anna", "deny", of_ada),
            ("anna", "allow", mine),
            ("ada", "allow", of_ada),
        ]


async def test_an_approver_decides_on_keys_and_an_operator_does_not(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        await office.rooms.site_keys.judge("porto", "1" * 40, "192.0.2.1")
        assert (await office.ask("anna", "POST", "/keys/porto/accept", {})).status == 403
        assert (await office.ask("carol", "POST", "/keys/porto/accept", {})).status == 200
        # To accept and to turn away, and nothing else.
        assert (await office.ask("carol", "POST", "/keys/porto/accept", {"grants": ["cmd.*"]})).status == 403
        assert (await office.ask("carol", "POST", "/keys/porto/revoke", {})).status == 403
        # What lets devices come before anybody has looked at them is an admin's.
        assert (await office.ask("carol", "POST", "/keys/window/open", {})).status == 403
        assert (await office.ask("carol", "POST", "/keys/tokens", {})).status == 403
        assert [row[:4] for row in audited(office)] == [
            ("anna", "api", "keys.accept", "deny"),
            ("carol", "api", "keys.accept", "allow"),
            ("carol", "api", "keys.accept", "deny"),
            ("carol", "api", "keys.revoke", "deny"),
            ("carol", "api", "keys.window.open", "deny"),
            ("carol", "api", "keys.token.new", "deny"),
        ]


def above(number: int = 0, **changed: Any) -> tuple[Job, Parcel]:
    job = a_job(number, **{"user": "anna", **changed})
    return job, Parcel(encode(job), ())


async def test_from_above_everything_is_taken_where_no_policy_says_otherwise(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("ups-1")
        job, parcel = above(fun="cmd.run", arg=["reboot"])
        await office.rooms.acceptance.accept_from_above(parcel, 300.0, "tcp://above:1")
        assert await until(lambda: office.devices.delivered) == [(job.jid, "ups-1")]
        assert [row[:4] for row in audited(office)] == [("anna", "above", "run", "allow")]


async def test_a_job_that_the_sites_policy_denies_ends_refused_on_every_device(tmp_path: Path) -> None:
    async with an_office(tmp_path, CENTRE, masters=True) as office:
        office.here("cam-1", "cam-2")
        job, parcel = above(fun="state.apply")
        for _ in range(2):
            await office.rooms.acceptance.accept_from_above(parcel, 300.0, "tcp://above:1")
        view = await office.rooms.views.one(job.jid)
        assert (view["state"], view["counts"]) == ("closed", {"refused": 2})
        outcomes, _ = await office.rooms.views.outcomes(job.jid, 0, 9)
        why = "the policy of site lisbon: no rule grants state.apply; it grants test.ping"
        assert {outcome["why"] for outcome in outcomes} == {why}
        assert office.devices.delivered == []
        assert [row[:4] for row in audited(office)] == [("anna", "above", "run", "deny")]
        # The masters hear it device by device, and the row of the audit.
        sent = [type(item).__name__ for item in await spooled(office.rooms)]
        assert [kind for kind in sent if kind != "Event"] == [
            "JobDefinition",
            "Manifest",
            "OutcomeRecord",
            "OutcomeRecord",
            "Close",
            "AuditRecord",
        ]


async def test_a_job_runs_on_the_devices_that_are_granted_and_is_refused_on_the_others(tmp_path: Path) -> None:
    async with an_office(tmp_path, CENTRE) as office:
        office.here("cam-1", "ups-1")
        job, parcel = above()
        await office.rooms.acceptance.accept_from_above(parcel, 300.0, "tcp://above:1")
        assert await until(lambda: office.devices.delivered) == [(job.jid, "cam-1")]
        outcomes, _ = await office.rooms.views.outcomes(job.jid, 0, 9)
        (refused,) = outcomes
        assert (refused["id"], refused["outcome"]) == ("ups-1", "refused")
        assert "not granted on 1 of its devices: ups-1" in refused["why"]


async def test_a_relay_passes_on_only_what_its_policy_grants_and_answers_for_the_rest(tmp_path: Path) -> None:
    async with an_office(tmp_path, CENTRE, "porto", "madrid", name="iberia", masters=True) as office:
        office.here("cam-i")
        for site, device in (("porto", "cam-p"), ("madrid", "ups-m")):
            await office.rooms.inbox.commit_records(site, "0" * 16, [a_record(device, site, 1)])
        job, parcel = above()
        await office.rooms.acceptance.accept_from_above(parcel, 300.0, "tcp://above:1")
        opened = office.rooms.open_jobs.get(job.jid)
        assert opened is not None
        assert set(opened.branches) == {"porto"}
        assert (opened.expected, dict(opened.counts)) == (2, {"refused": 1})
        records = [item for item in await spooled(office.rooms) if isinstance(item, OutcomeRecord)]
        assert [(record.site, record.id, record.outcome.value) for record in records] == [
            ("madrid", "ups-m", "refused")
        ]
    async with an_office(tmp_path, CENTRE, "porto", "madrid", name="iberia", masters=True) as office:
        again = office.rooms.open_jobs.get(job.jid)
        assert again is not None
        assert (set(again.branches), again.own_expected, dict(again.counts)) == ({"porto"}, 2, {"refused": 1})
        assert list(again.waiting) == ["cam-i"]


async def test_the_hours_of_a_rule_are_those_of_the_asking(tmp_path: Path) -> None:
    clock = HandClock()
    policy = (
        'tokens: {anna: operator}\nrules:\n  operator:\n    - functions: [test.*]\n      hours: ["sat 03:00-04:00"]\n'
    )
    async with an_office(tmp_path, policy, clock=clock) as office:
        # 2026-11-21 is a Saturday, and it is a quarter past three.
        assert (await office.run("anna")).status == 201
        clock.move(45 * 60)
        heard = await office.run("anna")
        assert (heard.status, heard.error["allowed"]) == (403, "sat 03:00-04:00 (UTC)")


MINE = """\
users: {ada: admin, anna: operator, bob: operator}
rules:
  operator:
    - functions: [mine.get]
      targets: [cam-*]
      sites: [lisbon]
      users: [anna]
    - functions: [test.ping]
      users: [bob]
"""


async def test_a_job_of_a_namesake_is_not_ones_own(tmp_path: Path) -> None:
    """The user anna of this machine, anna of the centre, and anna with a token are three."""
    async with an_office(tmp_path, POLICY) as office:
        office.here("ups-1")
        cancelling = office.rooms.permission.cancelling
        here, by_token = (Operator("anna", frozenset({"operator"}), door) for door in ("socket", "api"))
        for operator, user, issued_here, own in (
            (here, "anna", True, True),
            (here, "anna (for bob)", True, True),
            (here, "anna", False, False),
            (here, "anna via api", True, False),
            (by_token, "anna via api", True, True),
            (by_token, "anna via api (claimed)", True, True),
            (by_token, "anna", True, False),
            (by_token, "anna (via api)", True, False),
            (by_token, "anna via api", False, False),
        ):
            job = a_job(user=user, tgt="ups-1", fun="sys.doc")
            if own:
                assert await cancelling(operator, job, issued_here=issued_here)
            else:
                with pytest.raises(PolicyRefused):
                    await cancelling(operator, job, issued_here=issued_here)


async def test_the_mine_is_read_by_who_may_read_it_on_the_device(tmp_path: Path) -> None:
    async with an_office(tmp_path, MINE) as office:
        reading = office.rooms.permission.reading
        anna, bob = (Operator(name, frozenset({"operator"}), "socket") for name in ("anna", "bob"))
        reading(anna, "cam-*", ["test.ping"], [("lisbon", "cam-1"), ("lisbon", "cam-2")])
        reading(Operator("ada", frozenset({"admin"}), "socket"), "*", ["test.ping"], [("porto", "rec-1")])
        reading(bob, "*", ["test.ping"], [])
        for operator, devices in (
            (anna, [("lisbon", "cam-1"), ("lisbon", "rec-1")]),
            (anna, [("porto", "cam-1")]),
            (bob, [("lisbon", "cam-1")]),
        ):
            with pytest.raises(PolicyRefused):
                reading(operator, "*", ["test.ping"], devices)
