"""gateway/checks/open_secrets.py, as the check of permissions has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

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
def folder() -> Iterator[Path]:
    """One that everybody may enter; those of pytest are its user's alone."""
    with TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def box(folder: Path) -> Box:
    made = a_box(folder, config=folder / "gateway.yaml")
    made.state_dir.mkdir(mode=0o700)
    assert made.config is not None
    made.config.write_text("name: lisbon\n", encoding="utf-8")
    made.config.chmod(0o644)
    (folder / "gateway.d").mkdir()
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


TAGS = "reactor: [{site/token: [salt://x.sls]}, {token: [salt://y.sls]}]\nnodegroups: {tokens: 'cam-*'}\n"
PATHS = "station: {beacons: {inotify: {files: {//etc/token: modify}}}}\n"


@pytest.mark.parametrize("text", ["name: lisbon\n", "name: [\n", "smtp: {password: ''}\n", TAGS, PATHS])
def test_settings_without_a_secret_are_everybodys(text: str, box: Box) -> None:
    piece(box, text, 0o644)
    (finding,) = at_rest(box)
    assert finding.severity == "ok"


@pytest.mark.parametrize("value", ["/9j4AAQSkZJRgABAQ==", "/+a/b==", "etc/desk"])
def test_a_secret_that_begins_as_a_path_does_is_one(value: str, box: Box) -> None:
    piece(box, f"smtp: {{password: {value}}}\n", 0o644)
    assert [finding.about for finding in at_rest(box)] == ["secrets"]


@pytest.mark.parametrize("key", ["pass", "pwd", "psk", "snmp_auth", "community", "X-Api-Key", "tokens", "credentials"])
def test_a_secret_is_known_by_any_of_its_usual_names(key: str, box: Box) -> None:
    piece(box, f"badge: {{user: x, {key}: [hunter2]}}\n", 0o644)
    assert [finding.about for finding in at_rest(box)] == ["secrets"]


@pytest.mark.parametrize("key", ["author", "spin", "token_file", "password_days", "passes", "auth_tries"])
def test_what_is_about_a_secret_is_none(key: str, box: Box) -> None:
    piece(box, f"badge: {{{key}: hunter2}}\n", 0o644)
    assert [finding.severity for finding in at_rest(box)] == ["ok"]


def test_a_file_that_is_not_there_hides_no_other(box: Box) -> None:
    path = piece(box, SETTINGS, 0o644)
    path.with_name("10-gone.yaml").symlink_to("nowhere")
    path.with_name("20-round.yaml").symlink_to("20-round.yaml")
    (finding,) = at_rest(box)
    assert str(path) in finding.finding


def test_what_is_in_a_folder_that_others_cannot_enter_is_not_everybodys(box: Box, folder: Path) -> None:
    path = piece(box, SETTINGS, 0o644)
    for closed in (folder, path.parent):
        closed.chmod(0o750)
        assert [finding.severity for finding in at_rest(box)] == ["ok"]
        closed.chmod(0o755)
    assert [finding.about for finding in at_rest(box)] == ["secrets"]
