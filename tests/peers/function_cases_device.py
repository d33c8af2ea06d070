"""Calls of test.*, sys.*, saltutil.*, config.* and grains.*, and what must come of them."""

from __future__ import annotations

from device_agent import __version__
from tests.peers.function_case import GRAINS, SETTINGS, Case

TEST = (
    Case("test.ping", value=True),
    Case("test.echo", ("foo bar",), value="foo bar"),
    Case("test.sleep", (0,), value=True),
    Case("test.rand_sleep", (0,), value=True),
    Case("test.true", value=True),
    Case("test.false", value=False),
    Case("test.arg", (1, "two"), {"txt": "three"}, value={"args": [1, "two"], "kwargs": {"txt": "three"}}),
    Case("test.kwarg", (), {"num": 1, "txt": "two"}, value={"num": 1, "txt": "two"}),
    Case(
        "test.arg_type",
        (1, "two"),
        {"a": 2.5},
        value={"args": ["<class 'int'>", "<class 'str'>"], "kwargs": {"a": "<class 'float'>"}},
    ),
    Case("test.arg_repr", (1, "two"), {"a": 2}, value={"args": "(1, 'two')", "kwargs": "{'a': 2}"}),
    Case("test.version", value=__version__, salt="shape"),
    Case("test.versions", check=lambda text: "Outstation:" in text and "msgspec:" in text, salt="shape"),
    Case("test.versions_report", check=lambda text: "Outstation:" in text, salt="shape"),
    Case(
        "test.versions_information",
        check=lambda found: found["Salt Version"] == {"Outstation": __version__},
        salt="shape",
    ),
    Case("test.not_loaded", value=[], salt="shape"),
    Case("test.retcode", (3,), value=True, outcome="failed", why="the return code is 3"),
    Case("test.retcode", (0,), value=True),
    Case("test.exception", ("Oh noes!",), outcome="failed", why="Oh noes!"),
    Case("test.assertion", (True,), value=None),
    Case("test.assertion", (False,), outcome="failed", why="does not hold"),
    Case("test.random_hash", check=lambda text: len(text) == 64, salt="shape"),
    Case("test.random_hash", (), {"hash_type": "md5"}, check=lambda text: len(text) == 32, salt="shape"),
    Case("test.random_hash", (), {"hash_type": "md6"}, outcome="failed", why="allowed: md5"),
    Case("test.fail", ("out of film", 3), outcome="failed", why="out of film", salt="no"),
)
SYS = (
    Case("sys.list_functions", ("test.p*",), value=["test.ping"], salt="shape"),
    Case("sys.list_modules", ("test",), value=["test"]),
    Case("sys.doc", ("test.ping",), check=lambda found: "CLI Example:" in found["test.ping"], salt="shape"),
    Case(
        "sys.argspec",
        ("file.copy",),
        value={
            "file.copy": {
                "args": ["src", "dst", "recurse", "remove_existing"],
                "varargs": None,
                "kwargs": None,
                "defaults": [False, False],
            }
        },
    ),
    Case("sys.argspec", ("test.arg",), check=lambda found: found["test.arg"]["kwargs"] is True),
    Case("sys.reload_modules", value=True),
)

SALTUTIL = (
    Case("saltutil.running", value=[]),
    Case("saltutil.find_job", ("20231114221320250000",), value={}),
    Case("saltutil.is_running", ("cmd.*",), value=[]),
    Case("saltutil.kill_job", ("20231114221320250000",), value=""),
    Case("saltutil.term_job", ("20231114221320250000",), value=""),
    Case("saltutil.kill_all_jobs", value=[]),
    Case("saltutil.term_all_jobs", value=[]),
    Case("saltutil.refresh_grains", value=True, salt="no"),
    Case("saltutil.sync_grains", value=[]),
    *(
        Case(f"saltutil.sync_{kind}", value=[], salt="no" if kind == "runners" else "value")
        for kind in ("modules", "beacons", "engines", "runners", "states")
    ),
    Case("saltutil.sync_modules", ("base,dev",), {"refresh": False}, value=[], salt="no"),
    Case("saltutil.sync_all", check=lambda found: found["modules"] == found["states"] == [], salt="no"),
)

