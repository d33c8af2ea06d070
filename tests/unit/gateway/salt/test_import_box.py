"""What a box with Salt comes to: one verdict for every key and every proxy, and files that are taken as they are."""

from __future__ import annotations

import stat
from collections import Counter
from pathlib import Path

import pytest
import yaml

from device_agent.errors import UsageInvalid
from device_agent.settings import written
from gateway.cli.ssh_inventory import read as read_inventory
from gateway.salt.import_box import Asked, Looked, fields_of, lines_of, look
from gateway.salt.import_files import Writing, inventory_text
from gateway.salt.import_findings import Finding, holds_secret
from gateway.salt.import_keys import NO_MEANING, NOT_CARRIED, SAME, UPSTREAM
from gateway.salt.import_read import read_box
from tests.peers.salt_box import FINGER, PILLAR, SECRETS, SaltBox, salt_box

ENTRIES = {"beacons", "engines", "nodegroups", "schedule"}
"""Keys whose entries have a verdict each."""


@pytest.fixture
def box(tmp_path: Path) -> SaltBox:
    return salt_box(tmp_path / "box")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[SaltBox, Looked]:
    """A box that no test changes, looked at once."""
    box = salt_box(tmp_path_factory.mktemp("whole") / "box")
    return box, looked_at(box)


def looked_at(box: SaltBox, **asked: object) -> Looked:
    return look(Asked(box.salt, **asked))  # type: ignore[arg-type]  # as the test says


def told(looked: Looked, what: str) -> Finding:
    (finding,) = [each for each in looked.findings if each.what == what]
    return finding


def test_every_key_that_is_written_has_exactly_one_verdict(whole: tuple[SaltBox, Looked]) -> None:
    box, looked = whole
    verdicts = Counter((each.what, each.where.split(":")[0]) for each in looked.findings)
    for path in read_box(box.salt).files:
        for key, value in yaml.safe_load(path.read_text()).items():
            names = [f"{key}.{name}" for name in names_in(value)] if key in ENTRIES else [key]
            for name in names:
                assert verdicts[name, str(path)] == 1, (name, path)


def names_in(value: object) -> list[str]:
    if isinstance(value, dict):
        return list(value)
    assert isinstance(value, list)
    return [next(iter(each)) if isinstance(each, dict) else each for each in value]


def test_a_verdict_has_the_file_and_the_line(whole: tuple[SaltBox, Looked]) -> None:
    _, looked = whole
    for what, line in (("external_auth", "    kim"), ("schedule.own-disk", "    function: disk"), ("timezone", "")):
        path, _, number = told(looked, what).where.rpartition(":")
        written_there = Path(path).read_text().splitlines()[int(number) - 1].strip()
        assert written_there.split(":")[0] == what.rpartition(".")[2], line


def test_each_proxy_has_exactly_one_verdict(whole: tuple[SaltBox, Looked]) -> None:
    box, looked = whole
    proxies = {each.what: each.verdict for each in looked.findings if each.what.startswith("proxy ")}
    assert proxies == {
        "proxy cam-1": "translated",
        "proxy cam-2": "translated",
        "proxy cam-3": "translated",
        "proxy control": "translated",
        "proxy many-7": "translated",
        "proxy lab": "no meaning",
        "proxy switch-1": "not carried",
        "proxy door-api": "not carried",
        "proxy lost-1": "not carried",
    }
    assert told(looked, "proxy cam-2").where == f"{box.root}/srv/pillar/cams/shared.sls:3"
    assert told(looked, "proxy many-7").where == f"{box.root}/srv/pillar/many.sls:1"


def test_a_pillar_that_nobody_is_known_for_is_told_of(box: SaltBox) -> None:
    (box.salt / "pki/master/minions/many-7").unlink()
    looked = looked_at(box)
    assert told(looked, "proxy").where == f"{box.root}/srv/pillar/many.sls:1"
    assert "--names" in told(looked, "proxy").words
    named = looked_at(box, names=["many-8", "many-9"])
    assert {"proxy many-8", "proxy many-9"} < {each.what for each in named.findings}


def test_a_proxy_whose_pillar_does_not_render_has_one_verdict_and_its_file_another(box: SaltBox) -> None:
    box.write("srv/pillar/many.sls", "proxy:\n  host: {{ nobody.knows }}\n")
    found = [each for each in looked_at(box).findings if "many" in each.what + each.where]
    assert sorted((each.verdict, each.what) for each in found) == [
        ("not carried", "minion many-7"),
        ("wrong", "many.sls"),
    ]


