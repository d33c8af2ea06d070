"""device_agent/state_folder.py."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from device_agent.errors import EXIT_CONFIG, ConfigInvalid, StartDeferred
from device_agent.outbox import JournalUnavailable
from device_agent.state_folder import FULL, StateFolder


def test_one_process_has_it(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path / "state"), StateFolder(tmp_path / "state")
    first.take()
    with pytest.raises(StartDeferred, match="another agent"):
        second.take()
    first.release()
    second.take()
    second.release()


@pytest.mark.parametrize("number", [*FULL, errno.EROFS, errno.EIO, errno.EACCES])
def test_a_full_disk_is_no_matter_of_settings(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_words: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises((JournalUnavailable, ConfigInvalid)) as raised:
        StateFolder(tmp_path / "state").take()
    # A unit that ends with the status of wrong settings stays down; where there is no room now, there may be soon.
    assert (raised.value.exit_status == EXIT_CONFIG) is (number == errno.EACCES)
    assert raised.value.hint is not None
    assert str(tmp_path / "state") in raised.value.hint
