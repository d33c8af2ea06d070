"""Entries of rosters become devices with all that Salt's settings fill into them; each has exactly one verdict."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.salt.import_box import Asked, Looked, lines_of, look
from gateway.salt.import_findings import Finding
from tests.peers.salt_box import SaltBox

DEFAULTS = """\
id: site-a
roster_defaults:
  user: salt
  sudo: True
  port: 2222
  priv: /etc/salt/salt-ssh/id_ed25519
"""
ROSTER = """\
cam-a:
  host: 192.0.2.11
cam-b:
  host: 192.0.2.12
  priv: agent-forwarding
cam-c: 192.0.2.13
cam-d:
  host: 192.0.2.15
  passwd: 1.50
cam-h:
  host:192.0.2.1
"""


@pytest.fixture
def box(tmp_path: Path) -> SaltBox:
    made = SaltBox(tmp_path)
    made.write("etc/salt/master", DEFAULTS)
    made.write("etc/salt/roster", ROSTER)
    return made


def rows(looked: Looked) -> dict[str, dict[str, Any]]:
    """The inventory by name, without what is the same for all."""
    return {
        row["name"]: {k: v for k, v in row.items() if k not in ("name", "fingerprint")} for row in looked.devices.ssh
    }


def verdict(looked: Looked, what: str) -> Finding:
    (finding,) = [each for each in looked.findings if each.what == what]
    return finding


@pytest.mark.parametrize("entry", ['"[2001:db8::7]"', '{host: "[2001:db8::7]"}', '{host: "2001:db8::7"}'])
def test_an_ipv6_address_may_stand_in_brackets(entry: str, box: SaltBox) -> None:
    box.write("etc/salt/roster", f"cam-6: {entry}\n")
    looked = look(Asked(box.salt))
    assert rows(looked)["cam-6"]["address"] == "2001:db8::7"
    assert verdict(looked, "roster cam-6").verdict == "translated"


def test_an_entry_has_what_roster_defaults_fills_in(box: SaltBox) -> None:
    looked = look(Asked(box.salt))
    key = {"login": "key", "key_file": "/etc/salt/salt-ssh/id_ed25519"}
    same = {"port": 2222, "user": "salt"}
    assert rows(looked) == {
        "cam-a": {"address": "192.0.2.11", **same, **key},
        "cam-b": {"address": "192.0.2.12", **same, "login": "agent"},
        "cam-c": {"address": "192.0.2.13", **same, **key},
        "cam-d": {"address": "192.0.2.15", **same, "login": "password", "password": "1.50"},
    }
    defaults = verdict(looked, "roster_defaults")
    assert (defaults.verdict, defaults.to) == ("translated", "ssh-devices.yaml")
    assert "sudo" in defaults.words
    assert "functions run as salt" in verdict(looked, "roster cam-a").words
    assert "1.50" not in "\n".join(lines_of(looked.findings))


def test_one_wrong_entry_is_left_out_with_its_line_and_the_others_count(box: SaltBox) -> None:
    looked = look(Asked(box.salt))
    wrong = verdict(looked, "roster cam-h")
    assert (wrong.verdict, wrong.where) == ("wrong", f"{box.salt}/roster:11")
    assert "blank behind each colon" in wrong.words
    assert looked.incomplete
    assert not looked.wrong


@pytest.mark.parametrize("host", ["admin@192.0.2.1", "192.0.2.1:22", "192.0.2", "a b", "[1, 2]"])
def test_what_can_be_no_host_is_no_device(host: str, box: SaltBox) -> None:
    box.write("etc/salt/roster", f"good: 192.0.2.9\nbad: {host}\nfields: {{host: '{host}'}}\n")
    looked = look(Asked(box.salt))
    assert [row["name"] for row in looked.devices.ssh] == ["good"]
    assert {verdict(looked, f"roster {name}").verdict for name in ("bad", "fields")} == {"wrong"}


def test_the_key_of_salt_ssh_is_the_last_resort(box: SaltBox) -> None:
    box.write("etc/salt/master", "id: site-a\n")
    assert rows(look(Asked(box.salt)))["cam-c"]["login"] == "agent"
    key = box.write("etc/salt/pki/master/ssh/salt-ssh.rsa", "KEY\n")
    looked = look(Asked(box.salt))
    assert rows(looked)["cam-c"] == {"address": "192.0.2.13", "user": "root", "login": "key", "key_file": str(key)}
    assert rows(looked)["cam-d"]["password"] == "1.50"
    assert "key_file" not in rows(looked)["cam-d"]
    box.write("etc/salt/master", f"id: site-a\npki_dir: {box.root}/elsewhere\n")
    assert "key_file" not in rows(look(Asked(box.salt)))["cam-c"]


def test_the_nearest_place_that_names_a_login_decides(box: SaltBox) -> None:
    box.write(
        "etc/salt/master",
        "id: site-a\nroster_defaults: {user: salt, passwd: 007}\nssh_user: nobody\nssh_priv: /key\nssh_port: 2200\n",
    )
    looked = look(Asked(box.salt))
    assert rows(looked)["cam-a"] == {
        "address": "192.0.2.11",
        "port": 2200,
        "user": "salt",
        "login": "password",
        "password": "007",
    }
    assert "ssh_priv" in verdict(looked, "roster cam-a").words
    verdicts = {key: verdict(looked, key).verdict for key in ("ssh_user", "ssh_priv", "ssh_port")}
    assert verdicts == {"ssh_user": "no meaning", "ssh_priv": "no meaning", "ssh_port": "translated"}
    assert "roster_defaults.passwd" in verdict(looked, "roster cam-b").words


def test_each_field_of_an_entry_is_carried_or_named(box: SaltBox) -> None:
    box.write("etc/salt/master", "id: site-a\n")
    box.write(
        "etc/salt/roster",
        "a: {host: 192.0.2.1, passwd: [x], port: ssh, ssh_options: [ProxyJump=b], minion_opts: {a: 1}, timeout: 9}\n"
        "b: {host: 192.0.2.2, passwd: yes, priv: id_rsa, priv_passwd: x, sudo: False}\n",
    )
    looked = look(Asked(box.salt))
    words = verdict(looked, "roster a").words
    for named in ("passwd, which YAML reads as a list", "port, which is no number", "minion_opts, ssh_options"):
        assert named in words
    assert "timeout" not in words
    words = verdict(looked, "roster b").words
    for named in ("without its password", "no whole path", "passphrase_file"):
        assert named in words
    assert "sudo" not in words


def test_every_roster_is_read_and_named(box: SaltBox) -> None:
    other = box.write("etc/salt/other", "rec-1: 192.0.2.51\ncam-a: 192.0.2.99\n")
    box.write("etc/salt/master", f"id: site-a\nroster_file: {box.salt}/roster\nrosters: [{other}]\nroster: cache\n")
    looked = look(Asked(box.salt))
    assert "rec-1" in rows(looked)
    assert rows(looked)["cam-a"]["address"] == "192.0.2.11"
    verdicts = {key: verdict(looked, key).verdict for key in ("roster_file", "rosters", "roster")}
    assert verdicts == {"roster_file": "translated", "rosters": "translated", "roster": "not carried"}
    box.write("etc/salt/master", "id: site-a\nroster_file: /nowhere\nssh_user: x\n")
    looked = look(Asked(box.salt))
    assert verdict(looked, "roster_file").verdict == "not carried"
    assert verdict(looked, "ssh_user").verdict == "no meaning"


def test_an_entry_with_a_name_that_yaml_reads_as_a_number_keeps_it(box: SaltBox) -> None:
    box.write("etc/salt/roster", "007: 192.0.2.1\n1_0: {host: 192.0.2.2, user: 1_0, passwd: 0x10}\non: 192.0.2.3\n")
    found = rows(look(Asked(box.salt)))
    assert list(found) == ["007", "1_0", "on"]
    assert (found["1_0"]["user"], found["1_0"]["password"]) == ("1_0", "0x10")


def test_each_proxy_minion_and_roster_entry_has_exactly_one_verdict(box: SaltBox) -> None:
    box.write("etc/salt/roster", "cam-a: 192.0.2.11\ncam-1: 192.0.2.12\n")
    box.write("etc/salt/master", f"id: site-a\npillar_roots: {{base: [{box.root}/srv/pillar]}}\n")
    box.write("srv/pillar/top.sls", "base:\n  'cam-1': [cam]\n  'cam-2': [cam]\n  'nvr-9': [none]\n  'bad-1': [bad]\n")
    box.write("srv/pillar/cam.sls", "proxy: {proxytype: ssh, host: 192.0.2.12, password: 12.50}\n")
    box.write("srv/pillar/none.sls", "a: 1\n")
    box.write("srv/pillar/bad.sls", "proxy: {{ nobody.knows }}\n")
    box.write(
        "etc/salt/proxy.d/cam-2/own.conf", "proxy: {proxytype: ssh, host: 192.0.2.13, passwd: 0010}\nmine_interval: 3\n"
    )
    box.write("etc/salt/proxy.d/cam-3/_schedule.conf", "schedule: {}\n")
    keys = {
        "minions": ["site-a", "cam-1", "cam-2", "nvr-1", "bad-1"],
        "minions_pre": ["new-1"],
        "minions_rejected": ["old-1"],
    }
    for state, names in keys.items():
        for name in names:
            box.write(f"etc/salt/pki/master/{state}/{name}", "key\n")
    looked = look(Asked(box.salt, names=["cam-9"]))
    found = {
        each.what: each.verdict for each in looked.findings if each.what.startswith(("proxy ", "minion ", "roster "))
    }
    assert found == {
        "proxy cam-1": "translated",
        "proxy cam-2": "translated",
        "proxy cam-3": "not carried",
        "proxy cam-9": "not carried",
        "proxy nvr-9": "not carried",
        "minion site-a": "no meaning",
        "minion cam-1": "no meaning",
        "minion cam-2": "no meaning",
        "minion nvr-1": "translated",
        "minion bad-1": "not carried",
        "minion new-1": "not carried",
        "minion old-1": "not carried",
        "roster cam-a": "translated",
        "roster cam-1": "no meaning",
    }
    counts = Counter(each.what for each in looked.findings)
    assert {what: counts[what] for what in found} == dict.fromkeys(found, 1)
    assert looked.devices.agents == ["nvr-1"]
    assert "password, which YAML reads as a number with a point" in verdict(looked, "proxy cam-1").words
    assert rows(looked)["cam-2"]["password"] == "0010"
    assert "cam.sls:1 says it too" in verdict(looked, "proxy cam-2").words
    assert verdict(looked, "mine_interval of proxy cam-2").verdict == "not carried"
