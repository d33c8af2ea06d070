"""The comparison with stock Salt is skipped where Salt cannot be installed, and never in continuous integration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers import salt_release
from tests.peers.salt_release import ASKED, CI, stock_python, stock_salt


@pytest.fixture
def no_salt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which the installation of Salt fails."""
    program = tmp_path / "make-salt-masters"
    program.write_text("#!/bin/sh\necho no package index >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(salt_release, "PROGRAM", program)
    monkeypatch.delenv(ASKED, raising=False)
    monkeypatch.delenv(CI, raising=False)


@pytest.mark.usefixtures("no_salt")
def test_without_salt_a_comparison_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CI, "false")
    with pytest.raises(pytest.skip.Exception, match="cannot be installed here: no package index"):
        stock_python()


@pytest.mark.usefixtures("no_salt")
@pytest.mark.parametrize(("name", "value"), [(CI, "true"), (CI, "1"), (ASKED, "short"), (ASKED, "long")])
def test_in_continuous_integration_a_comparison_without_salt_fails(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(
        pytest.fail.Exception, match=r"no package index; .* is set, so the comparison with Salt must run"
    ):
        stock_salt()
