"""The line that a login shell reads: every shell makes the same script of it."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.downlinks.ssh_login_shell import WORD_BYTES, login_line
from tests.peers.login_shells import IMITATED, SHELLS, login_shell, words_of

EVERY_BYTE = bytes(range(1, 256))


def script_in(words: list[str]) -> bytes:
    """What ``/bin/sh`` makes of the words."""
    program, option, reader, name, *encoded = words[1:]
    assert words[0] == "exec"
    assert (program, option, reader, name) == ("/bin/sh", "-c", 'eval "$(printf %b "$@")"', "sh")
    return re.sub(rb"\\0([0-7]{3})", lambda found: bytes((int(found[1], 8),)), "".join(encoded).encode())


@given(st.binary(max_size=3000).map(lambda data: data.replace(b"\0", b"")))
@example(EVERY_BYTE * 10)
@example(rb"printf '%s' 'a\\b' \' \! !! !$")
def test_sh_fish_and_csh_read_the_same_script(script: bytes) -> None:
    line = login_line(script).decode("ascii")
    assert line.isprintable()
    for words in (shlex.split(line), *(words_of(line, shell) for shell in IMITATED)):
        assert script_in(words) == script
        assert max(map(len, words)) <= WORD_BYTES


@pytest.mark.parametrize("size", [0, 20_000])
@pytest.mark.parametrize("shell", [*SHELLS, *(f"imitated-{name}" for name in IMITATED)])
def test_each_shell_runs_a_script_with_every_byte_unchanged(shell: str, size: int) -> None:
    text = rb"a\\b '\'' ! !! \! " + EVERY_BYTE + b"x" * size
    script = b"printf %s " + b"'" + text.replace(b"'", b"'\"'\"'") + b"'"
    done = subprocess.run([*login_shell(shell), login_line(script)], capture_output=True, check=False, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == (text, b"", 0)


def test_the_imitations_read_other_lines_otherwise() -> None:
    assert words_of(r"exec 'a\\b' \'", "fish") == ["exec", r"a\b", "'"]
    assert words_of(r"exec 'a\\b'", "csh") == ["exec", r"a\\b"]
    for wrong in ("exec 'wow!'", "exec 'a\nb'"):
        with pytest.raises(ValueError, match=r"Event not found|Unmatched"):
            words_of(wrong, "csh")
