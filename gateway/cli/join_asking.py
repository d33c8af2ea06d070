"""What a gateway has to be told before it can join: from the options, or asked for at the terminal."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from device_agent.errors import UsageInvalid

if TYPE_CHECKING:
    from gateway.fleet.join_file import JoinWish

TRIES = 3
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def wish_of(
    config: Path,
    known: str,
    token: str | None,
    *,
    site: str | None,
    master: list[str] | None,
    key: list[str] | None,
    fleet: str | None,
    broker_host: str | None,
) -> JoinWish:
    """The wish that options say. Raises ``UsageInvalid``."""
    if not (site or known):
        raise UsageInvalid(
            "this gateway has no name yet",
            error_id="join.no_name",
            where=str(config),
            allowed="--site NAME, the name of its site",
            hint="outstation gateway join … --site lisbon",
        )
    masters, keys = master or [], key or []
    if len(masters) != len(keys):
        raise UsageInvalid(
            "each --master needs its --key",
            found=f"{len(masters)} × --master, {len(keys)} × --key",
            allowed="as many of one as of the other, in the same order",
            hint="outstation keys list, on the master, shows its key",
        )
    return checked(
        {
            "site": site or known,
            "token": token.strip() if token is not None else None,
            "masters": [{"address": at, "key": word} for at, word in zip(masters, keys, strict=True)],
            "fleet": fleet,
            "broker": {"host": broker_host},
        }
    )


def checked(said: dict[str, Any]) -> JoinWish:
    """What was said as a wish. Raises ``UsageInvalid`` with the field that is wrong."""
    import msgspec

    from gateway.fleet.join_file import JoinWish

    try:
        return msgspec.convert({name: value for name, value in said.items() if value is not None}, JoinWish)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        raise UsageInvalid(
            "with this no gateway can join",
            error_id="join.bad_wish",
            where=place.rstrip("`") or None,
            found=what,
            allowed="a site's name of letters, digits, _ . -; the whole token of `outstation sites token`; a master as"
            " tcp://HOST:PORT with its key of 40 characters",
            hint="outstation gateway join, on a terminal, asks for one after the other",
        ) from None


def asked(known: str, broker_host: str | None) -> JoinWish:
    """The wish of who sits at the terminal. Raises ``UsageInvalid`` after some attempts, and ``typer.Abort``."""
    for attempt in range(TRIES):
        site = known or typer.prompt(
            "Name of this site", default=NOT_IN_A_NAME.sub("-", socket.gethostname()), err=True
        )
        word = typer.prompt("Token of the master (`outstation sites token` there), or its tcp://HOST:PORT", err=True)
        said: dict[str, Any] = {"site": site.strip(), "broker": {"host": broker_host}}
        if word.strip().startswith("tcp://"):
            key = typer.prompt("Key of that master (`outstation keys list` there)", err=True)
            said["masters"] = [{"address": word.strip(), "key": key.strip()}]
        else:
            said["token"] = word.strip()
        try:
            return checked(said)
        except UsageInvalid as wrong:
            if attempt == TRIES - 1:
                raise
            typer.echo(str(wrong), err=True)
    raise AssertionError("the last attempt has returned or raised")
