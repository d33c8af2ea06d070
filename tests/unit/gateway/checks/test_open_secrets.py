"""gateway/checks/open_secrets.py, as the check of permissions has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.checks.box import Box, user_name
from gateway.checks.permissions import at_rest, of_config
from tests.unit.gateway.checks.conftest import a_box

SETTINGS = """\
name: lisbon
smtp: {host: desk, username: lisbon, password: hunter2}
webhook.secret: "0000"
broker: {mode: service, password: null}
engines:
  - webhook_out: {headers: {Authorization: Basic eHl6}, token_file: /etc/desk, password: }
  - desk: {token: /etc/outstation/desk.token}
api: {key: /etc/outstation/api.key}
"""


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = a_box(tmp_path, config=tmp_path / "gateway.yaml")
    made.state_dir.mkdir(mode=0o700)
    assert made.config is not None
    made.config.write_text("name: lisbon\n", encoding="utf-8")
    made.config.chmod(0o644)
    (tmp_path / "gateway.d").mkdir()
    return made


def piece(box: Box, text: str, mode: int) -> Path:
    assert box.config is not None
    path = box.config.parent / "gateway.d" / "70-secrets.yaml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_a_secret_that_everybody_may_read_is_told_with_its_key_and_without_its_value(box: Box) -> None:
    path = piece(box, SETTINGS, 0o644)
    (finding,) = at_rest(box)
    assert (finding.severity, finding.about) == ("warning", "secrets")
    assert f"{path} (smtp.password, webhook.secret, engines.webhook_out.headers.Authorization)" in finding.finding
    assert "hunter2" not in finding.finding
    assert finding.fix == f"sudo chgrp {user_name(box.owner())} {path} && sudo chmod 640 {path}"
    # A station that runs does not know where its settings are; the command line does.
    assert of_config(box) == [finding]


@pytest.mark.parametrize("mode", [0o640, 0o600, 0o660])
def test_one_that_only_root_and_the_station_read_is_where_it_belongs(mode: int, box: Box) -> None:
    piece(box, SETTINGS, mode)
    assert "secrets" not in {finding.about for finding in at_rest(box)}


@pytest.mark.parametrize("text", ["name: lisbon\n", "name: [\n", "smtp: {password: ''}\n"])
def test_settings_without_a_secret_are_everybodys(text: str, box: Box) -> None:
    piece(box, text, 0o644)
    (finding,) = at_rest(box)
    assert finding.severity == "ok"
