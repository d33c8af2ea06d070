"""Calls of those of file.* that tell what is there, whose it is, and find it, and what must come of them."""

from __future__ import annotations

from tests.peers.function_case import Case

F = "{root}/f"
TEXT = "printf 'one\\ntwo\\nthree\\n' > f"
HASH = "printf abc > f"
MD5 = "900150983cd24fb0d6963f7d28e17f72"
STRANGE = "a 'b' $(c)\n;-é"
"""A name that no shell may read."""

STANDING = (
    Case(
        "file.stats",
        (F,),
        given=TEXT + "; chmod 4711 f",
        check=lambda found: (
            (found["type"], found["mode"], found["size"], found["target"][-2:]) == ("file", "4711", 14, "/f")
        ),
    ),
    Case("file.stats", ("{root}",), {"hash_type": None}, check=lambda found: found["type"] == "dir"),
    Case(
        "file.stats",
        ("{root}/l", "md5"),
        given=HASH + "; ln -s f l",
        check=lambda found: found["sum"] == MD5 and found["type"] == "file",
    ),
    Case(
        "file.stats",
        ("{root}/l",),
        {"follow_symlinks": False},
        given="ln -s f l",
        check=lambda found: found["type"] == "link" and found["target"].endswith("/l"),
    ),
    Case("file.stats", (F,), outcome="failed", why="Path not found: {root}/f"),
    Case(
        "file.lstat",
        (F,),
        given=HASH + "; ln f g; chmod 600 f",
        check=lambda found: (found["st_nlink"], found["st_size"], found["st_mode"]) == (2, 3, 0o100600),
    ),
    Case("file.lstat", (F,), value={}),
    Case("file.file_exists", (F,), given=TEXT, value=True),
    Case("file.file_exists", ("{root}",), value=False),
    Case("file.directory_exists", ("{root}",), value=True),
    Case("file.directory_exists", (F,), given="touch f", value=False),
    Case("file.directory_exists", (F + "/below",), given="touch f", value=False),
    Case("file.is_link", ("{root}/l",), given="ln -s nowhere l", value=True),
    Case("file.is_link", (F,), given="touch f", value=False),
    Case("file.is_hardlink", (F,), given="touch f; ln f g", value=True),
    Case("file.is_hardlink", (F,), given="touch f", value=False),
    Case("file.is_fifo", (F,), given="mkfifo f", value=True),
    Case("file.is_fifo", (F,), value=False),
    Case("file.is_chrdev", ("/dev/null",), value=True),
    Case("file.is_blkdev", ("/dev/null",), value=False),
    Case("file.access", (F, "r"), given="touch f", value=True),
    Case("file.access", (F, "f"), value=False),
    Case("file.access", (F, "q"), given="touch f", outcome="failed", why="Invalid mode"),
    Case("file.get_mode", (F,), given="touch f; chmod 1640 f", value="1640"),
    Case("file.get_uid", ("/",), value=0),
    Case("file.get_gid", ("/",), value=0),
    Case("file.get_user", ("/",), value="root"),
    Case("file.get_group", ("/",), value="root"),
    Case("file.uid_to_user", (0,), value="root"),
    Case("file.uid_to_user", (54321,), value=54321),
    Case("file.user_to_uid", ("root",), value=0),
    Case("file.user_to_uid", ("no-such-user",), value=""),
    Case("file.gid_to_group", (0,), value="root"),
    Case("file.gid_to_group", (54321,), value=54321),
    Case("file.group_to_gid", ("root",), value=0),
    Case("file.group_to_gid", ("no-such-group",), value=""),
    Case("file.set_mode", (F, "0600"), given="touch f", value="0600"),
    Case("file.set_mode", (F, 755), given="touch f", value="0755"),
    Case("file.set_mode", (F, "rwx"), given="touch f", value="Invalid Mode rwx"),
    Case("file.set_mode", (F, "600"), outcome="failed", why="File not found"),
    Case(
        "file.chown",
        (F, "{user}", 54321),
        given="touch f",
        value=None,
        root_only=True,
        leaves=("ls -ln f | tr -s ' ' | cut -d' ' -f4", "54321\n"),
    ),
    Case("file.chown", (F, "no-such-user", "root"), given="touch f", value="User does not exist\n"),
    Case("file.chown", (F, "root", "root"), value="File not found"),
    Case(
        "file.lchown",
        ("{root}/l", 54321, 54321),
        given="touch f; ln -s f l",
        value=None,
        root_only=True,
        leaves=("ls -ln f l | tr -s ' ' | cut -d' ' -f3", "0\n54321\n"),
    ),
    Case(
        "file.chgrp",
        (F, 54321),
        given="touch f",
        value=None,
        root_only=True,
        leaves=("ls -ln f | tr -s ' ' | cut -d' ' -f4", "54321\n"),
    ),
    Case(
        "file.check_perms",
        (F, None, None, None, "640"),
        given="touch f; chmod 600 f",
        value=[
            {"name": F, "changes": {"mode": "0640"}, "comment": "", "result": True},
            {"luser": "root", "lgroup": "root", "lmode": "0600", "cmode": "0640"},
        ],
        root_only=True,
    ),
    Case(
        "file.check_perms",
        (F, {}, "root", "root", "600"),
        given="touch f; chmod 600 f",
        root_only=True,
        value=[
            {"name": F, "changes": {}, "comment": "", "result": True},
            {"luser": "root", "lgroup": "root", "lmode": "0600"},
        ],
    ),
)

