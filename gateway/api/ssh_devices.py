"""SSH devices in the API: what is known of them, their host keys, and what an operator changes. No secret is shown.

Each operation is plain JSON both ways, so that whatever reacts to an event can do what an operator does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import asyncssh

from device_agent.errors import NotFound, StationFailed, UsageInvalid
from device_agent.host_port import host_port
from gateway.api.operation import Answer, Asked, Handler, Operation, whole
from gateway.api.ssh_requests import KeyWish, RemovalWish, ScanWish, SshWishes
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.devices.enrollment_journal import Asker
from gateway.devices.ssh_book import SshBook, Wanted
from gateway.devices.ssh_keys import key_problem
from gateway.devices.ssh_wish import FINGERPRINT_WORDS, Fault, Judge, SshWish, is_fingerprint, is_host
from gateway.downlinks.ssh_scan import HostKey, ScanFailed, scan

PAGE = 1000

Tunnel = Callable[[str], AbstractAsyncContextManager[asyncssh.SSHClientConnection]]
"""A connection to an SSH device by its name, through which others are reached."""


class SshDevicesApi:
    """Operations on SSH devices. Without a ``book`` the station has none. ``tunnel`` leads through jump hosts."""

    def __init__(self, *, book: SshBook | None, audit: AuditBook, tunnel: Tunnel | None = None) -> None:
        self._book = book
        self._audit = audit
        self._tunnel = tunnel

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation(
                "GET",
                "/ssh-devices",
                "SSH devices by name, without their secrets",
                self._list,
                query={
                    "limit": f"at most so many, up to {PAGE}; default {PAGE}",
                    "after": "the cursor of the page before",
                },
            ),
            Operation("GET", "/ssh-devices/{name}", "One SSH device", self._show),
            _change("/ssh-devices", "Add SSH devices, or change known ones", self._put, "devices.add", SshWishes),
            _change("/ssh-devices/scan", "The host keys of an SSH server", self._scan, "devices.scan", ScanWish),
            _change(
                "/ssh-devices/{name}/key",
                "The host keys that are pinned and those the device has now; or accept another one",
                self._key,
                "devices.key",
                KeyWish,
            ),
            _change("/ssh-devices/{name}/remove", "Put an SSH device out", self._remove, "devices.remove", RemovalWish),
        ]

    # --- looking ---------------------------------------------------------------------------------------------------

    async def _list(self, asked: Asked) -> Answer:
        limit, after = whole(asked, "limit", PAGE, PAGE), asked.query.get("after", "")
        found = sorted((each for each in self._here().all() if each.name > after), key=lambda each: each.name)
        page = found[:limit]
        more = page[-1].name if page and len(found) > len(page) else None
        return {"devices": [each.view() for each in page], "next": more}

    async def _show(self, asked: Asked) -> Answer:
        return self._known(asked.path["name"])

    async def _scan(self, asked: Asked) -> Answer:
        wanted: ScanWish = asked.body
        self._here()
        if not is_host(wanted.host):
            raise UsageInvalid(
                "no device can be there",
                where="host",
                found=wanted.host[:80],
                allowed="an IPv4 or IPv6 address, or a host name",
            )
        await self._audit.write([_deed(asked, "devices.scan", f"ssh {host_port(wanted.host, wanted.port)}")])
        return {"keys": _views(await self._scanned(wanted.host, wanted.port, wanted.jump, wanted.seconds))}

    async def _scanned(self, host: str, port: int, jump: str, seconds: float) -> list[HostKey]:
        if not jump:
            return await scan(host, port, seconds=seconds)
        self._known(jump)
        if self._tunnel is None:
            raise StationFailed(
                f"nothing is asked through {jump}: this station connects to no jump hosts",
                error_id="ssh.no_tunnel",
                hint="give the fingerprint: --fingerprint SHA256:…",
            )
        try:
            async with asyncio.timeout(seconds), self._tunnel(jump) as connection:
                return await scan(host, port, tunnel=connection, seconds=seconds)
        except TimeoutError:
            raise ScanFailed(f"no host key was heard through {jump} within {seconds:g} seconds") from None

    # --- changing --------------------------------------------------------------------------------------------------

    async def _put(self, asked: Asked) -> Answer:
        wanted: SshWishes = asked.body
        book = self._here()
        problems = await asyncio.to_thread(_problems, wanted.devices)
        judge = Judge(
            book.by_name,
            coming=wanted.coming,
            key_problem=lambda *key: problems[key],
            added_by=asked.operator.name,
            only=wanted.only,
        )
        good: list[Wanted] = []
        bad: list[Fault] = []
        for index, wish in enumerate(wanted.devices):
            match judge.judge(index, wish):
                case Fault() as fault:
                    bad.append(fault)
                case Wanted() as fine:
                    good.append(fine)
        found = book.sort(good)
        if wanted.only == "new" and found.changed:
            bad += [
                Fault(0, name, "name", "an SSH device of this name is known already", name, "outstation devices set")
                for name in found.changed
            ]
        room = book.room() if found.added else None
        done = not wanted.dry_run and (not bad or wanted.skip_bad)
        if done:
            found = await book.put(good, _asker(asked))
        return {
            "done": done,
            "added": found.added,
            "changed": found.changed,
            "left": found.left,
            "bad": bad,
            "room": room,
        }

    async def _key(self, asked: Asked) -> Answer:
        book, name, wanted = self._here(), asked.path["name"], asked.body
        device = self._known(name)
        shown: list[HostKey] = []
        silent = ""
        try:
            shown = await self._scanned(device["host"], device["port"], device["jump"], wanted.seconds)
        except StationFailed as error:
            silent = f"{error.what}: {error.found}" if error.found else error.what
        if wanted.accept is not None:
            fitting = [key for key in shown if key.fingerprint == wanted.accept]
            if shown and not fitting:
                raise UsageInvalid(
                    f"{name} has no such host key: it may be another device that pretends",
                    error_id="ssh.fingerprint_differs",
                    where="accept",
                    found=wanted.accept,
                    allowed=", ".join(key.fingerprint for key in shown),
                    hint=f"outstation devices key {name}",
                )
            if not fitting:
                check_fingerprint(wanted.accept)
            await book.accept_key(name, [wanted.accept], [key.line for key in fitting], _asker(asked))
        return {"device": self._known(name), "shown": _views(shown), "silent": silent}

    async def _remove(self, asked: Asked) -> Answer:
        return (await self._here().remove(asked.path["name"], asked.body.why, _asker(asked))).view()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _here(self) -> SshBook:
        if self._book is None:
            raise NotFound(
                "this station has no devices of its own, so none over SSH",
                error_id="ssh.no_devices",
                allowed="a gateway",
                hint="run it on the gateway that reaches these devices",
            )
        return self._book

    def _known(self, name: str) -> dict[str, Any]:
        device = self._here().by_name(name)
        if device is None:
            raise NotFound(
                f"no SSH device {name[:130]!r}",
                error_id="device.unknown",
                hint=f"outstation devices add {name} --ssh …",
            )
        return device.view()


def check_fingerprint(text: str) -> None:
    """Raises ``UsageInvalid`` for what is no fingerprint of a host key."""
    if not is_fingerprint(text):
        raise UsageInvalid(
            "this is no fingerprint of a host key", where="accept", found=text[:80], allowed=FINGERPRINT_WORDS
        )


def _problems(wishes: Sequence[SshWish]) -> dict[tuple[str, str, str], str]:
    """What is wrong with each private key; one that many devices share is looked at once."""
    keys = {(wish.private_key, wish.passphrase, wish.certificate) for wish in wishes if wish.private_key}
    return {key: key_problem(*key) for key in keys}


def _views(keys: Sequence[HostKey]) -> list[dict[str, str]]:
    return [{"kind": key.kind, "fingerprint": key.fingerprint, "line": key.line} for key in keys]


def _asker(asked: Asked) -> Asker:
    return Asker(asked.operator.name, asked.operator.door)


def _deed(asked: Asked, action: str, subject: str) -> Deed:
    return Deed(user=asked.operator.name, door=asked.operator.door, action=action, subject=subject, verdict="allow")


def _change(path: str, summary: str, handler: Handler, action: str, body: type[Any]) -> Operation:
    """What changes who belongs here, and what connects elsewhere: an admin's, with a row of its own in the audit."""
    return Operation("POST", path, summary, handler, body=body, needs="admin", action=action, own_row=True)