CONFIG = (
    Case("config.get", ("broker:host",), value="192.0.2.10"),
    Case("config.get", ("broker/port", 0, "/"), value=1883),
    Case("config.get", ("os",), value="Debian"),
    Case("config.get", ("os", "none"), {"omit_grains": True}, value="none"),
    Case("config.get", ("log_level", "none"), {"omit_opts": True}, value="none"),
    Case("config.get", ("absent",), value=""),
    Case("config.option", ("log_level",), value="info"),
    Case("config.option", ("os",), value="Debian"),
    Case("config.option", ("os_fam*",), {"wildcard": True}, value={"os_family": "Debian"}),
    Case("config.option", ("os", "x"), {"omit_all": True}, value="x"),
    Case("config.merge", ("broker",), value=SETTINGS["broker"]),
    Case("config.merge", ("os", "none"), value="none"),
    Case("config.dot_vals", ("host",), value={"host.user": "camera"}),
    Case("config.items", value=SETTINGS, salt="shape"),
    Case("config.manage_mode", ("644",), value="0644"),
)

GRAINS_CASES = (
    Case("grains.items", value=GRAINS, salt="shape"),
    Case("grains.items", (True,), check=lambda found: found["serialnumber"] != "X1", salt="no"),
    Case("grains.item", ("os", "absent"), value={"os": "Debian", "absent": ""}),
    Case("grains.ls", check=lambda names: names == sorted(GRAINS), salt="shape"),
    Case("grains.get", ("location:room:name",), value="Dock"),
    Case("grains.get", ("disks:name",), value="sda"),
    Case("grains.get", ("roles:1",), value="edge"),
    Case("grains.get", ("absent", "else"), value="else"),
    Case("grains.fetch", ("os",), value="Debian"),
    Case("grains.has_value", ("os",), value=True),
    Case("grains.has_value", ("nothing",), value=True),
    Case("grains.has_value", ("absent",), value=False),
    Case("grains.equals", ("os", "Debian"), value=True),
    Case("grains.equals", ("os", "Alpine"), value=False),
    Case("grains.filter_by", ({"Debian": {"pkg": "apt"}, "default": 1},), value={"pkg": "apt"}),
    Case("grains.filter_by", ({"Alpine": "apk", "default": "opkg"},), value="opkg"),
    Case(
        "grains.filter_by",
        ({"Debian": {"a": 1}, "below": {"b": 2}},),
        {"base": "below", "merge": {"c": 3}},
        value={"a": 1, "b": 2, "c": 3},
    ),
    Case("grains.setval", ("floor", 3), value={"floor": 3}, leaves=("cat grains", "floor: 3\n")),
    Case(
        "grains.setval",
        ("floor", 3),
        given="echo 'wing: north' > grains",
        leaves=("cat grains", "floor: 3\nwing: north\n"),
        salt="no",
    ),
    Case(
        "grains.setval",
        ("floor", 3),
        given="echo '{' > grains",
        outcome="failed",
        why="cannot be read as YAML",
        salt="no",
    ),
    Case("grains.setvals", ({"floor": 3, "wing": "north"},), value={"floor": 3, "wing": "north"}),
    Case(
        "grains.set",
        ("place:room", "dock"),
        value={"comment": "", "changes": {"place": {"room": "dock"}}, "result": True},
    ),
    Case("grains.set", ("os", "Debian"), value={"comment": "Grain is already set", "changes": {}, "result": True}),
    Case(
        "grains.set", ("roles", "one"), check=lambda said: said["result"] is False and "force=True" in said["comment"]
    ),
    Case("grains.set", ("os:deep", 1), check=lambda said: said["result"] is False and "different" in said["comment"]),
    Case("grains.append", ("zones", "a"), value={"zones": ["a"]}, leaves=("cat grains", "zones:\n- a\n")),
    Case("grains.append", ("roles", "edge"), value="The val edge was already in the list roles"),
    Case("grains.append", ("os", "edge"), value="The key os is not a valid list"),
    Case("grains.append", ("os", "edge", True), value={"os": ["Debian", "edge"]}),
    Case("grains.append", ("place:zones", "a"), value={"place": {"zones": ["a"]}}),
    Case("grains.remove", ("roles", "edge"), value={"roles": ["camera"]}),
    Case("grains.remove", ("roles", "x"), value="The val x was not in the list roles"),
    Case("grains.delval", ("os",), value={"comment": "", "changes": {"os": None}, "result": True}),
    Case("grains.delkey", ("os",), value={"comment": "", "changes": {"os": None}, "result": True}),
)

CASES = (*TEST, *SYS, *SALTUTIL, *CONFIG, *GRAINS_CASES)
