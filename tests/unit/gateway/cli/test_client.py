"""gateway/cli/client.py, against a server on a real socket."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from device_agent.errors import NotFound, NotRunning, OutstationError, PolicyRefused, StationFailed, UsageInvalid
from gateway.cli import client as client_module
from gateway.cli.client import StationClient, find_socket, refusal
from gateway.cli.views import JobClosed, JobSeen, OutcomeView
from gateway.fleet.join_words import NO_NAME
from tests.peers.api_double import JID, Act, ApiDouble, outcome, watched


def client(api: ApiDouble) -> StationClient:
    return StationClient(api.path, 10)


def test_the_only_socket_is_found_and_a_given_one_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "master.sock").touch()
    assert find_socket(None, tmp_path) == tmp_path / "master.sock"
    assert find_socket(Path("/given"), tmp_path) == Path("/given")


def test_two_sockets_are_an_error_that_asks_which(tmp_path: Path) -> None:
    for name in ("gateway.sock", "master.sock"):
        (tmp_path / name).touch()
    with pytest.raises(UsageInvalid, match="either could be meant") as raised:
        find_socket(None, tmp_path)
    assert str(tmp_path / "gateway.sock") in (raised.value.hint or "")


def test_a_gateway_without_a_name_is_not_meant_beside_a_master(tmp_path: Path) -> None:
    with ApiDouble(tmp_path / "gateway.sock") as gateway, ApiDouble(tmp_path / "master.sock"):
        gateway.station = {"role": "gateway", "name": NO_NAME}
        assert find_socket(None, tmp_path) == tmp_path / "master.sock"
        gateway.station = {"role": "gateway", "name": "lisbon"}
        with pytest.raises(UsageInvalid, match="either could be meant"):
            find_socket(None, tmp_path)


def test_no_socket_means_that_no_station_runs(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="no station runs") as raised:
        find_socket(None, tmp_path)
    assert raised.value.exit_status == 7


def test_a_socket_nobody_listens_on_is_not_a_station(tmp_path: Path) -> None:
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(NotRunning, match="connection refused"):
        StationClient(path).station()
    with pytest.raises(NotRunning, match="no such file"):
        StationClient(tmp_path / "none.sock").station()


def test_a_path_no_socket_can_have_is_a_mistake_in_the_command_line() -> None:
    with pytest.raises(UsageInvalid, match="--socket"):
        StationClient(Path("/" + "x" * 200)).station()


def test_the_error_for_a_socket_of_others_says_what_to_do() -> None:
    error = StationClient(Path("/x"))._unreachable(PermissionError(13, "Permission denied"))
    assert isinstance(error, PolicyRefused)
    assert error.hint is not None


def test_pages_are_followed_to_the_end(api: ApiDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAGE", 3)
    api.outcomes = [outcome(f"cam-{number}") for number in range(8)]
    api.devices = [{"id": f"cam-{number}", "site": "lisbon"} for number in range(8)]
    assert [view.id for view in client(api).outcomes(JID)] == [f"cam-{number}" for number in range(8)]
    assert len(list(client(api).devices({"tgt": "*"}))) == 8
    assert [view.id for view in client(api).devices({"tgt": "*"}, limit=4)] == ["cam-0", "cam-1", "cam-2", "cam-3"]
    assert [query["limit"] for query, _ in api.asked("GET", "/devices")[-2:]] == ["3", "1"]


def test_ids_are_quoted_on_their_way(api: ApiDouble) -> None:
    with pytest.raises(NotFound):
        client(api).job("../keys?x")
    assert api.requests[-1][:2] == ("GET", "/jobs/../keys?x")
    assert not api.requests[-1][2]


def test_a_stream_gives_each_message_and_skips_what_only_keeps_it_alive(api: ApiDouble) -> None:
    api.stream = [Act.KEEPALIVE, *watched([outcome("cam-1"), outcome("cam-2")]), Act.KEEPALIVE]
    messages = list(client(api).watch(JID))
    assert isinstance(messages[0], JobSeen)
    assert [message.id for message in messages if isinstance(message, OutcomeView)] == ["cam-1", "cam-2"]
    assert isinstance(messages[-1], JobClosed)


def test_ten_thousand_outcomes_come_through_a_stream(api: ApiDouble) -> None:
    api.stream = watched([outcome(f"cam-{number:05d}") for number in range(10_000)])
    assert sum(isinstance(message, OutcomeView) for message in client(api).watch(JID)) == 10_000


@pytest.mark.parametrize("end", [[Act.DIE], [b'{"type":"outcome"']])
def test_a_stream_that_is_torn_means_the_station_is_gone(api: ApiDouble, end: list[Act | bytes]) -> None:
    api.stream = [*watched([outcome()])[:2], *end]
    messages = client(api).watch(JID)
    assert isinstance(next(messages), JobSeen)
    assert isinstance(next(messages), OutcomeView)
    with pytest.raises(NotRunning):
        next(messages)


def test_a_line_without_an_end_is_given_up(api: ApiDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LINE_BYTES", 1000)
    api.stream = [b"x" * 5000]
    with pytest.raises(StationFailed, match="without an end"):
        list(client(api).watch(JID))


def test_a_silent_station_is_given_up(api: ApiDouble) -> None:
    api.stream = [watched([outcome()])[0], Act.HOLD]
    with pytest.raises(StationFailed, match="said nothing for"):
        list(StationClient(api.path, 0.05).watch(JID))
    api.release()


@pytest.mark.parametrize(
    "line", [b"not json\n", b'{"type":"surprise"}\n', b'{"type":"job","job":{"jid":7}}\n', b'{"type":"close"}\n']
)
def test_an_answer_that_cannot_be_read_is_the_stations_failure(api: ApiDouble, line: bytes) -> None:
    api.stream = [line]
    with pytest.raises(StationFailed, match="another release"):
        list(client(api).watch(JID))


def test_fields_of_a_newer_station_are_passed_over(api: ApiDouble) -> None:
    api.sites = [{"site": "lisbon", "mood": "fine"}]
    assert client(api).site("lisbon").site == "lisbon"


@pytest.mark.parametrize(
    ("status", "kind", "exit_status"),
    [
        (400, UsageInvalid, 2),
        (404, NotFound, 2),
        (422, UsageInvalid, 2),
        (403, PolicyRefused, 8),
        (409, StationFailed, 1),
        (500, StationFailed, 1),
        (503, StationFailed, 1),
    ],
)
def test_a_refusal_keeps_its_facts_and_gets_its_exit_status(
    api: ApiDouble, status: int, kind: type[OutstationError], exit_status: int
) -> None:
    facts = {"id": "x.y", "what": "no", "where": "here", "found": "a", "allowed": "b", "hint": "c"}
    api.refusals["/sites"] = (status, {"error": facts})
    with pytest.raises(kind) as raised:
        client(api).sites()
    assert raised.value.fields() == facts
    assert raised.value.exit_status == exit_status


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error":"no"}', b'{"error":{"id":"x"}}'])
def test_a_refusal_that_says_nothing_useful_is_still_an_error(body: bytes) -> None:
    error = refusal(502, body)
    assert isinstance(error, StationFailed)
    assert "502" in error.what
