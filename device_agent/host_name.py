"""The name of a host: what it is, and another one in its place, now and for its next start."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from device_agent import text_files
from device_agent.commands import NotOver, do, shell
from device_agent.ended import FunctionFailed
from device_agent.file_changes import changing
from device_agent.host import Host
from device_agent.hosts_file import renamed
from device_agent.links import interfaces_of

PATTERN = r"^[0-9A-Za-z]([0-9A-Za-z.-]{0,62}[0-9A-Za-z])?$(?!\n)"
HostName = Annotated[str, Meta(pattern=PATTERN)]
"""What a host can be called: the kernel takes no more than 64 characters."""

HOSTS = "/etc/hosts"
HOSTNAME = "/etc/hostname"
SET_SECONDS = 60.0
"""How long the command that sets the name may take. hostnamectl itself waits 25 seconds for an answer."""

_SET = """
if [ -d /run/systemd/system ] && command -v hostnamectl >/dev/null 2>&1; then
  hostnamectl set-hostname "$1" || hostname "$1"
elif command -v uci >/dev/null 2>&1; then
  uci set system.@system[0].hostname="$1" && uci commit system && hostname "$1"
else hostname "$1"; fi
"""


async def name_of(host: Host) -> str:
    """What a host is called now."""
    return (await do(host, "uname", "-n")).out.strip()


async def rename(host: Host, name: str) -> None:
    """Call a host otherwise, now and for its next start, and in /etc/hosts beside its address.

    The files come first, since they are what can fail. When a step fails or the command takes too long, what was done
    is undone. A job that is stopped between two steps undoes nothing: to call this again completes the change.
    """
    before = await name_of(host)
    addresses = await _addresses(host)
    async with changing(host, HOSTS):
        hosts = await text_files.read_if_there(host, HOSTS)
        wanted: list[tuple[str, str | None, str]] = [(HOSTS, hosts, renamed(hosts, before, name, addresses))]
        known = await host.stat(HOSTNAME)
        if known is not None or await host.stat("/etc/config/system") is None:
            wanted.append((HOSTNAME, await text_files.read(host, HOSTNAME) if known else None, f"{name}\n"))
        done: list[tuple[str, str | None]] = []
        try:
            for path, old, new in wanted:
                if old != new:
                    done.append((path, old))
                    await text_files.write(host, path, new)
            await _set(host, name)
        except (OSError, FunctionFailed) as error:
            await _undo(host, before, done, error)
            raise


async def _set(host: Host, name: str) -> None:
    try:
        (await shell(host, _SET, name, timeout=SET_SECONDS)).must()
    except NotOver:
        raise FunctionFailed(f"the device did not set the name {name!r} within {SET_SECONDS:g} seconds") from None


async def _undo(host: Host, before: str, done: list[tuple[str, str | None]], error: OSError | FunctionFailed) -> None:
    """Have the old name again. Raises ``FunctionFailed`` with what cannot be put back."""
    left = []
    for path, old in reversed(done):
        try:
            if old is not None:
                if await text_files.read(host, path) != old:
                    await text_files.write(host, path, old)
            elif await host.stat(path) is not None:
                await host.remove(path)
        except (OSError, FunctionFailed) as refused:
            left.append(f"{path}: {refused}")
    try:
        if await name_of(host) != before:
            await _set(host, before)
    except FunctionFailed as refused:
        left.append(f"the name: {refused}")
    if left:
        raise FunctionFailed(f"{error}; and the old name {before!r} cannot be put back in {'; '.join(left)}") from error


async def _addresses(host: Host) -> set[str]:
    """The addresses that the host has now."""
    return {address.address for each in (await interfaces_of(host)).values() for address in each.addresses}