def test_names_of_entries_are_kept_as_they_are_typed(box: SaltBox) -> None:
    entries = "  on: {function: test.ping, hours: 1}\n  0x1F: {function: test.ping, hours: 1}\n"
    box.write("etc/salt/master.d/zz.conf", f"schedule:\n{entries}")
    looked = looked_at(box)
    assert {"on", "0x1F"} <= looked.settings["schedule"].keys()
    assert told(looked, "schedule.on").where.endswith("zz.conf:2")


def test_a_setting_of_a_module_is_named_as_one(box: SaltBox) -> None:
    box.write("etc/salt/master.d/zz.conf", "mysql.host: db\nown_word: 1\n")
    looked = looked_at(box)
    assert "the module mysql" in told(looked, "mysql.host").words
    assert "not known of any release" in told(looked, "own_word").words


def test_the_inventory_is_one(box: SaltBox, tmp_path: Path) -> None:
    looked = looked_at(box, host_keys=lambda host, port: [f"SHA256:{host}-{port}"])
    path = tmp_path / "ssh-devices.yaml"
    key = box.write("id_salt", "a key\n")
    rows = [{**row, "key_file": str(key)} if "key_file" in row else row for row in looked.devices.ssh]
    path.write_text(inventory_text(rows))
    listed = {entry.name: entry for entry in read_inventory(path)}
    assert set(listed) == {"cam-1", "cam-2", "cam-3", "many-7", "rec-1", "rec-2"}
    assert [entry.fault for entry in listed.values()] == [None] * 6
    assert listed["cam-2"].wish == {
        "name": "cam-2",
        "host": "192.0.2.22",
        "port": 2222,
        "user": "admin",
        "password": "s3cr3t-of-cam-2",
        "login": "password",
        "fingerprints": ["SHA256:192.0.2.22-2222"],
    }
    assert looked.devices.agents == ["nvr-1"]


def test_a_secret_is_in_the_inventory_alone(whole: tuple[SaltBox, Looked]) -> None:
    _, looked = whole
    shown = "\n".join([*lines_of(looked.findings), *(str(fields_of(each)) for each in looked.findings)])
    shown += yaml.safe_dump(looked.settings) + repr(looked) + repr(looked.devices)
    assert [secret for secret in SECRETS if secret in shown] == []
    assert told(looked, "engines.slack").verdict == "not carried"
    assert told(looked, "smtp.password").verdict == "not carried"


def test_what_means_something_else_here_is_made_that(whole: tuple[SaltBox, Looked]) -> None:
    box, looked = whole
    settings = looked.settings
    assert settings["jobs"] == {"keep_hours": 48}
    assert settings["log_level"] == "debug"
    assert settings["file_roots"] == {"base": [f"{box.root}/srv/salt"]}
    assert settings["ssh"] == {"mine_functions": {"status.uptime": []}}
    assert settings["station"]["beacons"] == {"diskusage": [{"/": "80%"}, {"interval": 60}]}
    assert settings["engines"] == {
        "door-log": {
            "engine_module": "logtail",
            "path": "/var/log/door/*.log",
            "pattern": "badge (?P<badge>[0-9]+) refused",
        },
        "badge_printer": None,
    }


def test_the_masters_above_are_those_of_the_syndic(whole: tuple[SaltBox, Looked]) -> None:
    assert whole[1].settings["upstream"] == {
        "type": "salt",
        "masters": ["203.0.113.7", "198.51.100.7"],
        "master_finger": FINGER,
        "master_type": "failover",
        "master_alive_interval": 30,
        "master_failback": True,
        "random_reauth_delay": 60,
        "master_shuffle": True,
        "publish_port": 4505,
    }


def test_without_a_syndic_they_are_those_of_the_minion(tmp_path: Path) -> None:
    box = SaltBox(tmp_path)
    box.write("etc/salt/minion", "id: a.lisbon\nmaster: [203.0.113.7:4606]\nmaster_finger: '00" + ":00" * 15 + "'\n")
    looked = looked_at(box, site="lisbon")
    assert looked.settings["upstream"] == {"type": "salt", "masters": ["203.0.113.7:4606"], "id": "a.lisbon"}
    assert told(looked, "master_finger").verdict == "not carried"
    box.write("etc/salt/minion", "id: lisbon\nauth_timeout: 9\nmaster_type: func\n")
    alone = looked_at(box)
    assert "upstream" not in alone.settings
    assert "no Salt master is named" in told(alone, "auth_timeout").words


OWN = "master_port: 4606\nmaster_finger: 'FINGER'\nverify_master_pubkey_sign: true\n".replace("FINGER", FINGER)
OTHER = ":".join(["ab"] * 32)
UP = {"type": "salt", "masters": ["203.0.113.7"]}
SIGNED = {"master_port": 4606, "verify_master_pubkey_sign": True}


