"""Calls of the functions that no other list has: what they do ends a machine, or takes what no test machine has."""

from __future__ import annotations

from tests.peers.function_story import Sh, Step, Story

STUBS = (
    "for name in halt poweroff shutdown init telinit; do for folder in /sbin /usr/sbin; do [ -d $folder ] || continue; "
    "rm -f $folder/$name; printf '#!/bin/sh\\necho \"$0 $*\" >>/tmp/ended\\n' >$folder/$name; "
    "chmod 755 $folder/$name; done; done"
)

STORIES = (
    Story(
        "a machine is told to end",
        ("debian", "busybox", "busybox-ssh"),
        (
            Sh(STUBS),
            Step("system.halt"),
            Step("system.poweroff"),
            Step("system.shutdown"),
            Step("system.set_system_date_time", (), {"months": 13}, outcome="failed"),
            Step("system.has_settable_hwclock"),
            Step("shadow.default_hash"),
        ),
    ),
    Story(
        "what takes a systemd that runs says that there is none",
        ("debian",),
        (
            Step("ssh.recv_known_host_entries", ("127.0.0.1",), {"port": 1}, value=None),
            Step("pkg.available_version", ("nothing-such",), value=""),
            Step("service.show", ("nothing-such",), outcome="failed"),
            Step("service.systemctl_reload", outcome="failed"),
        ),
    ),
    Story(
        "a user has telephones",
        ("debian",),
        (
            Step("user.add", ("tech", 1500), value=True),
            Step("user.chworkphone", ("tech", "12"), value=True),
            Step("user.chhomephone", ("tech", "34"), value=True),
        ),
    ),
)
