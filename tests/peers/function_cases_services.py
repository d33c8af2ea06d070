"""What service.* must do with scripts, and with the files of systemd, on a machine to throw away."""

from __future__ import annotations

from tests.peers.function_story import Sh, Step, Story

SCRIPT = r"""mkdir -p /etc/init.d; cat >/etc/init.d/%s <<'END'
#!/bin/sh
### BEGIN INIT INFO
# Provides: toy
# Required-Start:
# Required-Stop:
# Default-Start: 2 3 4 5
# Default-Stop: 0 1 6
# Short-Description: a toy
### END INIT INFO
case "$1" in
    start) [ ! -e /tmp/broken ] || { echo 'it is broken' >&2; exit 7; }; touch /tmp/toy ;;
    stop) rm -f /tmp/toy ;;
    restart) rm -f /tmp/toy; touch /tmp/toy ;;
    reload) touch /tmp/reloaded ;;
    status) [ -e /tmp/toy ] ;;
esac
END
chmod 755 /etc/init.d/%s; [ -d /etc/rc2.d ] || [ ! -e /etc/debian_version ] || mkdir /etc/rc2.d"""

RUNNING = (
    Step("service.available", ("toy",), value=True),
    Step("service.missing", ("toy",), value=False),
    Step("service.missing", ("nothing-such",), value=True),
    Step("service.status", ("toy",), value=False),
    Step("service.start", ("toy",), value=True),
    Step("service.status", ("toy",), value=True),
    Step("service.status", ("to*",), value={"toy": True}),
    Step("service.reload", ("toy",), value=True),
    Step("service.restart", ("toy",), value=True),
    Step("service.force_reload", ("toy",), value=True),
    Sh("ls /tmp/toy /tmp/reloaded"),
    Step("service.get_running", value=lambda names: "toy" in names, salt="differs"),
    Step("service.stop", ("toy",), value=True),
    Step("service.status", ("toy",), value=False),
    Sh("touch /tmp/broken"),
    Step("service.start", ("toy",), value=False, outcome="failed", why="it is broken"),
    Step("service.stop", ("nothing-such",), value=False, outcome="failed", why="there is no service"),
    Step("service.start", ("../../tmp/x",), value=False, outcome="failed", why="there is no service"),
    Step("service.get_all", value=lambda names: "toy" in names and names == sorted(names)),
    Step("service.status", ("x", "service_cases_nowhere"), value=False),
)
STARTING = (
    Step("service.disable", ("toy",), value=True),
    Step("service.enabled", ("toy",), value=False),
    Step("service.disabled", ("toy",), value=True),
    Step("service.get_disabled", value=lambda names: "toy" in names),
    Step("service.enable", ("toy",), value=True),
    Step("service.enabled", ("toy",), value=True),
    Step("service.get_enabled", value=lambda names: "toy" in names),
    Step("service.get_disabled", value=lambda names: "toy" not in names),
)
UNIT = r"""printf '[Unit]\nDescription=toy\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n' \
    >/etc/systemd/system/outstation-toy.service"""
ROOT = {"root": "/"}
TOY = "outstation-toy"

STORIES = (
    Story(
        "a script of System V",
        ("debian",),
        (Sh(SCRIPT % ("toy", "toy")), *RUNNING, Sh("update-rc.d toy defaults"), *STARTING),
        # A command that Debian has no more, a machine that is up, and no name that Salt takes for a number.
        salt="ln -s /bin/true /usr/bin/insserv; rm -f /sbin/runlevel /etc/rcS.d/*x11*; "
        "printf '#!/bin/sh\\necho N 2\\n' >/sbin/runlevel; chmod 755 /sbin/runlevel",
    ),
    Story("a script of BusyBox", ("busybox", "busybox-ssh"), (Sh(SCRIPT % ("S40toy", "S40toy")), *RUNNING, *STARTING)),
    Story(
        "links are made by hand where nothing makes them",
        ("busybox", "busybox-ssh"),
        (Sh(SCRIPT % ("toy", "toy")), Sh("mkdir /etc/rc2.d /etc/rc3.d; touch /etc/rc3.d/K20toy"), *RUNNING, *STARTING),
    ),
    Story(
        "units of systemd in an image",
        ("debian",),
        (
            Sh(UNIT),
            Step("service.enabled", (TOY,), ROOT, value=False),
            Step("service.get_disabled", (), ROOT, value=lambda names: TOY in names),
            Step("service.enable", (TOY,), ROOT, value=True),
            Sh("readlink /etc/systemd/system/multi-user.target.wants/outstation-toy.service >&2"),
            Step("service.enabled", (TOY,), ROOT, value=True),
            Step("service.get_enabled", (), ROOT, value=lambda names: TOY in names),
            Step("service.get_all", (), ROOT, value=lambda names: {TOY, "multi-user.target"} <= set(names)),
            Step("service.get_static", (), ROOT, value=lambda names: TOY not in names and "emergency" in names),
            Step("service.disable", (TOY,), ROOT, value=True),
            Step("service.disabled", (TOY,), ROOT, value=True),
            Step("service.mask", (TOY,), {"root": "/"}, outcome="failed"),
            Sh("rm /etc/systemd/system/outstation-toy.service"),
            Step("service.mask", (TOY,), ROOT, value=True),
            Step("service.masked", (TOY,), ROOT, value=True),
            Step("service.unmask", (TOY,), ROOT, value=True),
            Step("service.masked", (TOY,), ROOT, value=False),
            Step("service.enable", ("nothing-such",), ROOT, outcome="failed", why="nothing-such"),
        ),
        # By this Salt knows systemd. What is in /etc/init.d it names beside the units, without any of systemd.
        salt="mkdir -p /run/systemd/system; rm -rf /etc/init.d",
    ),
    Story(
        "a device without services says so",
        ("busybox", "busybox-ssh"),
        (Sh("rm -rf /etc/init.d"), Step("service.get_all", outcome="failed", why="no init system that is known")),
    ),
)
