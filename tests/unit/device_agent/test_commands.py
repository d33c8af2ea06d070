"""device_agent/commands.py and text_files.py: an answer is whole or it is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from device_agent import loader, text_files
from device_agent.accounts.database import Accounts
from device_agent.commands import LOOK_SECONDS, NOT_THERE, NotOver, ask, do, look, present, shell
from device_agent.ended import FunctionFailed
from device_agent.local_host import LocalHost

HOST = LocalHost({"id": "cam-1"})


async def test_words_stay_words() -> None:
    words = ("a b", "$(id)", "'", "*", "")
    assert (await do(HOST, "printf", "<%s>", *words)).out == "".join(f"<{word}>" for word in words)


async def test_a_command_that_says_too_much_is_not_believed() -> None:
    said = await ask(HOST, "printf", "%s", "1234567890", limit=10)
    assert said.out == "1234567890"
    with pytest.raises(FunctionFailed, match="printf says more than 9 bytes"):
        await ask(HOST, "printf", "%s", "1234567890", limit=9)


async def test_a_command_that_does_not_end_is_a_failure_that_says_so() -> None:
    with pytest.raises(NotOver, match="the script was not over"):
        await shell(HOST, "while :; do :; done", timeout=0.05)
    assert (await look(HOST, "echo quick")).out == "quick\n"
    assert LOOK_SECONDS > 0


async def test_a_failed_command_says_why_and_with_which_code() -> None:
    with pytest.raises(FunctionFailed, match="no such thing") as failed:
        (await shell(HOST, "echo no such thing >&2; exit 3")).must(failing=False)
    assert (failed.value.retcode, failed.value.value) == (3, False)
    with pytest.raises(FunctionFailed, match="outstation-no-such") as absent:
        await do(HOST, "outstation-no-such")
    assert absent.value.retcode == NOT_THERE
    with pytest.raises(FunctionFailed, match="did not start"):
        await do(HOST, "echo", "null\0")
    assert await present(HOST, "outstation-no-such", "sh") == ["sh"]


async def test_bytes_that_are_no_text_are_marked_or_kept() -> None:
    said = await shell(HOST, "printf 'a\\344b'")
    assert said.out == "a\N{REPLACEMENT CHARACTER}b"
    assert os.fsencode(said.exact) == b"a\xe4b"


async def test_a_letter_is_a_letter_only_in_the_language_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "xx_XX")
    assert (await shell(HOST, 'printf %s "$LC_ALL"', own_language=True)).out == "xx_XX"
    assert (await shell(HOST, 'printf %s "$LC_ALL"')).out == "C"


async def test_a_file_is_looked_at_whole_or_refused_with_the_bound(tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_bytes(b"x" * text_files.WHOLE_BYTES)
    assert len(await text_files.look(HOST, str(file))) == text_files.WHOLE_BYTES
    with file.open("ab") as more:
        more.write(b"x")
    for reading in (text_files.look(HOST, str(file)), text_files.look(HOST, str(file), must=False)):
        with pytest.raises(FunctionFailed, match=f"{file} is larger than {text_files.WHOLE_BYTES} bytes"):
            await reading


async def test_a_file_that_cannot_be_looked_at_is_a_failure_unless_it_need_not_be(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    assert await text_files.look(HOST, absent, must=False) == ""
    with pytest.raises(FunctionFailed, match="absent cannot be read: No such file"):
        await text_files.look(HOST, absent)


async def test_accounts_are_found_by_name_and_by_number() -> None:
    accounts = Accounts(HOST)
    by_name, by_number = await accounts.user("root"), await accounts.user_or_number("0")
    assert by_name is not None
    assert by_number == by_name
    assert await accounts.user("0") is None
    group = await accounts.group("root")
    assert group is not None
    assert await accounts.group_or_number("0") == group
    assert await accounts.user_or_number("outstation-nobody") is None
    assert (await loader.call("file.user_to_uid", HOST, ["root"], {})).value == 0
    assert (await loader.call("file.user_to_uid", HOST, ["0"], {})).value == ""
    assert (await loader.call("file.uid_to_user", HOST, [0], {})).value == "root"
