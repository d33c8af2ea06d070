"""``master init``, ``gateway init``, ``gateway join``, ``sites token``, ``fleet publish``: with files and real APIs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from device_agent.errors import UsageInvalid
from device_agent.trust.keys import fingerprint
from gateway.api.fleet import FleetApi, Joining
from gateway.api.operation import Asked
from gateway.api.server import ApiServer
from gateway.cli.main import main
from gateway.devices.authority import Authority
from gateway.devices.policy import Operator
from gateway.fleet import armor
from gateway.fleet.ceremony import ROOT_LISTS, Ceremony
from gateway.fleet.description import read_description
from gateway.fleet.grants import Grant
from gateway.fleet.site_authority import read_request, sign_site
from gateway.fleet.state_folder import at_rest
from tests.peers.clock import STARTED_WALL, HandClock
from upstream.curve import fingerprint as curve_fingerprint
from upstream.curve import load_or_make


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    status: int
    out: str
    error: str


class Desk:
    """A machine with the settings of a master and of a gateway, and a fleet's folder."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture
        for role, name, more in (
            ("master", "central", {"sites": {"listen": "tcp://0.0.0.0:4510"}}),
            ("gateway", "lisbon", {}),
        ):
            settings = {
                "name": name,
                "state_dir": str(folder / role),
                "socket": str(folder / f"{role}.sock"),
                **more,
            }
            (folder / f"{role}.yaml").write_text(json.dumps(settings), encoding="utf-8")

    def type(self, *line: str) -> Said:
        """Run a command; ``@master`` and ``@gateway`` stand for the option with that station's settings."""
        words = [word for part in line for word in self._expanded(part)]
        self._capture.readouterr()
        status = main(words)
        captured = self._capture.readouterr()
        return Said(status, captured.out, captured.err)

    def _expanded(self, word: str) -> list[str]:
        return ["--config", str(self.folder / f"{word[1:]}.yaml")] if word.startswith("@") else [word]

    def opened(self, role: str) -> Authority:
        """The station of this role, as at its next start."""
        folder, name = self.folder / role, {"master": "central", "gateway": "lisbon"}[role]
        curve = load_or_make(folder / "curve.key")
        clock = HandClock()
        return Authority(folder, role="master" if role == "master" else "gateway", site=name, curve=curve, clock=clock)

    @asynccontextmanager
    async def running(self, role: str) -> AsyncIterator[Authority]:
        """The API of the station of this role, at the socket of its settings."""
        authority = self.opened(role)
        path = self.folder / f"{role}.sock"
        with at_rest(self.folder / role, ""):
            async with ApiServer(path, FleetApi(authority).operations(), on_stop=lambda: None):
                yield authority

    def fleet(self, *, standalone: bool = False) -> Ceremony:
        ceremony = Ceremony(self.folder / "fleet")
        ceremony.begin(STARTED_WALL, standalone=standalone)
        return ceremony

    def master(self, ceremony: Ceremony) -> Path:
        """A master that is in the fleet; the file of its root lists."""
        said = self.type("master", "init", "--address", "tcp://192.0.2.1:4510", "@master")
        ceremony.add_master(read_description(said.out), [], STARTED_WALL, root_shell=False)
        return ceremony.folder / ROOT_LISTS


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.delenv("OUTSTATION_SOCKET", raising=False)
    return Desk(tmp_path, capsys)


def test_a_master_describes_itself_the_same_each_time_and_says_its_fingerprint(desk: Desk) -> None:
    nowhere = desk.type("master", "init", "@master")
    assert nowhere.status == 2
    assert "tcp://0.0.0.0:4510" in nowhere.error
    file = desk.folder / "central.master"
    first = desk.type("master", "init", "--address", "tcp://192.0.2.1:4510", "--file", str(file), "@master")
    assert first.status == 0
    master = read_description(first.out)
    assert read_description(armor.typed(str(file))) == master
    authority = desk.opened("master")
    assert (master.name, master.sig, master.addresses) == (
        "central",
        authority.signing.public,
        ("tcp://192.0.2.1:4510",),
    )
    assert fingerprint(master.sig) in first.error
    again = desk.type("master", "init", "--address", "tcp://192.0.2.1:4510", "@master")
    assert again.out == first.out


def test_a_root_list_is_installed_before_the_first_start_and_not_under_a_running_station(desk: Desk) -> None:
    ceremony = desk.fleet()
    desk.type("master", "init", "--address", "tcp://192.0.2.1:4510", "@master")
    unnamed = desk.type("master", "init", "--root-list", str(ceremony.folder / ROOT_LISTS), "@master")
    assert unnamed.status == 2
    assert "outstation fleet add-master" in unnamed.error
    lists = desk.master(ceremony)
    with at_rest(desk.folder / "master", ""):
        refused = desk.type("master", "init", "--root-list", str(lists), "@master")
        assert refused.status == 2
        assert f"outstation fleet publish {lists}" in refused.error
    installed = desk.type("master", "init", "--root-list", str(lists), "@master")
    assert (installed.status, "version 2" in installed.out) == (0, True)
    assert desk.opened("master").may("site-ca")
    # Without an address it is still the one that the fleet knows.
    assert read_description(desk.type("master", "init", "@master").out).addresses == ("tcp://192.0.2.1:4510",)


