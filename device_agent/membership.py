"""``outstation-agent join`` and ``show``: a device's way into its site, at a terminal, and what it is there."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path

from device_agent import standing
from device_agent.clock import Clock, iso
from device_agent.config import AgentSettings, load
from device_agent.counters import Counters
from device_agent.durable import replace_private
from device_agent.enroller import FINAL, Enroller
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, OutstationError, UsageInvalid
from device_agent.identity import Identity, IdentityFile
from device_agent.joining import invitation, shown_machine
from device_agent.state_folder import StateFolder
from device_agent.token_file import FILE, find_token, forget_token, parse_token, read_token
from device_agent.trust.device_certificate import read_device_certificate
from device_agent.trust.token import JoinToken

STANDARD_INPUT = "-"
LOOK_SECONDS = 0.5


class NotJoinedInTime(OutstationError):
    """Nobody accepted the device while the command waited."""

    default_id = "join.not_in_time"


def join(config: Path, token: str | None, token_file: Path | None, wait_seconds: float) -> int:
    """Join a site and wait until it has us. Raises ``ConfigInvalid``, ``UsageInvalid`` and ``PolicyRefused``."""
    # What the connection has to say comes as a sentence of the enroller.
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="%(message)s")
    table = load(config)
    given = given_token(token, token_file)
    folder = StateFolder(Path(table.state_dir))
    file = IdentityFile(folder.path)
    if given is not None and table.token_file is None and standing.running(folder.path):
        return _hand_over(given, file, wait_seconds)
    folder.take()
    try:
        identity = file.load_or_begin()
        if identity.joined and given is None:
            _tell(f"this device belongs to a site already: {identity.name} of {identity.site}")
            return EXIT_OK
        given = given or find_token(table)
        asyncio.run(_join(table, file, identity, given, wait_seconds))
        forget_token(table)
    finally:
        folder.release()
    _write(identity)
    return EXIT_OK


def _hand_over(token: JoinToken, file: IdentityFile, wait_seconds: float) -> int:
    """Let the agent that runs here join. Raises ``NotJoinedInTime``, and ``ConfigInvalid`` for a damaged identity."""
    identity = file.load()
    if identity is not None and identity.joined:
        _tell(f"this device belongs to a site already: {identity.name} of {identity.site}")
        return EXIT_OK
    replace_private(file.path.with_name(FILE), token.text().encode())
    _tell("the agent that runs here has the token")
    clock, told = Clock(), ""
    until = clock.monotonic() + wait_seconds
    while identity is None or not identity.joined:
        if clock.monotonic() >= until:
            raise NotJoinedInTime(
                f"not joined within {wait_seconds:g} s",
                found=told or None,
                hint="journalctl -u outstation-agent; it goes on trying",
            )
        said = standing.sentence(file.path.parent)
        if said != told:
            told = said
            _tell(said)
        time.sleep(LOOK_SECONDS)
        identity = file.load()
    _write(identity)
    return EXIT_OK


def show(config: Path) -> int:
    """Say who this device is."""
    table = load(config)
    identity = IdentityFile(Path(table.state_dir)).load()
    if identity is None:
        _tell(f"this machine is no device yet: there is no identity in {table.state_dir}; `outstation-agent join`")
        return EXIT_NOT_ALL_OK
    _write(identity)
    return EXIT_OK


def given_token(text: str | None, file: Path | None) -> JoinToken | None:
    """The token on the command line: itself, in a file, or on standard input for ``-``. Raises ``UsageInvalid``."""
    if text is not None and file is not None:
        raise UsageInvalid("there are two tokens", where="TOKEN and --token-file", allowed="one of them")
    if text == STANDARD_INPUT:
        text = sys.stdin.buffer.read(4096).decode("ascii", "replace")
    if text is not None:
        return parse_token(text)
    if file is None:
        return None
    try:
        return read_token(file, piped=True)
    except OSError as error:
        raise UsageInvalid(f"the token cannot be read: {error.strerror or error}", where=str(file)) from error


async def _join(
    table: AgentSettings, file: IdentityFile, identity: Identity, token: JoinToken | None, wait_seconds: float
) -> None:
    async def keep() -> None:
        await asyncio.to_thread(file.save, identity.to_bytes())

    serial, model = shown_machine(table)
    enroller = Enroller(
        identity,
        invitation(table, token, identity),
        serial=serial,
        model=model,
        keep=keep,
        tell=_tell,
        clock=Clock(),
        counters=Counters(),
    )
    _tell(f"fingerprint {identity.fingerprint}")
    try:
        async with asyncio.timeout(wait_seconds):
            await enroller.join(final=FINAL)
    except TimeoutError:
        raise NotJoinedInTime(
            f"not accepted within {wait_seconds:g} s",
            found=f"fingerprint {identity.fingerprint}",
            hint="run it again: the request stays at the gateway; or start the agent, which goes on asking",
        ) from None


def _write(identity: Identity) -> None:
    root = identity.anchor.pinned
    facts = {
        "name": identity.name or "-",
        "site": identity.site or "-",
        "state": "joined" if identity.joined else "not joined",
        "fingerprint": identity.fingerprint,
        "did": identity.did,
        "root": root.hex() if root is not None else "-",
    }
    if identity.joined:
        facts["certificate until"] = iso(read_device_certificate(identity.certificate).expires)
    sys.stdout.write("".join(f"{name + ':':<19}{value}\n" for name, value in facts.items()))


def _tell(words: str) -> None:
    sys.stderr.write(f"{words}\n")
