"""Which programs and shells there are."""

from __future__ import annotations

from device_agent import system_text
from device_agent.command_call import Text
from device_agent.host import SHELL, Host

ON_THE_PATH = r"""
case $1 in
*/*) [ -f "$1" ] && [ -x "$1" ] && printf %s "$1"; exit ;;
esac
IFS=:
for folder in $PATH; do
  if [ -f "$folder/$1" ] && [ -x "$folder/$1" ]; then printf %s "$folder/$1"; exit 0; fi
done
exit 1
"""


async def which(host: Host, cmd: Text) -> str | None:
    """Return where a program is, or nothing when there is none.

    CLI Example:

        outstation run '*' cmd.which ffmpeg
    """
    found = await host.run([SHELL, "-c", ON_THE_PATH, SHELL, cmd])
    return found.stdout.decode(errors="replace") if found.returncode == 0 else None


async def which_bin(host: Host, cmds: list[str]) -> str | None:
    """Return where the first of these programs is that is there.

    CLI Example:

        outstation run '*' cmd.which_bin '[pacman, apt-get, opkg]'
    """
    for cmd in cmds:
        if cmd and (found := await which(host, cmd)):
            return found
    return None


async def has_exec(host: Host, cmd: Text) -> bool:
    """Return whether a program is there.

    CLI Example:

        outstation run '*' cmd.has_exec ffmpeg
    """
    return await which(host, cmd) is not None


async def shells(host: Host) -> list[str]:
    """Return the login shells that the device lists in ``/etc/shells``.

    CLI Example:

        outstation run '*' cmd.shells
    """
    try:
        lines = system_text.lines((await host.read("/etc/shells")).decode(errors="replace"))
    except FileNotFoundError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
