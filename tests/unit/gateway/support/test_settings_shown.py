"""Settings are shown by a list, and a setting that nobody put on it is not."""

from __future__ import annotations

import re
from base64 import b64decode
from fnmatch import fnmatchcase
from pathlib import Path

from device_agent.config import AgentSettings
from device_agent.settings import describe, written
from gateway.config import StationSettings
from gateway.support.redaction import HIDDEN, MARK, Redaction
from gateway.support.settings_shown import SHOWN, hidden, shown

SETTINGS = {setting.key for table in (StationSettings, AgentSettings) for setting in describe(table)}


def names(pattern: str) -> set[str]:
    plain = pattern.replace(".[]", "")
    return {key for key in SETTINGS if fnmatchcase(re.sub(r"\[\]|\.\*", "", key), plain)}


def test_everything_on_the_list_is_a_setting() -> None:
    assert not [pattern for pattern in SHOWN if not names(pattern)]


def test_nothing_on_the_list_is_a_secret_or_holds_what_anybody_may_write() -> None:
    on_it = {key for pattern in SHOWN for key in names(pattern)}
    free = re.compile(
        r"password|secret|token(?!ize)|header|url|username|query|sql|http|options|^grains$|template|subject"
    )
    assert not [key for key in on_it if free.search(key)]


def test_what_is_not_listed_is_only_said_to_be_there(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(
        "name: lisbon\nbroker: {port: 1884, password: h0rse-battery}\nsmtp: {host: mail.example, password: stapled}\n"
        "engines: [{tail: {secret: correct-one}}]\nmasters: [{address: 'tcp://10.0.0.1:4510', key: abcdefgh}]\n"
        "file_roots: {base: ['https://alice:wordly@git.example/x']}\nUnheard Of: 3\nnodegroups: {yard: 'cam-*'}\n"
    )
    tree = written(path)
    assert shown(tree) == {
        "name": "lisbon",
        "broker": {"port": "1884", "password": HIDDEN},
        "smtp": {"host": HIDDEN, "password": HIDDEN},
        "engines": HIDDEN,
        "masters": [{"address": "tcp://10.0.0.1:4510", "key": HIDDEN}],
        "file_roots": HIDDEN,
        "nodegroups": HIDDEN,
        "(keys not shown)": 1,
    }
    secrets = hidden(tree)
    assert {"h0rse-battery", "stapled", "correct-one", "wordly", "abcdefgh"} <= secrets
    assert not {"lisbon", "1884", "tcp://10.0.0.1:4510"} & secrets


def test_what_an_address_carries_is_hidden_by_itself_too(tmp_path: Path) -> None:
    """Its letters in base64 may look like no secret, so they are only taken out as one that is known."""
    path = tmp_path / "gateway.yaml"
    secret = b64decode("abcdefghijklmnopqrstuv==").hex()
    path.write_text(f"pillar: {{ext: [{{http: 'https://u@cmdb/?a=1&k={secret}&n=two%20words#t=of-the-end'}}]}}\n")
    secrets = hidden(written(path))
    assert {secret, "two words", "two%20words", "of-the-end"} <= secrets
    assert Redaction(secrets).text("said abcdefghijklmnopqrstu there") == f"said {MARK} there"
