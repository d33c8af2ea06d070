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
    Case("cmd.run", ("true",), {"runas": "no-such-user"}, outcome="failed", why="there is no user"),
    Case("cmd.run", ("true",), {"runas": "a b;c"}, outcome="failed", why="is no name of a user", salt="no"),
    Case("cmd.shell", ("echo a | tr a b",), value="b"),
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
    Case("cmd.exec_code_all", ("sh", "echo a; exit 9"), outcome="failed", check=all_of(9, "a")),
)
