"""The one script that a machine is asked for its facts with: POSIX shell, and tools that BusyBox has too.

Each part of its answer begins with a line ``%%name``. What is not there leaves its part empty. It asks no name server
and no other machine, so that a broken network cannot hold it up.
"""

from __future__ import annotations

import shlex

from device_agent import system_text

SECTION = "%%"
CUSTOM_FILE_BYTES = 32_768
"""What is read of the file of a device's own grains."""

_SCRIPT = r"""
echo '%%env'
echo "PATH=$PATH"; echo "SHELL=$SHELL"; echo "LANG=$LANG"; echo "LC_ALL=$LC_ALL"
PATH="$PATH:/usr/sbin:/sbin:/usr/bin:/bin"; LC_ALL=C; export PATH LC_ALL
part() { echo; echo "%%$1"; }
have() { command -v "$1" >/dev/null 2>&1; }
first() { for f; do if [ -r "$f" ]; then head -n 300 "$f"; return; fi; done; }
lines() { for f; do if [ -r "$f" ]; then printf '%s=' "${f##*/}"; head -n 1 "$f" | tr -d '\000'; echo; fi; done; }
exec 2>/dev/null
part uname; uname -s; uname -r; uname -v; uname -m; uname -n
part release; first /etc/os-release /usr/lib/os-release
part openwrt; first /etc/openwrt_release
part cpu; sed -n '/^$/q;p' /proc/cpuinfo; grep -i '^\(hardware\|serial\|model\)[[:space:]]*:' /proc/cpuinfo | head -n 8
part cpus; grep -c '^processor' /proc/cpuinfo
part mem; grep '^\(MemTotal\|SwapTotal\):' /proc/meminfo
part cmdline; head -n 1 /proc/cmdline
part boot; first /proc/sys/kernel/random/boot_id
part machine; first /etc/machine-id /var/lib/dbus/machine-id
cd /sys/class/dmi/id && { part dmi; lines product_name product_serial product_uuid sys_vendor bios_version bios_date \
board_name board_serial board_vendor; }
cd /proc/device-tree && { part tree; lines serial-number model; }
cd /
part hosts; first /etc/hosts
part resolv; first /etc/resolv.conf
part links; if have ip; then ip -o link | head -n 256; fi
part addresses; if have ip; then ip -o addr | head -n 512; fi
part ifconfig; if have ip; then :; else ifconfig -a | head -n 1024; fi
part order; dd if=/proc/self/exe bs=1 skip=5 count=1
part route; head -n 256 /proc/net/route
part route6; grep '^0\{32\} 00 ' /proc/net/ipv6_route | head -n 32
part init; readlink /proc/1/exe; head -n 1 /proc/1/comm; if [ -d /run/systemd/system ]; then echo systemd; fi
part container; first /run/systemd/container; if [ -e /.dockerenv ]; then echo docker; fi
part container1; tr '\000' '\n' </proc/1/environ | sed -n 's/^container=//p'
part hypervisor; first /sys/hypervisor/type
part disks; cd /sys/block && for d in *; do case "$(readlink "$d")" in */virtual/*) ;; *) \
if [ -r "$d/queue/rotational" ]; then echo "$d $(head -n 1 "$d/queue/rotational")"; fi;; esac; done | head -n 128
cd /
part user; id -u; id -g; id -un; id -gn
part systemd; if [ -d /run/systemd/system ] || have systemctl; then systemctl --version | head -n 2; fi
part arch; if have dpkg; then dpkg --print-architecture; elif have apk; then apk --print-arch; \
elif have opkg; then opkg print-architecture; elif have rpm; then rpm --eval '%{_host_cpu}'; fi
part python; for p in python3 python; do if have $p; then $p -V 2>&1; break; fi; done
part locale; first /etc/default/locale /etc/locale.conf
part zone; date +%Z; head -n 1 /etc/timezone; readlink /etc/localtime
part firmware; if [ -d /sys/firmware/efi ]; then echo efi; fi; if [ -d /sys/fs/selinux ]; then echo selinux; fi
first /sys/fs/selinux/enforce
part ps; p=$(command -v ps); case "$p" in /*) readlink "$p";; *) echo "busybox $p";; esac
part custom; if [ -r GRAINS ]; then dd if=GRAINS bs=LIMIT count=1; fi
part end
"""


def script(grains_file: str) -> str:
    """The script for a machine whose own grains are in this file."""
    return _SCRIPT.replace("LIMIT", str(CUSTOM_FILE_BYTES)).replace("GRAINS", shlex.quote(grains_file))


def sections(text: str) -> dict[str, str]:
    """The parts of the answer by name; the part ``custom`` is whatever its file holds."""
    answer, _, custom = text.partition(f"\n{SECTION}custom\n")
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in system_text.lines(answer):
        if line.startswith(SECTION):
            lines = found.setdefault(line.removeprefix(SECTION), [])
        else:
            lines.append(line)
    body, mark, _ = custom.rpartition(f"\n{SECTION}end")
    parts = {name: "\n".join(kept).strip("\n") for name, kept in found.items()}
    return parts | ({"custom": body, "end": ""} if mark else {})
