"""The name of a host: what it is, and another one in its place, now and for its next start."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from device_agent import text_files
from device_agent.commands import do, shell
from device_agent.file_changes import changing
from device_agent.host import Host
from device_agent.hosts_file import renamed
from device_agent.links import interfaces_of

PATTERN = r"^[0-9A-Za-z]([0-9A-Za-z.-]{0,62}[0-9A-Za-z])?$(?!\n)"
HostName = Annotated[str, Meta(pattern=PATTERN)]
"""What a host can be called: the kernel takes no more than 64 characters."""

HOSTS = "/etc/hosts"
_SET = """
if [ -d /run/systemd/system ] && command -v hostnamectl >/dev/null 2>&1; then
  hostnamectl set-hostname "$1"
elif command -v uci >/dev/null 2>&1; then
  uci set system.@system[0].hostname="$1" && uci commit system && hostname "$1"
else hostname "$1"; fi
"""


async def name_of(host: Host) -> str:
    """What a host is called now."""
    return (await do(host, "uname", "-n")).out.strip()


async def rename(host: Host, name: str) -> None:
    """Call a host otherwise, now and for its next start, and in /etc/hosts beside its address."""
    before = await name_of(host)
    (await shell(host, _SET, name)).must()
    if await host.stat("/etc/hostname") is not None or await host.stat("/etc/config/system") is None:
        await text_files.write(host, "/etc/hostname", f"{name}\n")
    addresses = await _addresses(host)
    async with changing(host, HOSTS):
        hosts = await text_files.read_if_there(host, HOSTS)
        changed = renamed(hosts, before, name, addresses)
        if changed != hosts:
            await text_files.write(host, HOSTS, changed)


async def _addresses(host: Host) -> set[str]:
    """The addresses that the host has now."""
    return {address.address for each in (await interfaces_of(host)).values() for address in each.addresses}
