"""The rules in ``examples/reactor`` as they would lie on a station, and for each file an event and what comes of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "reactor"
INSTALLED = "/etc/outstation/reactor"
"""Where the examples say that they are."""

SCRATCH = "/var/tmp"
"""Where they write: below the folder of a test instead."""


@dataclass(frozen=True)
class Call:
    """One reaction: under which id it stands, the function with its type, for whom, and with what."""

    id: str
    said: str
    tgt: str = ""
    tgt_type: str = "glob"
    arg: list[Any] = field(default_factory=list)
    kwarg: dict[str, Any] = field(default_factory=dict)

    @property
    def fun(self) -> str:
        """The function alone."""
        return self.said.partition(".")[2]

    @property
    def kind(self) -> str:
        """The type alone."""
        return self.said.partition(".")[0]


@dataclass(frozen=True)
class Example:
    """An event, the files that see it, and the reactions in their order."""

    tag: str
    data: dict[str, Any]
    files: list[str]
    calls: list[Call] = field(default_factory=list)
    warned: tuple[str, ...] = ()
    """Files that say something which has no meaning here yet."""

    def __str__(self) -> str:
        return f"{self.tag} {' '.join(map(str, self.data.values()))}"[:80]


def auth(act: str, named: str) -> dict[str, Any]:
    """What a station says of a device that asks."""
    return {"id": named, "act": act, "result": act in {"pend", "accept"}, "did": "k5ln7wrg3"}


ALERTS = "salt/engines/hook/alertmanager"
STARTS = ["start.sls", "monitor.sls", "sync_grains.sls"]
LINUX = ("kernel:Linux", "grain")

EXAMPLES_OF_RULES = [
    Example(
        "salt/minion/cam-1/start",
        {"id": "cam-1"},
        STARTS,
        [
            Call("look_at_its_disks", "local.disk.usage", "cam-1"),
            Call("refresh_its_grains", "local.saltutil.refresh_grains", "cam-1"),
            Call("sync_grains", "local.saltutil.sync_grains", "cam-1"),
        ],
    ),
    Example(
        "salt/minion/ink-7/start",
        {"id": "ink-7"},
        [*STARTS, "auth-complete.sls"],
        [
            Call("highstate_run", "local.state.apply", "ink-7"),
            Call("look_at_its_disks", "local.disk.usage", "ink-7"),
            Call("refresh_its_grains", "local.saltutil.refresh_grains", "ink-7"),
            Call("sync_grains", "local.saltutil.sync_grains", "ink-7"),
        ],
    ),
    Example(
        "site/camera/cam-1/removed",
        {"by": "anna"},
        ["destroy/10-forget.sls", "destroy/20-recorders.sls"],
        [
            Call("forget_what_it_left", "local.mine.flush", "cam-1"),
            Call(
                "tell_its_recorders",
                "local.event.send",
                "recorder:True",
                "grain",
                kwarg={"tag": "site/recorder/forget", "data": {"camera": "cam-1"}},
            ),
        ],
    ),
    Example("site/camera/cam-1/removed", {"id": "cam-2"}, ["destroy/10-forget.sls", "destroy/20-recorders.sls"]),
    Example(
        "myco/custom/event/tag",
        {"id": "cam-1", "note": "hello"},
        ["salt://reactor/mycustom.sls", "salt://reactor/mycustom.sls?saltenv=reactor"],
        [
            Call("from_base", "local.test.echo", "cam-1", kwarg={"text": "myco/custom/event/tag"}),
            Call("from_reactor", "local.test.echo", "cam-1", kwarg={"text": "hello"}),
        ],
    ),
    Example(
        "site/recorder/joined",
        {"id": "recorder-1"},
        ["highstate_run.sls"],
        [Call("highstate_run", "local.state.apply", "recorder-1")],
    ),
    Example("site/recorder/joined", {"id": "recorder-2"}, ["highstate_run.sls"]),
    Example(
        "site/runit",
        {"custom_var": "runit"},
        ["call_runit_orch.sls"],
        [Call("call_runit_orch", "runner.state.orchestrate", kwarg={"mods": "orchestrate.runit"})],
    ),
    Example("site/runit", {"custom_var": "walkit"}, ["call_runit_orch.sls"]),
    Example(
        "site/schema/local",
        {},
        ["local_new.sls", "local_old.sls"],
        [
            Call(
                "install_zsh_as_before",
                "local.state.single",
                *LINUX,
                arg=["pkg.installed", "zsh"],
                kwarg={"fromrepo": "updates"},
            ),
            Call(
                "install_zsh",
                "local.state.single",
                *LINUX,
                kwarg={"fun": "pkg.installed", "name": "zsh", "fromrepo": "updates"},
            ),
        ],
    ),
    Example(
        "site/schema/runner",
        {"bar": "baz"},
        ["runner_new.sls", "runner_old.sls"],
        [
            Call(
                name,
                "runner.state.orchestrate",
                kwarg={
                    "mods": "orchestrate.deploy_app",
                    "pillar": {"event_tag": "site/schema/runner", "event_data": {"bar": "baz"}},
                },
            )
            for name in ("deploy_app_as_before", "deploy_app")
        ],
    ),
    Example(
        "site/schema/wheel",
        {"id": "cam-3"},
        ["wheel_new.sls", "wheel_old.sls"],
        [Call(name, "wheel.key.delete", kwarg={"match": "cam-3"}) for name in ("remove_key_as_before", "remove_key")],
    ),
    Example(
        "site/schema/caller",
        {},
        ["caller_new.sls", "caller_old.sls"],
        [
            Call("touch_file_as_before", "caller.file.touch", arg=["/var/tmp/foo"]),
            Call("touch_file", "caller.file.touch", kwarg={"name": "/var/tmp/foo"}),
        ],
    ),
    Example(
        "site/schema/command",
        {"id": "cam-1"},
        ["command.sls"],
        [
            Call("uptime_as_before", "cmd.cmd.run", "cam-1", arg=["uptime -s"]),
            Call("uptime", "local.cmd.run", "cam-1", arg=["uptime -p"]),
        ],
    ),
    Example(
        "my/custom/event",
        {"foo": "Foo!", "bar": "cam*", "baz": "Baz!"},
        ["some_event.sls"],
        [
            Call(
                "invoke_orchestrate_file",
                "runner.state.orchestrate",
                kwarg={
                    "mods": "orchestrate.do_complex_thing",
                    "pillar": {
                        "event_tag": "my/custom/event",
                        "event_data": {"foo": "Foo!", "bar": "cam*", "baz": "Baz!"},
                    },
                },
            )
        ],
    ),
    Example("my/custom/event", {"id": "cam-1", "bar": "*"}, ["some_event.sls"]),
    Example(
        "my/own/event",
        {"foo": "Foo!", "bar": "cam*", "baz": "Baz!"},
        ["custom_event.sls"],
        [
            Call(
                "invoke_custom_runner",
                "runner.state.orchestrate",
                kwarg={
                    "mods": "orchestrate.do_custom_thing",
                    "pillar": {
                        "event_tag": "my/own/event",
                        "event_data": {"foo": "Foo!", "bar": "cam*", "baz": "Baz!"},
                    },
                },
            )
        ],
    ),
    Example("my/own/event", {"id": "cam-1", "bar": "*"}, ["custom_event.sls"]),
    Example(
        "site/stuff",
        {},
        ["orchestrate_with_pillar.sls"],
        [
            Call(
                "another_orchestrate",
                "runner.state.orchestrate",
                kwarg={"mods": "orchestrate.some_orchestrate_file", "pillar": {"stuff": "things"}},
            )
        ],
    ),
    Example(
        "foo",
        {"orchestrate": "refresh"},
        ["foo.sls"],
        [Call("refresh_everybody", "local.saltutil.refresh_grains", "*")],
    ),
    Example(
        "foo",
        {"id": "cam-1", "tag": "foo", "cmd": "_minion_event", "data": {"orchestrate": "refresh"}},
        ["foo.sls"],
        [Call("refresh_everybody", "local.saltutil.refresh_grains", "*")],
    ),
    Example(
        "salt/beacon/cam-1/diskusage/",
        {"id": "cam-1", "diskusage": 97.0, "mount": "/media/card"},
        ["disk_full.sls"],
        [
            Call("make_room", "local.file.remove", "cam-1", kwarg={"path": "/media/card/clips"}),
            Call(
                "neighbours_take_a_picture",
                "local.camera.snapshot",
                "G@area:gate and not cam-1",
                "compound",
                kwarg={"path": "/snapshot.jpg"},
            ),
        ],
    ),
    Example(
        "salt/beacon/cam-2/load/",
        {"id": "cam-2", "1m": 8.5, "5m": 7.25, "15m": 7.0},
        ["beacon.sls"],
        [
            Call("look_who_works_so_hard", "local.status.procs", "cam-2"),
            Call("tell_its_load", "local.event.send", "cam-2", kwarg={"tag": "site/busy", "data": {"load": 8.5}}),
        ],
    ),
    Example(
        f"{ALERTS}/firing/DiskFull",
        {"status": "firing", "alertname": "DiskFull", "labels": {"instance": "cam-1", "mountpoint": "/"}},
        ["alert.sls"],
        [
            Call("look_at_its_disks", "local.disk.usage", "cam-1"),
            Call("look_at_its_load", "local.status.loadavg", "cam-1"),
        ],
    ),
    Example(f"{ALERTS}/firing/DiskFull", {"labels": {"instance": "cam-*"}}, ["alert.sls"]),
    Example(f"{ALERTS}/firing/DiskFull", {"labels": {"instance": "www.example.org"}}, ["alert.sls"]),
    Example(
        "salt/key",
        {"id": "cam-8", "act": "accept", "result": True},
        ["haproxy/react_new_minion.sls"],
        [
            Call(
                "add_new_minion_to_pool",
                "local.state.apply",
                "haproxy*",
                kwarg={"mods": "haproxy.refresh_pool", "pillar": {"new_minion": "cam-8"}},
            ),
            Call(
                "write_pool",
                "runner.state.orchestrate",
                kwarg={"mods": "orchestrate.write_pool", "pillar": {"new_minion": "cam-8", "kept": {}}},
            ),
        ],
    ),
    Example("salt/key", {"id": "cam-8", "act": "reject", "result": True}, ["haproxy/react_new_minion.sls"]),
    Example("salt/key", {"id": "door-1", "act": "accept", "result": True}, ["haproxy/react_new_minion.sls"]),
    Example(
        "salt/auth",
        auth("pend", "ink-4711"),
        ["auth-pending.sls"],
        [Call("minion_add", "wheel.key.accept", kwarg={"match": "ink-4711"})],
    ),
    Example(
        "salt/auth",
        auth("denied", "ink-4711"),
        ["auth-pending.sls"],
        [
            Call(
                "minion_rejoin",
                "local.cmd.run",
                "installer.lisbon.example",
                kwarg={"cmd": "ssh -o BatchMode=yes \"ink-4711\" 'sleep 10 && /etc/init.d/outstation-agent restart'"},
            ),
            Call("minion_remove", "wheel.key.delete", kwarg={"match": "ink-4711"}),
        ],
    ),
    Example("salt/auth", auth("pend", "dome-4711"), ["auth-pending.sls"]),
    Example("salt/auth", auth("accept", "ink-4711"), ["auth-pending.sls"]),
    Example("salt/auth", auth("denied", "k5ln7wrg3"), ["auth-pending.sls"]),
]
"""Each file with an event that it is for, and with one that it is not for where it looks at the data."""


def installed(folder: Path) -> dict[str, Any]:
    """Copy the examples into a folder; the settings of a station that has them there."""
    at = folder / "reactor"
    if not at.exists():
        shutil.copytree(EXAMPLES, at)
        rules = at / "map.yaml"
        rules.write_text(rules.read_text(encoding="utf-8").replace(INSTALLED, str(at)), encoding="utf-8")
        for file in at.rglob("*.sls"):
            file.write_text(file.read_text(encoding="utf-8").replace(SCRATCH, str(folder)), encoding="utf-8")
    return {
        "reactor": str(at / "map.yaml"),
        "file_roots": {"base": [str(at / "served")], "reactor": [str(at / "served-reactor")]},
        "station": {"grants": ["looks", "file.touch"]},
    }