@pytest.mark.parametrize(
    ("master", "minion", "proxy", "above"),
    [
        # A syndic goes up by the port of the minion's file where it has none of its own, and never by its finger.
        ("syndic_master: 203.0.113.7", "", "", UP),
        ("syndic_master: 203.0.113.7", f"master: 127.0.0.1\n{OWN}", "", {**UP, **SIGNED}),
        ("syndic_master: 203.0.113.7\nsyndic_master_port: 4700", OWN, "", {**UP, **SIGNED, "master_port": 4700}),
        ("syndic_master: 203.0.113.7", "", f"master: localhost\n{OWN}", UP),
        ("syndic_master: 203.0.113.7", "", f"master: 198.51.100.9\n{OWN}", UP),
        (f"syndic_master: 203.0.113.7\n{OWN}", "auth_timeout: 9", "auth_timeout: 7", {**UP, "auth_timeout": 9}),
        # What the minion's file says of the syndic goes before what the master's says.
        (
            f"syndic_master: 198.51.100.9\nsyndic_finger: '{OTHER}'",
            f"syndic_master: 203.0.113.7\nsyndic_finger: '{FINGER}'",
            "",
            {**UP, "master_finger": FINGER},
        ),
        ("worker_threads: 5", f"syndic_finger: '{FINGER}'\nmaster: 203.0.113.7", "", UP),
        # Without a syndic it is the proxies, or the minion: each by its own file, unless both have the same masters.
        ("", f"master: 203.0.113.7\n{OWN}", "", {**UP, **SIGNED, "master_finger": FINGER}),
        ("", f"master: 203.0.113.7\n{OWN}", "master: [203.0.113.7]", {**UP, **SIGNED, "master_finger": FINGER}),
        ("", f"master: 198.51.100.9\n{OWN}", "master: 203.0.113.7", UP),
        ("worker_threads: 5", f"master: localhost\n{OWN}", "master: 203.0.113.7", UP),
        (
            "worker_threads: 5",
            "master: 203.0.113.7\nauth_timeout: 9",
            f"master: salt\n{OWN}",
            {**UP, "auth_timeout": 9},
        ),
    ],
)
def test_what_makes_out_a_master_is_taken_from_whoever_went_to_those_above(
    master: str, minion: str, proxy: str, above: dict[str, object], tmp_path: Path
) -> None:
    box = SaltBox(tmp_path)
    box.write("etc/salt/minion_id", "lisbon\n")
    for role, text in (("master", master), ("minion", minion), ("proxy", proxy)):
        box.write(f"etc/salt/{role}", f"{text}\n")
    looked = looked_at(box)
    assert looked.settings["upstream"] == above
    (masters,) = [each for each in looked.findings if each.to == "upstream.masters"]
    missing = not {"master_finger", "verify_master_pubkey_sign"} & above.keys()
    assert ("write upstream.master_finger" in masters.words) is missing
    for role in ("master", "minion", "proxy"):
        keys = [each.what for each in looked.findings if each.where.startswith(f"{box.salt / role}:")]
        assert sorted(keys) == sorted(yaml.safe_load((box.salt / role).read_text()) or {})


def test_a_finger_that_salt_never_compared_is_said_to_be_so(whole: tuple[SaltBox, Looked]) -> None:
    assert "nobody compared it" in told(whole[1], "syndic_finger").words


def test_what_is_about_the_boxs_own_master_is_not_asked_for_again(tmp_path: Path) -> None:
    box = SaltBox(tmp_path)
    box.write("etc/salt/master", "worker_threads: 5\n")
    box.write("etc/salt/minion", f"id: lisbon\nmaster: 127.0.0.1\n{OWN}")
    looked = looked_at(box)
    assert "upstream" not in looked.settings
    assert told(looked, "master_finger").verdict == "no meaning"
    assert "of this box" in told(looked, "master_finger").words


def test_what_the_reader_does_not_take_is_left_out_and_the_rest_stays(box: SaltBox) -> None:
    box.write(
        "etc/salt/master.d/wrong.conf", "loop_interval: never\nnodegroups:\n  broken: 'G@ and ('\n  good: 'cam-*'\n"
    )
    looked = looked_at(box)
    assert told(looked, "loop_interval").verdict == "not carried"
    assert told(looked, "nodegroups.broken").verdict == "not carried"
    assert looked.settings["nodegroups"] == {"good": "cam-*"}
    assert "loop_interval" not in looked.settings


def test_a_name_may_have_a_slash(box: SaltBox) -> None:
    box.write("etc/salt/master.d/slash.conf", "nodegroups:\n  web: 'cam-*'\n  web/eu: 'cam-1*'\n  a~1b: 'cam-2*'\n")
    assert looked_at(box).settings["nodegroups"] == {"web": "cam-*", "web/eu": "cam-1*", "a~1b": "cam-2*"}


