"""The API's port: who comes in by it, over what, and what becomes of those who guess."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import ConfigInvalid, NotRunning, StationFailed
from device_agent.parts import leaves
from gateway.api import connection as connection_module
from gateway.api import door as door_module
from gateway.api.door import Door
from gateway.api.listener import Listen
from gateway.api.operation import Asked, Operation
from gateway.api.server import ApiServer
from gateway.audit.book import AuditBook
from gateway.audit.folding import DISTINCT
from gateway.cli.client import StationClient
from gateway.cli.main import main
from gateway.cli.remote import remote
from gateway.devices.api_tokens import ApiTokens
from gateway.devices.policy import Policy, Role, without_file
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from tests.peers.certificate import self_made
from tests.peers.clock import HandClock
from tests.peers.database import Store, opened_store
from tests.peers.office import port_asked
from tests.peers.station import Heard, ask
from tests.peers.waiting import until

DAY_SECONDS = 86_400.0
ME = pwd.getpwuid(os.geteuid()).pw_name


class Gate:
    """A door with its tokens and its audit."""

    def __init__(self, store: Store, clock: HandClock, policy: Policy) -> None:
        self.store = store
        self.clock = clock
        self.policy = policy
        self.metrics = Metrics(clock)
        self.tokens = ApiTokens(writer=store.writer, reader=store.reader, clock=clock)
        spool = Spool(store.writer, store.reader, store.epoch, enabled=False)
        self.audit = AuditBook(site="lisbon", writer=store.writer, spool=spool, clock=clock)
        self.door = Door(lambda: self.policy, tokens=self.tokens, audit=self.audit, metrics=self.metrics, clock=clock)
        self.port = 0
        self.server: ApiServer

    @property
    def streams(self) -> int:
        """Streams that are open at the port."""
        return self.server.places["port"].streams

    async def token(self, user: str = "anna", role: Role | None = "viewer", seconds: float = DAY_SECONDS) -> str:
        text, _ = await self.tokens.make(user, role, seconds, "root")
        return text

    async def ask(self, authorization: str | None, where: str = "/whoami", method: str = "GET") -> Heard:
        headers = {} if authorization is None else {"Authorization": authorization}
        return await asyncio.to_thread(port_asked, self.port, method, where, None, headers)

    def audited(self) -> list[Any]:
        return self.store.look("SELECT door, user, action, subject, verdict, why FROM audit")


async def whoami(asked: Asked) -> dict[str, Any]:
    return {"name": asked.operator.name, "door": asked.operator.door, "roles": sorted(asked.operator.roles)}


async def forever(asked: Asked) -> AsyncIterator[Any]:
    async def lines() -> AsyncIterator[Any]:
        while True:
            yield {"tick": True}
            await asyncio.sleep(0)

    return lines()


OPERATIONS = [
    Operation("GET", "/whoami", "Who asks", whoami),
    Operation("POST", "/whoami", "Who asks, and is an admin", whoami),
    Operation("GET", "/forever", "A stream without an end", forever, stream=True),
    Operation("POST", "/body", "Something with a body", whoami, body=dict[str, Any]),
]


@asynccontextmanager
async def a_gate(folder: Path, policy: Policy | None = None, listen: Listen | None = None) -> AsyncIterator[Gate]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened_store(folder / "store"))
        gate = Gate(store, HandClock(), policy or without_file("outstation"))
        await stack.enter_async_context(gate.tokens)
        path = folder / "api.sock"
        listen = listen or Listen("127.0.0.1:0")
        server = ApiServer(path, OPERATIONS, on_stop=lambda: None, door=gate.door, listen=listen)
        await stack.enter_async_context(server)
        gate.port, gate.server = server.port, server
        yield gate


async def test_a_token_says_who_asks_and_its_role_what_he_may(tmp_path: Path) -> None:
    async with a_gate(tmp_path) as gate:
        heard = await gate.ask(f"Bearer {await gate.token()}")
        assert heard.json() == {"name": "anna", "door": "api", "roles": ["viewer"]}
        assert (await gate.ask(f"bearer  {await gate.token('bob', 'admin')} ", method="POST")).status == 200
        refused = await gate.ask(f"Bearer {await gate.token()}", method="POST")
        assert (refused.status, refused.error["id"]) == (403, "policy.role")
        # The kernel's word counts at the socket, whatever is said there.
        there = await ask(tmp_path / "api.sock", "GET", "/whoami")
        assert (there.json()["name"], there.json()["door"]) == (ME, "socket")


async def test_without_a_role_the_policy_decides_by_name_whenever_it_is_asked(tmp_path: Path) -> None:
    admin: frozenset[Role] = frozenset({"admin"})
    async with a_gate(tmp_path, Policy({"bob": admin}, {"anna": admin}, tokens={"anna": admin})) as gate:
        token = f"Bearer {await gate.token('anna', None)}"
        other = f"Bearer {await gate.token('bob', None)}"
        assert (await gate.ask(token)).json()["roles"] == ["admin"]
        assert (await gate.ask(other)).status == 403
        gate.policy = Policy({}, {"anna": admin})
        assert (await gate.ask(token)).status == 403


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic YTpi",
        "Bearer {id}",
        "Bearer {hash}",
        "{token}",
        "Bearer {token}x",
    ],
)
async def test_who_has_no_token_that_counts_is_turned_away_unread(authorization: str | None, tmp_path: Path) -> None:
    async with a_gate(tmp_path) as gate:
        token = await gate.token()
        ((token_id, hashed),) = gate.store.look("SELECT id, hex(hash) FROM api_tokens")
        assert token not in str(gate.store.look("SELECT * FROM api_tokens"))
        if authorization is not None:
            authorization = authorization.format(id=token_id, hash=hashed, token=token)
        for where in ("/whoami", "/openapi.json", "/no/such/path"):
            heard = await gate.ask(authorization, where)
            assert (heard.status, heard.error["id"]) == (401, "operator.unknown")
            assert heard.headers["www-authenticate"] == "Bearer"
        assert gate.audited()[0][:5] == ("api", "unknown", "enter", "127.0.0.1", "deny")


async def test_an_expired_or_revoked_token_is_none(tmp_path: Path) -> None:
    async with a_gate(tmp_path) as gate:
        short, other = await gate.token(seconds=60), await gate.token()
        gate.clock.move(59)
        assert (await gate.ask(f"Bearer {short}")).status == 200
        gate.clock.move(1)
        assert (await gate.ask(f"Bearer {short}")).status == 401
        (view,) = [view for view in gate.tokens.views() if view["state"] == "valid"]
        assert (await gate.ask(f"Bearer {other}")).status == 200
        await gate.tokens.revoke(view["id"])
        assert (await gate.ask(f"Bearer {other}")).status == 401
        assert {view["state"] for view in gate.tokens.views()} == {"expired", "revoked"}


async def test_tokens_and_their_last_use_outlive_a_restart_and_old_ones_do_not(tmp_path: Path) -> None:
    async with a_gate(tmp_path) as gate:
        kept, gone = await gate.token(seconds=40 * DAY_SECONDS), await gate.token(seconds=1)
        assert (await gate.ask(f"Bearer {kept}")).status == 200
        await until(lambda: gate.store.look("SELECT 1 FROM api_tokens WHERE used IS NOT NULL"), what="the use is kept")
        before = gate.tokens.views()
    async with a_gate(tmp_path) as gate:
        assert sorted(gate.tokens.views(), key=str) == sorted(before, key=str)
        assert gate.tokens.known(kept) is not None
    async with opened_store(tmp_path / "store") as store:
        clock = HandClock()
        clock.move(31 * DAY_SECONDS + 2)
        tokens = ApiTokens(writer=store.writer, reader=store.reader, clock=clock)
        async with tokens:
            assert tokens.known(gone) is None
            assert len(tokens.views()) == 1


async def test_wrong_tokens_are_counted_told_a_few_times_and_never_shut_out_a_right_one(tmp_path: Path) -> None:
    async with a_gate(tmp_path) as gate:
        right = f"Bearer {await gate.token()}"
        statuses = [(await gate.ask(f"Bearer {number}")).status for number in range(door_module.FAILURES + 3)]
        assert statuses == [401] * door_module.FAILURES + [429] * 3
        assert (await gate.ask(right)).status == 200
        assert len(gate.audited()) == 1
        gate.clock.move(door_module.FAILURES_SECONDS)
        await gate.audit.write_counted()
        assert gate.store.look("SELECT verdict, times FROM audit") == [("deny", 1), ("deny", door_module.FAILURES - 1)]
        assert gate.metrics.refusals["api", "wrong_token"] == door_module.FAILURES
        assert gate.metrics.refusals["api", "too_many_failures"] == 3
        assert (await gate.ask(None)).status == 401
        assert gate.metrics.refusals["api", "no_token"] == 1


async def test_wrong_tokens_from_one_ipv6_network_are_counted_together(tmp_path: Path) -> None:
    async with a_gate(tmp_path) as gate:
        for number in range(door_module.FAILURES):
            with pytest.raises(door_module.TokenRefused):
                await gate.door.at_port({"type": "http", "headers": [], "client": (f"2001:db8::{number:x}", 1)})
        with pytest.raises(door_module.TooManyFailures):
            await gate.door.at_port({"type": "http", "headers": [], "client": ("2001:db8::ffff", 1)})
        with pytest.raises(door_module.TokenRefused):
            await gate.door.at_port({"type": "http", "headers": [], "client": ("2001:db8:0:1::1", 1)})


async def test_strangers_from_many_addresses_do_not_fill_the_audit(tmp_path: Path) -> None:
    async with a_gate(tmp_path) as gate:
        strangers = 200
        for number in range(strangers):
            with pytest.raises(door_module.TokenRefused):
                await gate.door.at_port({"type": "http", "headers": [], "client": (f"2001:db8:0:{number:x}::1", 1)})
        assert len(gate.audited()) == DISTINCT
        assert gate.metrics.refusals["api", "no_token"] == strangers


async def test_a_stream_ends_with_the_token_it_was_opened_with(tmp_path: Path) -> None:
    async with a_gate(tmp_path) as gate:
        token = await gate.token()
        (view,) = gate.tokens.views()
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(f"GET /forever HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        async with asyncio.timeout(60):
            while b"tick" not in await reader.readline():
                pass
            await gate.tokens.revoke(view["id"])
            while await reader.readline() not in (b"0\r\n", b""):
                pass
        writer.close()


async def test_who_connects_and_asks_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HEAD_SECONDS", 3.0)
    async with a_gate(tmp_path) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(b"GET /whoami HTTP/1.1\r\n")
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        # Who has asked in time is not disturbed.
        assert (await gate.ask(f"Bearer {await gate.token()}")).status == 200


async def test_no_header_says_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    async with a_gate(tmp_path) as gate:
        headers = {"X-Forwarded-For": "192.0.2.99", "Authorization": "Bearer x"}
        assert (await asyncio.to_thread(port_asked, gate.port, "GET", "/whoami", None, headers)).status == 401
        assert gate.audited()[0][3] == "127.0.0.1"
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "api.sock"))
        writer.write(b"GET /whoami HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: somebody\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(60):
            answer = (await reader.read()).rpartition(b"\r\n\r\n")[2]
        writer.close()
        assert json.loads(answer)["name"] == ME


async def test_over_tls_a_client_that_trusts_the_certificate_is_served_and_no_other(tmp_path: Path) -> None:
    certificate, key = self_made(tmp_path)
    other, _ = self_made(tmp_path, name="other")
    async with a_gate(tmp_path, listen=Listen("127.0.0.1:0", str(certificate), str(key))) as gate:
        token_file = tmp_path / "token"
        token_file.write_text(await gate.token() + "\n")
        token_file.chmod(0o600)
        address = f"https://127.0.0.1:{gate.port}"

        def name(trusted: Path | None) -> Any:
            client = StationClient(remote(address, token_file, trusted), 10)
            return client._ask("GET", "/whoami", dict)["name"]

        assert await asyncio.to_thread(name, certificate) == "anna"
        for trusted in (other, None):
            with pytest.raises(StationFailed, match="cannot be trusted") as error:
                await asyncio.to_thread(name, trusted)
            assert "--ca" in str(error.value.hint)
        with pytest.raises(NotRunning):
            await asyncio.to_thread(
                StationClient(remote(address.replace("https", "http"), token_file, None), 10).station
            )
        # The other way round: nobody reads what is said in between, in an old version of TLS neither.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", gate.port, ssl=context)


async def test_a_renewed_certificate_is_taken_without_a_restart_and_a_broken_one_changes_nothing(
    tmp_path: Path,
) -> None:
    certificate, key = self_made(tmp_path)
    listen = Listen("127.0.0.1:0", str(certificate), str(key))
    server = ApiServer(tmp_path / "api.sock", OPERATIONS, on_stop=lambda: None, listen=listen)

    async def shown() -> bytes | None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return found

    async with server:
        first = await shown()
        certificate.write_text("no certificate")
        with pytest.raises(ConfigInvalid, match="cannot be used"):
            server.renew_certificate()
        assert await shown() == first
        self_made(tmp_path)
        server.renew_certificate()
        assert await shown() not in (first, None)


@pytest.mark.parametrize(
    ("address", "certificate", "what"),
    [
        ("0.0.0.0:0", None, "without TLS"),
        ("192.0.2.1:0", None, "without TLS"),
        ("station.example:0", None, "without TLS"),
        ("[::]:0", None, "without TLS"),
        ("127.0.0.1:0", "missing", "certificate cannot be used"),
        ("127.0.0.1:0", "key", "certificate cannot be used"),
        ("192.0.2.1:0", "sound", "cannot listen there"),
        ("127.0.0.1:{taken}", "sound", "cannot listen there"),
    ],
)
async def test_what_must_not_or_cannot_be_served_stops_the_start(
    address: str, certificate: str | None, what: str, tmp_path: Path
) -> None:
    made, key = self_made(tmp_path)
    files = {"missing": tmp_path / "none", "key": key, "sound": made}
    listed = (None, None) if certificate is None else (str(files[certificate]), str(key))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = Listen(address.format(taken=taken.getsockname()[1]), *listed)
        with pytest.raises(ExceptionGroup) as error:
            async with ApiServer(tmp_path / "api.sock", OPERATIONS, on_stop=lambda: None, listen=listen):
                raise AssertionError("it listens")
    (reason,) = leaves(error.value)
    assert isinstance(reason, ConfigInvalid)
    assert what in reason.what
    assert reason.hint
    assert not (tmp_path / "api.sock").exists()


async def test_the_command_line_asks_by_the_port_as_by_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = self_made(tmp_path)
    async with a_gate(tmp_path, listen=Listen("127.0.0.1:0", str(certificate), str(key))) as gate:
        token_file = tmp_path / "token"
        token_file.write_text(await gate.token())
        token_file.chmod(0o600)
        words = ["--api", f"https://127.0.0.1:{gate.port}", "--token-file", str(token_file), "--ca", str(certificate)]
        # The operation is not there, which is what this station says to whom it has let in.
        assert await asyncio.to_thread(main, [*words, "operators", "me"]) == 2
        assert "no such operation" in capsys.readouterr().err
        token_file.write_text("wrong")
        assert await asyncio.to_thread(main, [*words, "operators", "me"]) == 8
        assert "does not know who is asking" in capsys.readouterr().err
        for name, value in zip(("OUTSTATION_API", "OUTSTATION_TOKEN_FILE", "OUTSTATION_CA"), words[1::2], strict=True):
            monkeypatch.setenv(name, value)
        assert await asyncio.to_thread(main, ["operators", "me"]) == 8
        assert await asyncio.to_thread(main, ["--socket", str(tmp_path / "api.sock"), "operators", "me"]) == 2
