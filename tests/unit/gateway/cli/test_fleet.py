"""gateway/cli/fleet.py and fleet_show.py: the ceremony as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.trust.keys import fingerprint
from gateway.fleet.ceremony import Ceremony
from gateway.fleet.description import describe
from gateway.fleet.root_keys import read_root_key
from tests.peers.fleet import party
from tests.unit.gateway.cli.conftest import Shell


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands are typed in a folder of their own, as on an offline machine."""
    folder = tmp_path / "desk"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def description(desk: Path) -> Path:
    master = party("central")
    path = desk / "central.master"
    path.write_text(describe(master.key, master.as_master(())) + "\n", encoding="utf-8")
    return path


def test_the_first_words_say_what_to_do_with_the_keys_and_what_is_lost_otherwise(shell: Shell, desk: Path) -> None:
    finished = shell.here("fleet", "init")
    assert finished.status == 0
    assert sorted(path.name for path in (desk / "fleet").iterdir()) == [
        "root-1.key",
        "root-2.key",
        "root-3.key",
        "root-lists",
    ]
    for words in ("offline medium of its own", "Two of the three sign", "Once two are lost", "fleet add-master"):
        assert words in finished.error
    again = shell.here("fleet", "init")
    assert again.status == 2
    assert "there is a fleet in this folder" in again.error


def test_a_master_is_added_by_two_keys_one_after_the_other(shell: Shell, desk: Path, description: Path) -> None:
    shell.here("fleet", "init")
    keys = {number: (desk / "fleet" / f"root-{number}.key").rename(desk / f"{number}.key") for number in (1, 2, 3)}
    first = shell.here("fleet", "add-master", "central.master", "--key", str(keys[1]))
    assert first.status == 0
    assert fingerprint(party("central").key.public) in first.out
    assert "1 more of the root keys: root-2, root-3" in first.error
    unfinished = shell.here("fleet", "show", "fleet/root-list.unfinished")
    assert "too few have signed" in unfinished.out
    second = shell.here("fleet", "add-signature", "--key", str(keys[3]))
    assert second.status == 0
    assert "fleet publish" in second.error
    shown = shell.here("fleet", "show", "fleet/root-lists").out
    assert "version:     2" in shown
    assert "signed by:   root-1, root-3 (2 of 3 needed)" in shown
    assert "tcp://central.example:4510  may job, enrol, site-ca, revoke, epoch" in shown
    both = ["--key", str(keys[1]), "--key", str(keys[2])]
    assert shell.here("fleet", "rotate", "--replace", "root-3", *both).status == 0
    assert shell.here("fleet", "drop-master", "central", *both).status == 0
    assert "none yet" in shell.here("fleet", "show", "fleet/root-lists").out
    assert Ceremony(desk / "fleet").current().version == 4


def test_a_description_of_another_key_than_the_one_expected_is_not_signed(
    shell: Shell, desk: Path, description: Path
) -> None:
    shell.here("fleet", "init")
    right, wrong = fingerprint(party("central").key.public), fingerprint(party("other").key.public)
    refused = shell.here("fleet", "add-master", str(description), "--fingerprint", wrong)
    assert (refused.status, Ceremony(desk / "fleet").current().version) == (2, 1)
    assert right in refused.error
    assert wrong in refused.error
    typed = right.upper().replace("-", " ")
    assert shell.here("fleet", "add-master", description.read_text(), "--fingerprint", typed).status == 0
    assert Ceremony(desk / "fleet").current().version == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["fleet", "show", "nothing"], "no such file, and no line of a fleet"),
        (["fleet", "show", "fleet/root-1.key"], "a root key, which is not shown"),
        (["fleet", "show", "fleet"], "no such file"),
        (["fleet", "add-master", "fleet/root-lists"], "not what belongs here"),
        (["fleet", "add-master", "central.master", "--key", "central.master"], "no root key, or it is damaged"),
        (["fleet", "add-signature"], "no root list waits for signatures"),
        (["fleet", "drop-master", "nobody"], "no master 'nobody'"),
        (["fleet", "rotate", "--replace", "root-9"], "no root key 'root-9'"),
        (["fleet", "rotate", "--folder", "elsewhere"], "no fleet"),
        (["fleet", "publish", "nothing"], "there is no such file"),
        (["fleet", "sign-site", "central.master"], "not what belongs here"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_file_name_or_key_is_named_with_what_mends_it(
    line: list[str], said: str, shell: Shell, description: Path
) -> None:
    shell.here("fleet", "init")
    finished = shell.here(*line)
    assert (finished.status, finished.out) == (2, "")
    assert said in finished.error
    assert "try:" in finished.error
    for key in Path("fleet").glob("*.key"):
        assert read_root_key(key).key.private.hex() not in finished.error
