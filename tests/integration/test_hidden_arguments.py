"""A policy that shows the arguments of jobs to some roles alone: everywhere in the API, but for one's own jobs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol.links import Parcel
from device_agent.protocol.messages import encode
from gateway.api.door import Door
from gateway.api.hidden_arguments import HIDDEN, piece_without_arguments, without_arguments
from gateway.api.operation import Asked, Operation, ServerSent
from gateway.api.server import ApiServer
from gateway.devices.policy import Operator
from gateway.devices.policy_file import own_user
from tests.peers.database import a_job
from tests.peers.office import Office, an_office, policy_of
from tests.peers.station import ask

SECRET = "hunter2"
POLICY = """\
tokens: {ada: admin, anna: operator, bob: operator, eve: viewer}
arguments: [approver]
"""


async def looked_at(office: Office, user: str, jid: str) -> dict[str, str]:
    """What each place that tells of a job says to this user."""
    places = ("/jobs", f"/jobs/{jid}", "/audit", f"/jobs/{jid}/outcomes")
    return {place: (await office.ask(user, "GET", place)).body.decode() for place in places}


async def test_the_arguments_of_others_are_hidden_and_ones_own_are_not(tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        heard = await office.run("anna", "test.echo", tgt="cam-1", arg=[SECRET], kwarg={"text": SECRET})
        assert heard.status == 201
        assert SECRET in heard.body.decode(), "whoever asks sees what was asked"
        jid = heard.json()["jid"]
        for user in ("bob", "eve"):
            for place, told in (await looked_at(office, user, jid)).items():
                assert SECRET not in told, (user, place)
        assert json.loads((await looked_at(office, "bob", jid))[f"/jobs/{jid}"])["arg"] == HIDDEN
        for user in ("ada", "anna"):
            assert SECRET in (await looked_at(office, user, jid))[f"/jobs/{jid}"]


async def test_without_the_setting_whoever_may_look_sees_them(tmp_path: Path) -> None:
    async with an_office(tmp_path, "tokens: {anna: operator, eve: viewer}\n") as office:
        office.here("cam-1")
        jid = (await office.run("anna", "test.echo", tgt="cam-1", arg=[SECRET])).json()["jid"]
        assert SECRET in (await looked_at(office, "eve", jid))[f"/jobs/{jid}"]


async def test_streams_hide_them_too(tmp_path: Path) -> None:
    async def said() -> AsyncIterator[dict[str, Any]]:
        yield {"user": "bob", "arg": [SECRET]}

    async def sent() -> AsyncIterator[bytes]:
        yield b'data: {"tag":"salt/job/1/new","data":{"user":"bob","arg":["%s"]}}\n\n' % SECRET.encode()

    async def lines(_: Asked) -> AsyncIterator[dict[str, Any]]:
        return said()

    async def events(_: Asked) -> ServerSent:
        return ServerSent(sent())

    roles = f"users: {{{own_user()}: viewer}}\n"
    counts = [policy_of(tmp_path, roles)]
    operations = [Operation("GET", f"/{each.__name__}", "A stream", each, stream=True) for each in (lines, events)]
    path = tmp_path / "api.sock"
    async with ApiServer(path, operations, on_stop=lambda: None, door=Door(lambda: counts[0])):
        for where in ("/lines", "/events"):
            assert SECRET in (await ask(path, "GET", where)).body.decode()
        counts[0] = policy_of(tmp_path, f"{roles}arguments: [approver]\n")
        for where in ("/lines", "/events"):
            told = (await ask(path, "GET", where)).body.decode()
            assert SECRET not in told
            assert HIDDEN in told


async def test_a_namesake_at_a_master_is_somebody_else(tmp_path: Path) -> None:
    """A master has a user anna too: her jobs are not those of the anna of this station."""
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        job = a_job(tgt="cam-1", fun="test.echo", arg=[SECRET], user="anna via api")
        await office.rooms.acceptance.accept_from_above(Parcel(encode(job), ()), 300.0, "tcp://master:1")
        for place, told in (await looked_at(office, "anna", job.jid)).items():
            assert SECRET not in told, place
        assert SECRET in (await looked_at(office, "ada", job.jid))[f"/jobs/{job.jid}"]


EVE = Operator("eve", frozenset({"viewer"}))


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"arg": ["x"], "fun": "f"}, {"arg": HIDDEN, "fun": "f"}),
        ({"arg": [], "kwarg": {}}, {"arg": [], "kwarg": {}}),
        ({"rows": [{"user": "bob", "arguments": "x"}]}, {"rows": [{"user": "bob", "arguments": HIDDEN}]}),
        ({"user": "eve", "arg": ["x"]}, {"user": "eve", "arg": ["x"]}),
        ({"user": "eve via api", "arg": ["x"]}, {"user": "eve via api", "arg": HIDDEN}),
        ({"data": {"fun_args": ["x"], "return": {"args": 1}}}, {"data": {"fun_args": HIDDEN, "return": {"args": 1}}}),
        ({"user": "eve", "origin": "local", "arg": ["x"]}, {"user": "eve", "origin": "local", "arg": ["x"]}),
        ({"user": "eve", "origin": "above", "arg": ["x"]}, {"user": "eve", "origin": "above", "arg": HIDDEN}),
        ({"user": "eve", "door": "above", "arguments": "x"}, {"user": "eve", "door": "above", "arguments": HIDDEN}),
        ({"user": "eve", "site": "here", "arguments": "x"}, {"user": "eve", "site": "here", "arguments": "x"}),
        ({"user": "eve", "site": "other", "arguments": "x"}, {"user": "eve", "site": "other", "arguments": HIDDEN}),
        ({"tag": "t", "data": {"user": "eve", "arg": ["x"]}}, {"tag": "t", "data": {"user": "eve", "arg": HIDDEN}}),
        ({"a": ({"kwargs": {"k": 1}},)}, {"a": [{"kwargs": HIDDEN}]}),
        (None, None),
    ],
)
def test_what_is_hidden_of_an_answer(answer: Any, shown: Any) -> None:
    assert without_arguments(answer, EVE, "here") == shown


def test_what_names_no_user_is_of_no_user() -> None:
    nobody = Operator("unknown", frozenset({"viewer"}))
    assert without_arguments({"arg": ["x"]}, nobody) == {"arg": HIDDEN}


def test_pieces_of_a_stream_keep_their_form() -> None:
    piece = b'id: a-1\ndata: {"tag":"salt/job/1/new","data":{"arg":["x"]}}\n\n'
    hidden = piece_without_arguments(piece, EVE)
    assert hidden.startswith(b"id: a-1\ndata: {")
    assert hidden.endswith(b"}\n\n")
    assert json.loads(hidden.partition(b"data: ")[2])["data"]["arg"] == HIDDEN
    for other in (b":\n\n", b"retry: 1000\n\n"):
        assert piece_without_arguments(other, EVE) == other