TWIGS = "mkdir -p d/e; printf aaaa > d/x.txt; printf bb > d/e/y.txt; touch d/e/z.log d/.hid; ln -s x.txt d/l"

FIND = (
    Case(
        "file.find",
        ("{root}/d",),
        given=TWIGS,
        value=[
            "{root}/d",
            "{root}/d/.hid",
            "{root}/d/e",
            "{root}/d/e/y.txt",
            "{root}/d/e/z.log",
            "{root}/d/l",
            "{root}/d/x.txt",
        ],
    ),
    Case("file.find", ("{root}/d",), {"name": "*.txt"}, given=TWIGS, value=["{root}/d/e/y.txt", "{root}/d/x.txt"]),
    Case("file.find", ("{root}/d",), {"iname": "*.TXT", "maxdepth": 1}, given=TWIGS, value=["{root}/d/x.txt"]),
    Case("file.find", ("{root}/d",), {"type": "d", "print": "name"}, given=TWIGS, value=["d", "e"]),
    Case(
        "file.find",
        ("{root}/d",),
        {"type": "f", "size": "-3", "print": "name,size,type"},
        given=TWIGS,
        value=[[".hid", 0, "f"], ["y.txt", 2, "f"], ["z.log", 0, "f"]],
    ),
    Case(
        "file.find",
        ("{root}/d",),
        {"regex": r".*\.(log|txt)", "mindepth": 2, "print": "path,mode"},
        given=TWIGS,
        value=[["{root}/d/e/y.txt", 0o644], ["{root}/d/e/z.log", 0o644]],
    ),
    Case(
        "file.find",
        ("{root}/d",),
        {"name": "x.txt", "print": "md5,user,group"},
        given=TWIGS,
        value=[["74b87337454200d4d33f80c4663dc5e5", "root", "root"]],
        root_only=True,
    ),
    Case(
        "file.find",
        ("{root}/d",),
        {"name": "*.log", "delete": "f"},
        given=TWIGS,
        value=["{root}/d/e/z.log"],
        leaves=("ls d/e", "y.txt\n"),
    ),
    Case(
        "file.find",
        ("{root}/d",),
        {"name": "*.log", "delete": "f", "test": True},
        given=TWIGS,
        value=["{root}/d/e/z.log"],
        leaves=("ls d/e", "y.txt\nz.log\n"),
    ),
    Case("file.find", ("{root}/d",), {"grep": "^bb", "type": "f"}, given=TWIGS, value=["{root}/d/e/y.txt"]),
    Case(
        "file.find",
        ("{root}/d",),
        {"mtime": "+1d"},
        given=TWIGS + "; touch -t 200101010000 d/x.txt",
        value=["{root}/d/l", "{root}/d/x.txt"],
    ),
    Case(
        "file.find",
        ("{root}/d",),
        {"mtime": "-1d", "name": "*.txt"},
        given=TWIGS + "; touch -t 200101010000 d/x.txt",
        value=["{root}/d/e/y.txt"],
    ),
    Case(
        "file.find",
        ("{root}/d",),
        {"owner": "root", "name": "x*"},
        given=TWIGS,
        value=["{root}/d/x.txt"],
        root_only=True,
    ),
    Case(
        "file.find", ("{root}/d",), {"group": "0", "name": "x*"}, given=TWIGS, value=["{root}/d/x.txt"], root_only=True
    ),
    Case(
        "file.find", ("{root}/d",), {"owner": "no-such-user"}, given=TWIGS, value='error: no such user "no-such-user"'
    ),
    Case("file.find", ("{root}/d",), {"size": "much"}, given=TWIGS, value='error: invalid size: "much"'),
    Case(
        "file.find",
        ("{root}/d",),
        {"name": "x.txt", "exec": "cat '{}'"},
        given=TWIGS,
        check=lambda found: found[0].endswith(":\naaaa\n"),
        salt="no",
    ),
    Case("file.find", ("{root}/*/x*",), given=TWIGS, value=["{root}/d/x.txt"]),
    Case("file.find", ("{root}/nowhere",), value=[]),
    Case(
        "file.find",
        ("{root}/d",),
        {"type": "f"},
        given='mkdir d; touch "d/$(printf "a \'b\' \\$(c)\\n;-é")"',
        value=["{root}/d/" + STRANGE],
    ),
)

CASES = (*STANDING, *FIND)