def test_a_gateways_request_says_the_keys_it_has_and_their_fingerprints(desk: Desk) -> None:
    said = desk.type("gateway", "init", "@gateway")
    request = read_request(said.out)
    gateway = desk.opened("gateway")
    assert (request.site, request.sig, request.kem) == ("lisbon", gateway.signing.public, gateway.kem.public)
    assert curve_fingerprint(gateway.curve.public) in said.error
    assert fingerprint(gateway.signing.public) in said.error


async def test_a_gateway_joins_with_a_token_while_it_runs_and_while_it_does_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = desk.master(desk.fleet())
    async with desk.running("master") as master:
        socket = ["--socket", str(desk.folder / "master.sock")]
        early = await asyncio.to_thread(desk.type, *socket, "sites", "token")
        assert early.status == 8
        assert "outstation fleet publish" in early.error
        published = await asyncio.to_thread(desk.type, *socket, "fleet", "publish", str(lists))
        assert (published.status, published.out.startswith("taken version 2")) == (0, True)
        assert master.may("site-ca")
        known = await asyncio.to_thread(desk.type, *socket, "fleet", "publish", str(lists))
        assert known.out.startswith("known already")
        file = desk.folder / "site.token"
        token = await asyncio.to_thread(desk.type, *socket, "sites", "token", "--file", str(file))
        assert token.status == 0
        other = await asyncio.to_thread(desk.type, *socket, "sites", "token", "--address", "tcp://198.51.100.9:1")
        assert other.out != token.out
    desk.type("gateway", "init", "@gateway")
    stopped = await asyncio.to_thread(desk.type, "gateway", "join", "--token-file", str(file), "@gateway")
    assert stopped.status == 0
    assert "no station runs here" in stopped.error
    assert "outstation keys accept lisbon" in stopped.error
    assert [entry.address for entry in desk.opened("gateway").masters()] == ["tcp://192.0.2.1:4510"]
    async with desk.running("gateway") as gateway:
        told = []

        async def tell() -> None:
            told.append([entry.address for entry in gateway.masters()])

        gateway.on_change(tell)
        # The settings that are typed are meant, whatever station the environment means.
        monkeypatch.setenv("OUTSTATION_SOCKET", str(desk.folder / "master.sock"))
        joined = await asyncio.to_thread(desk.type, "gateway", "join", other.out.strip("\n"), "--no-wait", "@gateway")
        assert (joined.status, "no station runs" in joined.error) == (0, False)
        assert told == [["tcp://198.51.100.9:1", "tcp://192.0.2.1:4510"]]


async def test_a_bundle_of_a_standalone_fleet_brings_a_gateway_in(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk.folder)
    request = desk.folder / "lisbon.request"
    await asyncio.to_thread(desk.type, "gateway", "init", "--file", str(request), "@gateway")
    begun = await asyncio.to_thread(desk.type, "fleet", "init", "--standalone")
    assert begun.status == 0
    signed = await asyncio.to_thread(
        desk.type, "fleet", "sign-site", str(request), "--grant", "cmd.*", "--origin", "salt"
    )
    assert signed.status == 0
    assert "salt: cmd.*" in signed.out
    joined = await asyncio.to_thread(desk.type, "gateway", "join", "--bundle", "lisbon.bundle", "@gateway")
    assert (joined.status, joined.out.splitlines()[0][:20]) == (0, "joined lisbon to fle")
    assert "from salt:   cmd.*" in joined.out.splitlines()
    assert desk.opened("gateway").may("job")
    other = Ceremony(desk.folder / "other")
    other.begin(STARTED_WALL, standalone=True)
    foreign = sign_site(other, read_request(request.read_text()), Grant(), STARTED_WALL)
    (desk.folder / "foreign.bundle").write_text(foreign.text())
    async with desk.running("gateway"):
        refused = await asyncio.to_thread(desk.type, "gateway", "join", "--bundle", "foreign.bundle", "@gateway")
        assert refused.status == 2
        assert "does not take this bundle" in refused.error


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["gateway", "join"], "joins with one thing"),
        (["gateway", "join", "X", "--bundle", "x"], "joins with one thing"),
        (["gateway", "join", "not a token"], "no token to join with"),
        (["gateway", "join", "--token-file", "nothing"], "there is no such file"),
        (["gateway", "join", "--bundle", "nothing"], "not what belongs here"),
    ],
    ids=" ".join,
)
def test_what_is_no_token_and_no_bundle_is_said_to_be_none(line: list[str], said: str, desk: Desk) -> None:
    finished = desk.type(*line, "@gateway")
    assert (finished.status, finished.out) == (2, "")
    assert said in finished.error
    assert "try:" in finished.error
    assert not (desk.folder / "gateway" / "masters").exists()


async def test_the_api_reads_no_file_for_whoever_asks(desk: Desk) -> None:
    """What the command line takes as the name of a file is only ever a line at the API."""
    desk.type("gateway", "init", "@gateway")
    secret = desk.folder / "secret"
    secret.write_text("os-bundle:aaaaaaaaaaaa", encoding="utf-8")
    async with desk.running("gateway") as gateway:
        (join,) = [each for each in FleetApi(gateway).operations() if each.path == "/join"]
        asked = Asked({}, {}, Joining(bundle=str(secret)), Operator("ops", frozenset({"admin"})))
        with pytest.raises(UsageInvalid, match="not what belongs here") as error:
            await join.handler(asked)
        assert "no such line" in str(error.value.found)
