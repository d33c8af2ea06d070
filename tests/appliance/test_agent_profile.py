"""Every privileged function works under the profile of the agent's unit, as the package installs it; docs/agent.md."""

from __future__ import annotations

import json

from tests.peers.agent_machines import AGENT, Pair, make_pair
from tests.peers.appliance import packages
from tests.peers.machine_roots import CAMERA, Recipe
from tests.peers.machines import TestBed

MANAGED = Recipe((*CAMERA.packages, "cron", "iputils-ping", "util-linux", "tzdata", "sudo"))
"""A camera with what its functions manage."""

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIJ0NYJ4X0VvB1m2X6p0c2mJ3mB2j0u8mJt0o4e7pQm3T"
HOME = "/root"
"""Of the superuser, where an agent may write as well."""

PACKAGE = """set -e
mkdir -p /srv/toy/DEBIAN /srv/toy/usr/bin
printf 'Package: toy\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: a <a@example.org>\\nDescription: a toy\\n' \\
    >/srv/toy/DEBIAN/control
printf '#!/bin/sh\\necho toy\\n' >/srv/toy/usr/bin/toy
chmod 4755 /srv/toy/usr/bin/toy
dpkg-deb --build --root-owner-group /srv/toy /srv/toy.deb
"""

CLOSED = "CAP_SYS_MODULE CAP_SYS_RAWIO CAP_BPF CAP_PERFMON CAP_MAC_ADMIN CAP_MAC_OVERRIDE".lower().split()


async def test_what_manages_a_device_works_under_the_profile(bed: TestBed) -> None:
    pair = await make_pair(bed, packages("outstation-agent")[1], MANAGED)
    await accounts(pair)
    await files_and_packages(pair)
    await the_running_system(pair)
    await what_is_closed(pair)
    # As with a device of one's own: the machine ends, and comes back with the same agent.
    await pair.gateway.run("outstation", "run", "--detach", "cam-7", "system.reboot")
    assert await pair.camera.off() == 133
    await pair.camera.start()
    await pair.status("connected to ")
    assert await pair.call("test.ping") is True


async def accounts(pair: Pair) -> None:
    camera = pair.camera
    assert await pair.call("group.add", "video2", "3456") is True
    assert await pair.call("user.add", "tech", "3456", "groups=[video2]") is True
    assert await camera.said("id", "-nG", "tech") == "tech video2"
    assert await pair.call("shadow.set_password", "tech", "$6$salt$" + "a" * 86) is True
    assert (await camera.said("getent", "shadow", "tech")).split(":")[1].startswith("$6$salt$")
    assert await pair.call("ssh.set_auth_key", "tech", KEY, "ssh-ed25519") == "new"
    assert await camera.said("stat", "-c", "%U %a", "/home/tech/.ssh/authorized_keys") == "tech 600"
    assert await pair.call("cmd.run", "id -un", "runas=tech") == "tech"
    assert (await pair.call("cmd.run", "sudo -u tech id -un")).endswith("tech")
    assert await pair.call("cron.set_job", "root", "5", "4", "*", "*", "*", "/usr/bin/true") == "new"
    assert "/usr/bin/true" in await camera.said("crontab", "-l")
    assert await pair.call("user.delete", "tech", "remove=true") is True
    assert await pair.call("group.delete", "video2") is True


async def files_and_packages(pair: Pair) -> None:
    camera = pair.camera
    for path in ("/etc/motd.d/note", "/usr/local/bin/note", "/boot/note", "/var/lib/note", f"{HOME}/note", "/srv/note"):
        await pair.call("file.makedirs", path)
        await pair.call("file.write", path, "noted")
        assert await camera.read(path) == b"noted\n"
    assert await pair.call("file.set_mode", "/usr/local/bin/note", "4755") == "4755"
    await camera.sh(PACKAGE)
    changes = await pair.call("pkg.install", f"sources={json.dumps([{'toy': '/srv/toy.deb'}])}")
    assert changes == {"toy": {"old": "", "new": "1.0"}}
    assert await camera.said("stat", "-c", "%a", "/usr/bin/toy") == "4755"
    assert await pair.call("pkg.remove", "toy") == {"toy": {"old": "1.0", "new": ""}}


async def the_running_system(pair: Pair) -> None:
    camera = pair.camera
    for verb, state in (("stop", "inactive"), ("start", "active"), ("restart", "active")):
        assert await pair.call(f"service.{verb}", "cron") is True
        assert await camera.property_of("cron.service", "ActiveState") == state
    assert await pair.call("service.disable", "cron") is True
    assert await pair.call("service.enable", "cron") is True
    # A container's parameters are for reading alone; those of a device are not.
    await camera.run("mount", "-o", "remount,rw,bind", "/proc/sys")
    assert await pair.call("sysctl.assign", "net.ipv4.ip_forward", "1") == {"net.ipv4.ip_forward": "1"}
    assert await camera.said("sysctl", "-n", "net.ipv4.ip_forward") == "1"
    assert await pair.call("mount.mount", "/mnt", "tmpfs", "fstype=tmpfs") is True
    # By another service: it is the machine's mount, and none of the agent's own.
    assert await camera.said("findmnt", "-no", "FSTYPE", "/mnt") == "tmpfs"
    assert "/mnt" in await pair.call("disk.usage")
    assert await pair.call("mount.umount", "/mnt") is True
    assert await pair.call("timezone.set_zone", "Europe/Lisbon") is True
    assert (await camera.said("readlink", "/etc/localtime")).endswith("/Europe/Lisbon")
    assert await pair.call("network.ping", pair.gateway.address, "return_boolean=true") is True
    await camera.run("systemd-run", "--unit=idle", "sleep", "1000")
    idle = await camera.property_of("idle.service", "MainPID")
    assert await pair.call("ps.kill_pid", idle) is True
    assert await pair.call("network.mod_hostname", "door-7") is True
    assert await camera.said("hostname") == "door-7"


async def what_is_closed(pair: Pair) -> None:
    status = await pair.call("cmd.run", "cat /proc/self/status")
    assert "Seccomp:\t2" in status
    assert (await pair.call("cmd.run", "unshare --user true 2>/dev/null || echo closed")) == "closed"
    bounds = (await pair.camera.property_of(AGENT, "CapabilityBoundingSet")).split()
    assert not set(CLOSED) & set(bounds)
    assert {"cap_sys_admin", "cap_sys_time", "cap_net_admin", "cap_sys_boot", "cap_setuid"} <= set(bounds)
    assert await pair.camera.property_of(AGENT, "TasksMax") == "512"
