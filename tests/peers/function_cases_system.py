"""What system, cron, sysctl, timezone and mount must do, on a machine to throw away."""

from __future__ import annotations

import re
from typing import Any

from tests.peers.function_story import Sh, Step, Story

BOTH = ("debian", "busybox")
TAG = "# Lines below here are managed by Salt, do not edit"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
FORWARD = "net.ipv4.ip_forward"
NO_SYSTEMD = "rm -f /usr/bin/timedatectl /usr/bin/hostnamectl"
"""So that Salt does not ask a systemd that does not run."""


def like(pattern: str) -> Any:
    """A check of a text."""
    return lambda found: re.fullmatch(pattern, found) is not None


def job(**fields: Any) -> dict[str, Any]:
    """A command of a crontab."""
    times = {"minute": "*", "hour": "*", "daymonth": "*", "month": "*", "dayweek": "*"}
    return {**times, "identifier": None, "comment": None, "commented": False, **fields}


STORIES = (
    Story(
        "a crontab of Salt is understood and left so that Salt understands it",
        ("busybox", "busybox-ssh"),
        (
            Sh("rm -rf /var/spool/cron"),
            Step(
                "cron.set_job",
                ("root", "*", "*", "*", "*", "*", "true"),
                {"identifier": "a\n* * * * * reboot"},
                outcome="failed",
                why="an identifier is one line",
                salt="no",
            ),
            Step("cron.raw_cron", ("root",), value=""),
            Sh("mkdir -p /var/spool/cron/crontabs"),
            Step("cron.list_tab", ("root",), value={"pre": [], "crons": [], "special": [], "env": []}),
            Step("cron.ls", ("root",), value={"pre": [], "crons": [], "special": [], "env": []}),
            Sh(
                "printf '# own\\n0 1 * * * own  job\\n" + TAG + "\\nMAILTO=a@b\\n# why SALT_CRON_IDENTIFIER:one\\n"
                "*/5 * * * * echo  one\\n#DISABLED#1 2 3 4 5 off\\n@daily sweep\\n' | crontab -"
            ),
            Step(
                "cron.list_tab",
                ("root",),
                value={
                    "pre": ["# own", "0 1 * * * own  job"],
                    "crons": [
                        job(minute="*/5", cmd="echo  one", identifier="one", comment="why"),
                        job(minute="1", hour="2", daymonth="3", month="4", dayweek="5", cmd="off", commented=True),
                    ],
                    "special": [
                        {"spec": "@daily", "cmd": "sweep", "identifier": None, "comment": None, "commented": False}
                    ],
                    "env": [{"name": "MAILTO", "value": "a@b"}],
                },
            ),
            Step(
                "cron.set_job", ("root", "*/5", "*", "*", "*", "*", "echo  one"), {"identifier": "one"}, value="present"
            ),
            Step("cron.set_job", ("root", "*/6", "*", "*", "*", "*", "echo 1"), {"identifier": "one"}, value="updated"),
            Step("cron.set_job", ("root", 7, "random", "*", "*", "*", "new % it's"), value="new"),
            Step("cron.set_job", ("root", 7, "random", "*", "*", "*", "new % it's"), value="present", salt="differs"),
            Step(
                "cron.get_entry",
                ("root", "one"),
                value=job(minute="*/6", cmd="echo 1", identifier="one", comment="why"),
            ),
            Step("cron.get_entry", ("root", "two"), value=False),
            Step("cron.set_special", ("root", "@hourly", "sweep"), value="updated"),
            Step("cron.set_special", ("root", "@reboot", "hello"), {"comment": "a\nb", "identifier": "h"}, value="new"),
            Step("cron.set_special", ("root", "soon", "x"), outcome="failed", why="no special time", salt="no"),
            Step(
                "cron.set_job", ("root", "* *", "*", "*", "*", "*", "x"), outcome="failed", why="is no time", salt="no"
            ),
            Step(
                "cron.set_job", ("root", "*", "*", "*", "*", "*", "a\nb"), outcome="failed", why="one line", salt="no"
            ),
            Step("cron.set_env", ("root", "MAILTO", "a@b"), value="present"),
            Step("cron.set_env", ("root", "MAILTO", ""), value="updated"),
            Step("cron.set_env", ("root", "A", "b c"), value="new"),
            Step("cron.rm_env", ("root", "A"), value="removed"),
            Step("cron.rm_env", ("root", "A"), value="absent"),
            Step("cron.rm_job", ("root", "off", 9), value="absent"),
            Step("cron.rm", ("root", "off", 9), value="absent"),
            Step("cron.rm_job", ("root", "off", 1), value="removed"),
            Step("cron.rm_job", ("root", "new % it's"), value="removed"),
            Step("cron.rm_special", ("root", "sweep", "@daily"), value="absent"),
            Step("cron.rm_special", ("root", "sweep"), value="removed"),
            Step(
                "cron.raw_cron",
                ("root",),
                value=f'# own\n0 1 * * * own  job\n{TAG}\nMAILTO=""\n# why SALT_CRON_IDENTIFIER:one\n'
                "*/6 * * * * echo 1\n# a\n# b SALT_CRON_IDENTIFIER:h\n@reboot hello\n",
            ),
            Step("cron.rm_special", ("root", "", None, "h"), value="removed"),
            Sh("echo '5 5 * * * whole' >/tmp/tab"),
            Step("cron.write_cron_file", ("root", "/tmp/tab"), value=True),
            Step("cron.raw_cron", ("root",), value="5 5 * * * whole\n"),
            Step("cron.write_cron_file", ("root", "/tmp/nothing"), value=False, outcome="failed"),
            Step("cron.write_cron_file_verbose", ("root", "/tmp/tab"), value=lambda found: found["retcode"] == 0),
            Step("cron.raw_cron", ("nobody at all",), outcome="failed", why="nobody at all", salt="differs"),
        ),
        salt="ln -sf $(command -v busybox) /usr/bin/crontab",
    ),
    Story(
        "a parameter of the kernel is set and kept",
        BOTH,
        (
            Sh("rm -rf /etc/sysctl.conf /run/systemd"),
            Step("sysctl.default_config", value="/etc/sysctl.conf"),
            Step("sysctl.get", (FORWARD,), value="0"),
            Step("sysctl.get", (f"{FORWARD}=1",), outcome="failed", why="would set it", salt="no"),
            Step("sysctl.get", (FORWARD,), value="0"),
            Step("sysctl.assign", (FORWARD, 1), value={FORWARD: "1"}),
            Step("sysctl.assign", (FORWARD, "much"), outcome="failed"),
            Step("sysctl.assign", ("net.nothing.such", 1), outcome="failed", why="no parameter"),
            Step("sysctl.show", value=lambda found: found[FORWARD] == "1", salt="shape"),
            Step("sysctl.persist", (FORWARD, 0), value="Updated"),
            Step("sysctl.persist", (FORWARD, 0), value="Already set"),
            Sh(
                "cat /etc/sysctl.conf; cat /proc/sys/net/ipv4/ip_forward",
                f"#\n# Kernel sysctl configuration\n#\n{FORWARD} = 0\n0",
            ),
            Sh(f"echo 1 >/proc/sys/net/ipv4/ip_forward; printf 'a.b=1\\n{FORWARD}=1\\n' >/etc/sysctl.conf"),
            Step("sysctl.persist", (FORWARD, 0), value="Updated"),
            Step("sysctl.show", ("/etc/sysctl.conf",), value={"a.b": "1", FORWARD: "0"}),
            Step("sysctl.persist", ("net.nothing.such", 0), outcome="failed"),
            Sh("grep -c nothing /etc/sysctl.conf || :", "0", salt=False),
        ),
    ),
    Story(
        "a file system is mounted, now and later",
        BOTH,
        (
            Sh("printf '# mine\\n/dev/sda1 / ext4 defaults 0 1\\n' >/etc/fstab"),
            Step(
                "mount.fstab",
                value={"/": {"device": "/dev/sda1", "fstype": "ext4", "opts": ["defaults"], "dump": "0", "pass": "1"}},
            ),
            Step("mount.set_fstab", ("/mnt/ab", "tmpfs", "tmpfs"), {"opts": ["size=1m", "ro"]}, value="new"),
            Step("mount.set_fstab", ("/mnt/ab", "tmpfs", "tmpfs"), {"opts": "size=1m,ro"}, value="present"),
            Step("mount.set_fstab", ("/mnt/ab", "tmpfs", "tmpfs"), {"opts": "size=2m"}, value="change"),
            Step("mount.set_fstab", ("/", "/dev/sda1", "ext4"), {"not_change": True}, value="present"),
            Step("mount.set_fstab", ("/", "/dev/sda1", "xfs"), {"test": True}, value="change"),
            Sh("tail -n 1 /etc/fstab", "tmpfs\t/mnt/ab\ttmpfs\tsize=2m\t0\t0", salt=False),
            Step("mount.mount", ("/mnt/ab", "tmpfs", True, "tmpfs", "size=1m"), value=True),
            Step("mount.is_mounted", ("/mnt/ab",), value=True),
            Step("mount.active", value=lambda found: found["/mnt/ab"]["fstype"] == "tmpfs"),
            Step("mount.active", (True,), value=lambda found: found["/mnt/ab"]["fstype"] == "tmpfs", salt="shape"),
            Step("mount.remount", ("/mnt/ab", "tmpfs"), {"opts": "ro"}, value=True),
            Step("mount.active", value=lambda found: "ro" in found["/mnt/ab"]["opts"]),
            Step("mount.umount", ("/mnt/ab",), value=True),
            Step("mount.umount", ("/mnt/ab",), outcome="failed", value="/mnt/ab does not have anything mounted"),
            Step("mount.mount", ("/mnt/ab", "/dev/nothing"), {"fstype": "ext4"}, outcome="failed"),
            Step("mount.rm_fstab", ("/mnt/ab", "tmpfs"), value=True),
            Sh("cat /etc/fstab", "# mine\n/dev/sda1 / ext4 defaults 0 1"),
            Step("mount.swaps", value=lambda found: isinstance(found, dict)),
        ),
    ),
    Story(
        "a file system is mounted where there is a blank in the name",
        BOTH,
        (
            Sh("echo >/etc/fstab"),
            Step("mount.set_fstab", ("/mnt/a b", "tmpfs", "tmpfs"), {"opts": "size=1m"}, value="new"),
            Step("mount.set_fstab", ("/mnt/a b", "tmpfs", "tmpfs"), {"opts": "size=2m"}, value="change"),
            Sh("tail -n 1 /etc/fstab", "tmpfs\t/mnt/a\\040b\ttmpfs\tsize=2m\t0\t0"),
            Step("mount.mount", ("/mnt/a b", "tmpfs", True, "tmpfs", "size=1m"), value=True),
            Step("mount.is_mounted", ("/mnt/a b",), value=True),
            Step("mount.umount", ("/mnt/a b",), value=True),
            Step("mount.rm_fstab", ("/mnt/a b", "tmpfs"), value=True),
        ),
        salt=None,
    ),
    Story(
        "a time zone is set by its name",
        ("debian",),
        (
            Sh("ln -sf /usr/share/zoneinfo/Etc/UTC /etc/localtime; echo Etc/UTC >/etc/timezone"),
            Step("timezone.get_zone", value="Etc/UTC"),
            Step("timezone.get_offset", value="+0000"),
            Step("timezone.set_zone", ("Asia/Kolkata",), value=True),
            Step("timezone.get_zone", value="Asia/Kolkata"),
            Step("timezone.get_offset", value="+0530"),
            Step("timezone.get_zonecode", value="IST"),
            Sh("cat /etc/timezone", "Asia/Kolkata"),
            Step("timezone.zone_compare", ("Asia/Kolkata",), value=True),
            Step("timezone.zone_compare", ("Asia/Calcutta",), value=False),
            Step("timezone.zone_compare", ("Europe/Berlin",), value=False),
            Step("timezone.set_zone", ("Nowhere/Land",), outcome="failed", why="Zone does not exist"),
            Step("timezone.set_zone", ("../../../etc/passwd",), outcome="failed", why="Zone does not exist", salt="no"),
            Step("timezone.set_hwclock", ("localtime",), value=True),
            Step("timezone.get_hwclock", value="localtime"),
            Step("timezone.set_hwclock", ("UTC",), value=True),
            Step("timezone.get_hwclock", value="UTC"),
            Step("timezone.set_hwclock", ("moon",), value=False, outcome="failed", salt="no"),
        ),
        salt=f"{NO_SYSTEMD}; echo UTC=yes >/etc/default/rcS",
    ),
    Story(
        "a time zone is set by its rule where there are no names",
        ("busybox", "busybox-ssh"),
        (
            Step("timezone.get_zone", value="UTC"),
            Step("timezone.set_zone", ("Europe/Berlin",), outcome="failed", why="no rule"),
            Step("timezone.set_zone", ("CET-1CEST,M3.5.0,M10.5.0/3",), value=True),
            Step("timezone.get_zone", value="CET-1CEST,M3.5.0,M10.5.0/3"),
        ),
    ),
    Story(
        "a device has a name, a description and a time",
        BOTH,
        (
            Sh("hostname throwaway; printf '127.0.0.1 localhost\\n127.0.1.1\\tthrowaway.lan throwaway\\n' >/etc/hosts"),
            Step("system.get_computer_name", value="throwaway"),
            Step("system.set_computer_name", ("dock-7",), value=True),
            Step("system.get_computer_name", value="dock-7"),
            Sh("cat /etc/hostname; tail -n 1 /etc/hosts", "dock-7\n127.0.1.1\tthrowaway.lan dock-7", salt=False),
            Step("system.set_computer_name", ("-x; id",), value=False, outcome="failed", why="no host name", salt="no"),
            Sh("rm -f /etc/machine-info"),
            Step("system.get_computer_desc", value=False),
            Step("system.set_computer_desc", ('It\'s "the" $dock \\ 7',), value=True),
            Step("system.get_computer_desc", value='It\'s "the" $dock \\ 7'),
            Sh('. /etc/machine-info; echo "$PRETTY_HOSTNAME"', 'It\'s "the" $dock \\ 7', salt=False),
            Step("system.get_system_time", value=like(r"[01]\d:[0-5]\d:[0-5]\d [AP]M")),
            Step("system.get_system_date", ("+0900",), value=like(r"[A-Z][a-z]{2} \d\d/\d\d/\d{4}")),
            Step("system.get_system_date_time", ("-0600",), value=like(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")),
            Step("system.get_system_time", ("far",), outcome="failed", why="no offset"),
            Step("system.set_system_time", ("noon",), value=False, outcome="failed", why="cannot be read"),
            Step("system.set_system_date", ("2026-02-30",), outcome="failed", why="cannot be read"),
            Step("system.init", ("9",), outcome="failed", why="no runlevel", salt="no"),
            Step("system.shutdown", ("soon",), outcome="failed", why="no time", salt="no"),
        ),
        salt=NO_SYSTEMD,
    ),
    Story(
        "a restart is over when the device is there with another boot id",
        ("debian", "busybox-full"),
        (
            Sh(f"echo before >/tmp/boot_id; mount --bind /tmp/boot_id {BOOT_ID}"),
            Sh(
                "for folder in /sbin /usr/sbin; do rm -f $folder/reboot; "
                "printf '#!/bin/sh\\necho after >/tmp/boot_id\\n' >$folder/reboot; chmod 755 $folder/reboot; done"
            ),
            Step("system.reboot", (), {"wait": 20}, value={"boot_id": "after", "before": "before"}),
            Sh("printf '#!/bin/sh\\nexit 0\\n' >$(command -v reboot || echo /sbin/reboot)"),
            Step(
                "system.reboot",
                (),
                {"wait": 2},
                outcome="timed_out",
                why="did not restart within 2 s",
                value={"boot_id": "after", "before": "after"},
            ),
        ),
        salt=None,
    ),
)
