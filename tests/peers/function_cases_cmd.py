"""Calls of cmd.*, and what must come of them."""

from __future__ import annotations

from typing import Any

from tests.peers.function_case import Case


def all_of(retcode: int, stdout: str, stderr: str = "") -> Any:
    """A check of what ``cmd.run_all`` returns."""

    def check(found: Any) -> bool:
        rest = {"retcode": retcode, "stdout": stdout, "stderr": stderr}
        return bool(found["pid"] > 0 and {name: found[name] for name in rest} == rest and len(found) == 4)

    return check


SCRIPT = "printf '#!/bin/sh\\necho \"got $1\"; pwd; exit ${2:-0}\\n' > s.sh; chmod 755 s.sh; mkdir in"

CASES = (
    Case("cmd.run", ("echo one; echo two >&2; echo three",), value="one\ntwo\nthree"),
    Case("cmd.run", ("pwd; cat; echo $WORD", "{root}", "in\n"), {"env": {"WORD": "it's"}}, value="{root}\nin\nit's"),
    Case("cmd.run", ("printf 'a\\n\\n'",), {"rstrip": False}, value="a\n\n"),
    Case("cmd.run", ("exit 3",), outcome="failed", value="", why="exited with 3"),
    Case("cmd.run", ("echo x; exit 3",), {"ignore_retcode": True}, value="x"),
    Case("cmd.run", ("echo x; exit 3",), {"success_retcodes": [3]}, value="x"),
    Case("cmd.run", ("echo fine; exit 3",), {"success_stdout": ["fine"]}, value="fine"),
    Case("cmd.run", ("echo secret",), {"hide_output": True}, value=""),
    Case("cmd.run", ("umask",), {"umask": "077"}, value="0077"),
    Case("cmd.run", ("echo ${PATH%%:*}",), {"prepend_path": "/opt/here"}, value="/opt/here"),
    Case("cmd.run", ("echo $A-$HOME",), {"clean_env": True, "env": {"A": "b c"}, "shell": "/bin/sh"}, value="b c-"),
    Case("cmd.run", ("echo $HOME 'a b'",), {"python_shell": False}, value="$HOME a b"),
    Case("cmd.run", ("echo $A$B",), {"env": [{"A": "x"}, {"B": "y"}]}, value="xy"),
    Case("cmd.run", ("echo $A-$B-$C-",), {"env": [{"A": "x"}, "B", {"C": None}]}, value="x---"),
    Case("cmd.run", ("echo $A $B $C $D-",), {"env": {"A": True, "B": 1.5, "C": 7, "D": None}}, value="True 1.5 7 -"),
    Case("cmd.run", ("echo $A$B-$HOME",), {"env": [{"A": 1}, {"B": False}], "clean_env": True}, value="1False-"),
    Case("cmd.run", (["echo", "a b", 7],), {"python_shell": False}, value="a b 7"),
    Case("cmd.run", (['echo "$0-$1"', "a b", "c"],), {"python_shell": True}, value="a b-c"),
    Case("cmd.run", ("cat",), {"stdin": "a\\nb", "python_shell": False}, value="a\nb"),
    Case("cmd.run", ("cat",), {"stdin": "a\\nb", "stdin_raw_newlines": True}, value="a\\nb"),
    Case("cmd.run", ("printf 'caf\\351'",), {"output_encoding": "latin-1"}, value="café"),
    Case("cmd.run", ("true",), {"output_encoding": "hex"}, outcome="failed", why="output_encoding", salt="no"),
    Case("cmd.run", ("echo $LC_CTYPE $LANGUAGE",), {"reset_system_locale": True}, value="C C"),
    Case(
        "cmd.run",
        ("echo $LC_TIME",),
        {"reset_system_locale": True, "env": {"LC_TIME": "de"}},
        value="de",
    ),
    Case("cmd.run", ("echo now",), {"bg": True}, value=""),
    Case("cmd.run", ("echo x; exit 4",), {"success_retcodes": "3,4"}, value="x"),
    Case("cmd.run", ("exit 4",), {"success_retcodes": "three"}, outcome="failed", why="numbers", salt="no"),
    Case("cmd.run", ("echo all is fine; exit 3",), {"success_stdout": "well,fine"}, value="all is fine"),
    Case(
        "cmd.run",
        ("echo x",),
        {
            "saltenv": "base",
            "password": "x",
            "output_loglevel": "quiet",
            "encoded_cmd": False,
            "raise_err": True,
            "windows_codepage": 65001,
        },
        value="x",
    ),
    Case("cmd.run", ("echo x; sleep 600",), {"timeout": 3}, outcome="timed_out", value="x", salt="no"),
    Case("cmd.run", ("true", "{root}/absent"), outcome="failed", why="did not start"),
    Case("cmd.run", ("echo x",), {"umask": "wide"}, outcome="failed", why="is no umask", salt="no"),
    Case(
        "cmd.run",
        ("id -un; echo $HOME; echo $0 'it'\"'\"'s'",),
        {"runas": "{user}", "cwd": "/"},
        check=lambda text: text.startswith(("nobody\n", "camera\n")) and text.endswith("it's"),
        root_only=True,
        salt="shape",
    ),
    Case(
        "cmd.run",
        ("id -un; pwd",),
        {"runas": "{user}"},
        check=lambda text: text == "nobody\n/" or text.startswith("camera\n/"),
        root_only=True,
    ),
    Case("cmd.run", ("pwd",), {"runas": "{user}", "python_shell": False}, root_only=True),
    Case("cmd.run", ("true",), {"group": "a b;c"}, outcome="failed", why="is no name of a group", salt="no"),
    Case("cmd.run", ("true",), {"runas": "no-such-user"}, outcome="failed", why="there is no user"),
    Case("cmd.run", ("true",), {"runas": "a b;c"}, outcome="failed", why="is no name of a user", salt="no"),
    Case("cmd.shell", ("echo a | tr a b",), value="b"),
    Case("cmd.shell", (["echo $0", "a"],), {"env": [{"A": "x"}]}, value="a"),
    Case("cmd.shell", ("echo now",), {"bg": True}, value=""),
    Case("cmd.run_stdout", (["echo", "a b"],), {"python_shell": False, "env": [{"A": "x"}]}, value="a b"),
    Case("cmd.run_stderr", ("echo $A >&2",), {"env": [{"A": True}]}, value="True"),
    Case("cmd.run_all", (["echo", "a b"],), {"python_shell": False, "env": ["A"]}, check=all_of(0, "a b")),
    Case("cmd.run_stdout", ("echo out; echo err >&2",), value="out"),
    Case("cmd.run_stderr", ("echo out; echo err >&2",), value="err"),
    Case(
        "cmd.run_all",
        ("echo out; echo err >&2; exit 2",),
        outcome="failed",
        check=all_of(2, "out", "err"),
    ),
    Case("cmd.run_all", ("echo out; echo err >&2",), {"redirect_stderr": True}, check=all_of(0, "out\nerr")),
    Case("cmd.run_all", ("exit 5",), {"success_retcodes": [5]}, check=all_of(0, "")),
    Case("cmd.run_all", ("echo x",), {"hide_output": True}, check=all_of(0, "")),
    Case("cmd.retcode", ("exit 4",), outcome="failed", value=4),
    Case("cmd.retcode", ("true",), value=0),
    Case("cmd.retcode", (["test", "a b", "=", "a b"],), {"python_shell": False, "env": [{"A": "x"}]}, value=0),
    Case("cmd.retcode", ("seen",), {"prepend_path": "{root}"}, given="printf exit > seen; chmod 755 seen", value=0),
    Case(
        "cmd.run_bg",
        (["sh", "-c", "echo $A > there"],),
        {"cwd": "{root}", "python_shell": False, "env": [{"A": "x"}], "output_encoding": "utf-16"},
        check=lambda found: found["pid"] > 0,
        leaves=("i=0; while [ ! -s there ] && [ $i -lt 50 ]; do i=$((i+1)); sleep 0.1; done; cat there", "x\n"),
    ),
    Case(
        "cmd.run_bg",
        ("echo late > there; sleep 0",),
        {"cwd": "{root}"},
        check=lambda found: found["pid"] > 0,
        leaves=("i=0; while [ ! -s there ] && [ $i -lt 50 ]; do i=$((i+1)); sleep 0.1; done; cat there", "late\n"),
    ),
    Case(
        "cmd.script",
        ("{root}/s.sh", "one"),
        {"cwd": "{root}/in"},
        given=SCRIPT,
        check=lambda found: found["stdout"].startswith("got one\n") and found["stdout"].endswith("/in"),
        leaves=("ls in", ""),
    ),
    Case(
        "cmd.script",
        ("file://{root}/s.sh", ["two", "7"]),
        {"cwd": "/"},
        given=SCRIPT,
        outcome="failed",
        check=lambda found: found["retcode"] == 7,
    ),
    Case(
        "cmd.script",
        ("{root}/absent.sh",),
        outcome="failed",
        why="cannot be read",
        value={"pid": 0, "retcode": 1, "stdout": "", "stderr": "", "cache_error": True},
    ),
    Case("cmd.script", ("salt://s.sh",), outcome="failed", why="salt://s.sh", salt="no"),
    Case("cmd.script", ("https://example.com/s.sh",), outcome="failed", why="or salt://path", salt="no"),
    Case(
        "cmd.script",
        ("{root}/e.sh",),
        {"cwd": "/", "env": [{"A": True}], "ignore_retcode": True, "rstrip": False},
        given="printf '#!/bin/sh\\necho $A; exit 3\\n' > e.sh",
        check=all_of(3, "True\n"),
    ),
    Case("cmd.script_retcode", ("{root}/s.sh", ["a", 6]), given=SCRIPT, outcome="failed", value=6),
    Case("cmd.script_retcode", ("{root}/s.sh", "a 6"), given=SCRIPT, outcome="failed", value=6),
    Case("cmd.script_retcode", ("{root}/s.sh",), given=SCRIPT, value=0),
    Case("cmd.which", ("sh",), check=lambda path: path.endswith("/sh")),
    Case("cmd.which", ("there-is-no-such-program",), value=None),
    Case("cmd.which_bin", (["there-is-none", "sh"],), check=lambda path: path.endswith("/sh")),
    Case("cmd.which_bin", ([],), value=None),
    Case("cmd.has_exec", ("sh",), value=True),
    Case("cmd.has_exec", ("there-is-no-such-program",), value=False),
    Case("cmd.shells", check=lambda found: isinstance(found, list)),
    Case("cmd.exec_code", ("sh", 'echo "$1 it\'s"', None, ["one"]), value="one it's"),
    Case("cmd.exec_code", ("sh", ["echo a", "echo b"]), value="a\nb", salt="no"),
    Case("cmd.exec_code", ("sh", 'echo "$1-$A"', None, "one two"), {"env": [{"A": True}]}, value="one two-True"),
    Case(
        "cmd.exec_code",
        ("sh", "id -un"),
        {"runas": "{user}"},
        check=lambda text: text in {"nobody", "camera"},
        root_only=True,
    ),
    Case("cmd.exec_code_all", ("sh", "echo a; exit 9"), outcome="failed", check=all_of(9, "a")),
)
