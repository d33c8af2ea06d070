"""What user, group and shadow must do, on a machine to throw away."""

from __future__ import annotations

from typing import Any

from tests.peers.function_story import Sh, Step, Story

BOTH = ("debian", "busybox")
FULL = ("debian", "busybox-full")
"""Debian's BusyBox was built without adduser; one that has it is named in OUTSTATION_TEST_BUSYBOX."""

HASH = "$6$abcdefgh$0123456789"


def has(**wanted: Any) -> Any:
    """A check of some of the fields of a dictionary."""
    return lambda found: {key: found.get(key) for key in wanted} == wanted


_ACCOUNT_LIKE_A_GROUP = (
    Sh("echo 'pat:x:1700:100::/home/pat:/bin/sh' >>/etc/passwd; echo 'kim:x:1702:100::/:/bin/sh' >>/etc/passwd"),
    Sh("echo 'kim:x:1701:' >>/etc/group; mkdir -p /home/pat"),
)

STORIES = (
    Story(
        "a user is made, changed and removed",
        FULL,
        (
            Step("user.info", ("tech",), value={}),
            Step("user.add", ("tech", 1500, None, "video,audio", "/srv/tech", "/bin/sh"), value=True),
            Step("user.add", ("tech",), value=False, outcome="failed"),
            Step(
                "user.info",
                ("tech",),
                value={
                    "name": "tech",
                    "uid": 1500,
                    "gid": 1500,
                    "home": "/srv/tech",
                    "shell": "/bin/sh",
                    "passwd": "x",
                    "groups": ["audio", "tech", "video"],
                    "fullname": "",
                    "roomnumber": "",
                    "workphone": "",
                    "homephone": "",
                    "other": "",
                },
            ),
            Step("user.list_groups", ("tech",), value=["audio", "tech", "video"]),
            Step("user.primary_group", ("tech",), value="tech"),
            Step("user.list_users", value=lambda names: "tech" in names and names == sorted(names)),
            Step("user.getent", value=lambda users: any(user["name"] == "tech" for user in users)),
            Step("user.chuid", ("tech", 1600), value=True),
            Sh("stat -c %u /srv/tech", "1600"),
            Step("user.chgid", ("tech", "users"), value=True, salt="differs"),
            Step("user.chgid", ("tech", "no such group"), value=False, outcome="failed", why="there is no group"),
            Step("user.chshell", ("tech", "/bin/false"), value=True),
            Step("user.chfullname", ("tech", 'It\'s "Tech" $HOME `id`'), value=True),
            Step("user.chroomnumber", ("tech", 12), value=True),
            Step("user.chother", ("tech", "a,b"), value=True),
            Step("user.chfullname", ("tech", "a,b"), value=False, outcome="failed", why="comma", salt="no"),
            Step("user.chfullname", ("tech", "a:b"), value=False, outcome="failed", why="':'"),
            Step("user.chhome", ("tech", "/srv/moved"), {"persist": True}, value=True),
            Sh("test -d /srv/moved && test ! -e /srv/tech"),
            Step(
                "user.info",
                ("tech",),
                value=has(
                    uid=1600,
                    gid=100,
                    shell="/bin/false",
                    fullname='It\'s "Tech" $HOME `id`',
                    roomnumber="12",
                    other="a,b",
                ),
            ),
            Step("user.chgroups", ("tech", ["audio"]), {"append": True}, value=True),
            Step("user.chgroups", ("tech", "video"), value=True),
            Step("user.list_groups", ("tech",), value=["users", "video"]),
            Step("user.rename", ("tech", "root"), outcome="failed", why="already"),
            Step("user.rename", ("tech", "serv"), value=True, salt="differs"),
            Step("user.list_groups", ("serv",), value=["users", "video"]),
            Step("user.delete", ("serv",), {"remove": True}, value=True),
            Step("user.delete", ("serv",), value=False, outcome="failed"),
            Sh("test ! -e /srv/moved"),
            Step("user.add", ("-x",), value=False, outcome="failed", why="begin with '-'"),
            Step("user.chshell", ("nobody at all", "/bin/sh"), outcome="failed", why="there is no user"),
        ),
    ),
    Story(
        "a group is made, filled and removed",
        FULL,
        (
            Step("user.add", ("anna", 1501), value=True),
            Step("user.add", ("ben", 1502), value=True),
            Step("group.add", ("cams", 3456), value=True),
            Step("group.add", ("cams",), value=False, outcome="failed"),
            Step("group.adduser", ("cams", "anna"), value=True),
            Step("group.info", ("cams",), value={"name": "cams", "passwd": "x", "gid": 3456, "members": ["anna"]}),
            Step("group.members", ("cams", "ben"), value=True),
            Step("group.info", ("cams",), value=has(members=["ben"])),
            Step("group.members", ("cams", "ben,nobody at all"), value=False, outcome="failed", why="there is no user"),
            Step("group.deluser", ("cams", "anna"), value=True),
            Step("group.deluser", ("cams", "ben"), value=True),
            Step("group.chgid", ("cams", 3457), value=True),
            Step("group.info", ("cams",), value=has(gid=3457, members=[])),
            Step("group.getent", value=lambda groups: any(group["name"] == "cams" for group in groups)),
            Step("group.delete", ("cams",), value=True),
            Step("group.info", ("cams",), value={}),
        ),
    ),
    Story(
        "a password is set, locked, unlocked and aged",
        (*BOTH, "busybox-ssh"),
        (
            Sh("echo 'pat:x:1700:100::/:/bin/sh' >>/etc/passwd; echo 'pat:!:19000:0:99999:7:::' >>/etc/shadow"),
            Sh("stat -c '%a %U' /etc/shadow >/tmp/before"),
            Step("shadow.unlock_password", ("pat",), value=False, outcome="failed", why="no password to unlock"),
            Step("shadow.set_password", ("pat", HASH), value=True),
            Step(
                "shadow.info",
                ("pat",),
                value=has(name="pat", passwd=HASH, min=0, max=99999, warn=7, inact=-1, expire=-1),
            ),
            Step("shadow.info", ("pat",), value=lambda found: found["lstchg"] > 19000),
            Step("shadow.lock_password", ("pat",), value=True),
            Step("shadow.info", ("pat",), value=has(passwd=f"!{HASH}")),
            Step("shadow.unlock_password", ("pat",), value=True),
            Step("shadow.set_maxdays", ("pat", 90), value=True),
            Step("shadow.set_mindays", ("pat", 1), value=True),
            Step("shadow.set_warndays", ("pat", 3), value=True),
            Step("shadow.set_inactdays", ("pat", 9), value=True),
            Step("shadow.set_date", ("pat", 0), value=True),
            Step("shadow.set_expire", ("pat", "2027-12-31"), value=True),
            Sh("grep ^pat: /etc/shadow", f"pat:{HASH}:0:1:90:3:9:21183:"),
            Step("shadow.set_expire", ("pat", -1), value=True),
            Step("shadow.info", ("pat",), value=has(expire=-1, lstchg=0)),
            Step("shadow.del_password", ("pat",), value=True),
            Step("shadow.info", ("pat",), value=has(passwd="")),
            Step("shadow.set_password", ("nobody at all", HASH), value=False, outcome="failed", why="there is no user"),
            Step("shadow.set_password", ("pat", "a:b"), value=False, outcome="failed", why="no hash", salt="no"),
            Step("shadow.info", ("nobody at all",), value=has(name="", passwd="", lstchg="")),
            Step("shadow.list_users", value=lambda names: {"root", "pat"} <= set(names)),
            Sh("stat -c '%a %U' /etc/shadow | cmp - /tmp/before"),
        ),
    ),
    Story(
        "a command runs as a group that is called like another user",
        ("debian",),
        (
            *_ACCOUNT_LIKE_A_GROUP,
            Step(
                "cmd.run",
                ("id -g; id -u",),
                {"runas": "pat", "group": "kim", "cwd": "/"},
                value="1701\n1700",
                salt="no",
            ),
            Step("cmd.run", ("id -g",), {"runas": "pat", "cwd": "/"}, value="100"),
        ),
    ),
    Story(
        "a command does not run as another group than was said",
        ("busybox",),
        (
            *_ACCOUNT_LIKE_A_GROUP,
            Step(
                "cmd.run",
                ("id -g",),
                {"runas": "pat", "group": "kim", "cwd": "/"},
                outcome="failed",
                value="group=kim takes setpriv of util-linux, which this device does not have",
                why="exited with 125",
            ),
        ),
    ),
)