@pytest.mark.parametrize("key", ["pass", "pwd", "psk", "db_pass", "auth", "snmp_auth", "credentials"])
def test_a_secret_is_known_by_any_of_its_usual_names(key: str) -> None:
    assert holds_secret({"badge": {"user": "x", key: "hunter2"}})
    assert holds_secret({"badge": [{key: ["hunter2"]}]})
    assert not holds_secret({"passes": 3, "author": "x", "spins": "y"})


def test_settings_that_are_there_stay(box: SaltBox, tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text("name: faro\nlog_level: info\nstation:\n  grains: {floor: 9}\n")
    looked = looked_at(box, there=written(config))
    assert looked.site == "faro"
    assert "log_level" not in looked.settings
    assert "grains" not in looked.settings["station"]
    (kept,) = [each for each in looked.findings if each.what == "grains" and "station" not in each.to]
    assert (kept.verdict, kept.words) == ("no meaning", f"{config}:4 says it already")


@pytest.mark.parametrize(
    ("path", "text", "where"),
    [
        ("etc/salt/minion.d/bad.conf", "a: 1\nb: [1\nc: 2\n", "etc/salt/minion.d/bad.conf:3"),
        ("etc/salt/master.d/twice.conf", "a: 1\nb: 2\na: 3\n", "etc/salt/master.d/twice.conf:3"),
        ("etc/salt/proxy.d/latin.conf", "a: 1\nb: \udcff\n", "etc/salt/proxy.d/latin.conf:2"),
        ("etc/salt/roster", "rec-1: {host: [\n", "etc/salt/roster:2"),
        ("srv/pillar/cams/cam-1.sls", "proxy:\n  host: {{ nobody.knows }}\n", "srv/pillar/cams/cam-1.sls:2"),
        ("srv/pillar/switch.sls", "proxy:\n  host: [1\n", "srv/pillar/switch.sls"),
        ("srv/pillar/top.sls", "base:\n  '*': [{% if %}]\n", "srv/pillar/top.sls:2"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_line_and_takes_nothing_else_along(
    path: str, text: str, where: str, box: SaltBox, whole: tuple[SaltBox, Looked]
) -> None:
    roots = (str(whole[0].root), str(box.root))
    before = {(each.what, each.where.replace(*roots)) for each in whole[1].findings}
    file = box.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    looked = looked_at(box)
    wrong = [each for each in looked.findings if each.verdict == "wrong"]
    assert looked.wrong
    assert any(each.where.startswith(str(box.root / where)) for each in wrong), wrong
    told_now = {(each.what, each.where) for each in looked.findings}
    lost = {each for each in before - told_now if not each[1].startswith(str(file))}
    # Whose names a top file says, nobody else knows.
    assert not lost or path.endswith(("top.sls", "roster"))


def test_a_box_without_an_id_asks_for_a_name(box: SaltBox) -> None:
    box.write("etc/salt/minion", "log_level: info\n")
    with pytest.raises(UsageInvalid, match="name of its site") as error:
        looked_at(box)
    assert error.value.hint == "outstation gateway import-salt --name NAME"
    assert looked_at(box, site="porto").site == "porto"
    box.write("etc/salt/minion_id", "braga\n")
    assert looked_at(box).site == "braga"


def test_a_folder_without_salt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageInvalid, match="no settings of Salt"):
        look(Asked(tmp_path))


def test_files_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    writing = Writing()
    writing.add(tmp_path / "new" / "a.yaml", "a: 1\n")
    writing.add(tmp_path / "new" / "b.yaml", "b: 1\n", secret=True)
    writing.write()
    assert stat.S_IMODE((tmp_path / "new/a.yaml").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "new/b.yaml").stat().st_mode) == 0o600
    again = Writing()
    again.add(tmp_path / "new" / "c.yaml", "c: 1\n")
    again.add(tmp_path / "new" / "a.yaml", "a: 2\n")
    with pytest.raises(UsageInvalid, match="nothing is ever replaced"):
        again.write()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["a.yaml", "b.yaml"]
    assert (tmp_path / "new/a.yaml").read_text() == "a: 1\n"


def test_no_key_stands_in_two_tables() -> None:
    rows = [*NO_MEANING.values(), *NOT_CARRIED.values()]
    names = Counter([name for row in rows for name in row.split()] + list(SAME) + list(UPSTREAM))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_box_of_the_tests_has_the_proxies_it_is_looked_at_for() -> None:
    assert sum("proxytype" in text for text in PILLAR.values()) == len(PILLAR) - 1
