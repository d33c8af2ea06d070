"""What is left to be asked of stock Salt too, on Debian's machine: most of it with stand-ins for what is not in reach.

A machine to throw away cannot be stopped, has no clock of its own and no net beside it. Where a command would go there,
one that says what it was told stands in its place: what is compared is the command, and what is made of its words.
"""

from __future__ import annotations

from tests.peers.function_story import Sh, Step, Story

DEBIAN = ("debian",)
STANDS_IN = r"""stand_in() { for name in $1; do
    rm -f /bin/$name /sbin/$name; printf '#!/bin/sh\n%s\n' "$2" >/sbin/$name; chmod 755 /sbin/$name
done; }; """
ROUTE = """traceroute to dock.example (192.0.2.9), 30 hops max, 60 byte packets
 1  gate.example (192.0.2.1)  0.412 ms  0.380 ms  0.365 ms
 2  * * *
 3  dock.example (192.0.2.9)  1.204 ms  1.190 ms  1.180 ms"""

STORIES = (
    Story(
        "words that stop a device",
        DEBIAN,
        (
            Sh(f"{STANDS_IN} stand_in 'halt poweroff init shutdown reboot' 'exit 0'"),
            Step("system.halt", value=""),
            Step("system.poweroff", value=""),
            Step("system.shutdown", value=""),
            Step("system.shutdown", (5,), value=""),
            Step("system.init", ("3",), value=""),
        ),
    ),
    Story(
        "a clock is set as it is told",
        DEBIAN,
        (
            # Nothing in the machine can set this one's clock, for the right to it is taken away there.
            Sh(
                "mv /bin/date /bin/real-date; "
                + STANDS_IN
                + """stand_in date 'case "$*" in *+*) exec real-date "$@";; esac; echo set >>/tmp/set'"""
            ),
            Sh(f"{STANDS_IN} stand_in hwclock 'exit 1'"),
            Step("system.has_settable_hwclock", value=False),
            Step("system.set_system_time", ("11:20",), value=True),
            Step("system.set_system_date", ("2026-11-23",), value=True),
            Step("system.set_system_date_time", (2026, 11, 23, 15, 41, 7, "+0100"), value=True),
            Step("system.set_system_date_time", (2026, 2, 30), outcome="failed", why="no such date"),
            Sh("cat /tmp/set", "set\nset\nset"),
            Sh(f"{STANDS_IN} stand_in hwclock 'echo 2026-11-23'"),
            Step("system.has_settable_hwclock", value=True),
            Step("system.set_system_time", ("11:20:30 PM",), value=True),
        ),
    ),
    Story(
        "others are reached",
        DEBIAN,
        (
            Sh(STANDS_IN + """stand_in 'ping dig' 'echo "$@"'"""),
            Step("network.ping", ("dock.example",), value="-c 4 dock.example"),
            Step("network.ping", ("dock.example",), {"timeout": 3, "return_boolean": True}, value=True),
            Step("network.dig", ("dock.example",), value="dock.example"),
            Sh(f"{STANDS_IN} stand_in 'ping' 'exit 1'"),
            Step("network.ping", ("dock.example",), {"return_boolean": True}, value=False),
            Sh(
                f"{STANDS_IN} echo '{ROUTE}' >/tmp/route; echo 'Modern traceroute, version 2.1.2' >/tmp/version; "
                """stand_in traceroute 'case $1 in --version) cat /tmp/version;; *) cat /tmp/route;; esac'"""
            ),
            Step("network.traceroute", ("dock.example",), value=lambda hops: hops[1] == {"count": 2, "hostname": "*"}),
            Step("disk.fstype", ("/dev/no-such-device",), value=""),
        ),
    ),
    Story(
        "the keys of a server are asked for",
        DEBIAN,
        (
            Sh(
                "mkdir -p /run/sshd; ssh-keygen -q -t ed25519 -N '' -f /tmp/key </dev/null; "
                "/usr/sbin/sshd -f /dev/null -p 2222 -h /tmp/key </dev/null >/dev/null 2>&1"
            ),
            Step(
                "ssh.recv_known_host_entries",
                ("127.0.0.1",),
                {"port": 2222, "enc": "ed25519"},
                value=lambda found: [entry["enc"] for entry in found] == ["ssh-ed25519"],
                salt="shape",
            ),
        ),
    ),
    Story(
        "names and numbers that are seldom asked for",
        DEBIAN,
        (
            Sh("useradd -M tech"),
            Step("user.chhomephone", ("tech", "12"), value=True),
            Step("user.chworkphone", ("tech", "34"), value=True),
            Step("user.info", ("tech",), value=lambda found: (found["homephone"], found["workphone"]) == ("12", "34")),
            Step("shadow.default_hash", value="!"),
            Step("pkg.available_version", ("dpkg",), {"refresh": False}, value=lambda found: isinstance(found, str)),
            Sh("rm -f /usr/bin/hostnamectl; hostname throwaway; echo '127.0.0.1 throwaway localhost' >/etc/hosts"),
            Step("network.mod_hostname", ("dock-9",), value=True),
            Step("network.get_hostname", value="dock-9"),
        ),
    ),
)
