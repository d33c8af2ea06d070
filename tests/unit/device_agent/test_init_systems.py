"""device_agent/init_systems: what systemctl, rc-update and folders of scripts say, taken apart.

What OpenRC says was written down from its documentation and source; no Alpine was there to ask.
"""

from __future__ import annotations

from device_agent.init_systems import openrc, scripts, systemd


def test_systemd_lists_units_and_services_without_their_ending() -> None:
    listed = (
        "proc-sys-fs-binfmt_misc.automount  static          -\n"
        "dbus.service                       static          -\n"
        "getty@.service                     enabled         enabled\n"
        "ssh.service                        disabled        enabled\n"
        "ssh.socket                         disabled        enabled\n"
        "sshd.service                       alias           -\n"
        "user.slice                         static          -\n"
        "\n"
    )
    assert systemd.unit_files(listed) == {
        "proc-sys-fs-binfmt_misc.automount": "static",
        "dbus": "static",
        "getty@": "enabled",
        "ssh": "disabled",
        "ssh.socket": "disabled",
        "sshd": "alias",
    }


def test_systemd_shows_properties_some_of_which_have_parts() -> None:
    shown = (
        "Id=ssh.service\n"
        "ExecStart={ path=/usr/sbin/sshd ; argv[]=/usr/sbin/sshd -D $SSHD_OPTS ; ignore_errors=no ; pid=0 }\n"
        "After=network.target auditd.service\n"
        "Environment=A=b c=d\n"
        "a line of its own\n"
    )
    assert systemd.properties(shown) == {
        "Id": "ssh.service",
        "ExecStart": {
            "path": "/usr/sbin/sshd",
            "argv[]": "/usr/sbin/sshd -D $SSHD_OPTS",
            "ignore_errors": "no",
            "pid": "0",
        },
        "After": ["network.target", "auditd.service"],
        "Environment": "A=b c=d",
    }


def test_openrc_shows_which_services_are_in_a_runlevel() -> None:
    shown = "    crond |      default\n hwdrivers |               sysinit\n      sshd |\n"
    assert openrc.in_runlevels(shown) == {"crond": ["default"], "hwdrivers": ["sysinit"], "sshd": []}


def test_scripts_are_told_from_what_lies_beside_them() -> None:
    assert scripts.listed("+sshd\n-off\n+README\n+rcS\n+clock.sh\n+toy.bak\n+toy.dpkg-old\n+functions\n") == {
        "sshd": True,
        "clock.sh": True,
        "off": False,
    }
    assert scripts.linked("rc2.d:\nK01gone\nS01cron\nS20ssh-agent\n") == {"cron", "ssh-agent"}
