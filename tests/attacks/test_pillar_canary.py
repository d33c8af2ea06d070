"""A secret in the pillar of one device is nowhere but in that device: not on the network, not at the broker, not with
another device, not on the disk or in the log of any station, and not in what another role is shown.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.identity import IdentityFile
from gateway.cli.key_client import KeyClient
from tests.peers.broker import free_port
from tests.peers.canaries import Canary, found_in
from tests.peers.pillar_site import write_tree
from tests.peers.sniffer import Sniffer
from tests.peers.system import System, whole_system
from tests.peers.tap import Tap

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE, OWNER, NEIGHBOUR, THIEF = "lisbon", "cam-gate", "cam-yard", "thief"
THERE = "127.0.0.3"
"""Where the cameras believe their broker to be."""

LOOKS = (
    ("pillar.items",),
    ("pillar.get", "password"),
    ("pillar.raw",),
    ("pillar.keys", "password"),
    ("pillar.obfuscate",),
    ("config.get", "password"),
    ("saltutil.refresh_pillar",),
    ("pillar.get", "password", 7, "no flag"),
    ("test.ping",),
)
PATHS = ("/station", "/check", "/metrics", "/spool", "/jobs", "/devices", "/keys", "/audit", "/fleet")


def tree(canary: Canary) -> dict[str, str]:
    """The secret by the name of one device; and in files that do not render, where their errors quote it."""
    text = canary.text
    return {
        "top.sls": f"base:\n  {OWNER}: [gate, bad1, bad2, bad3, bad4, bad5]\n  '*': [all]\n",
        "gate.sls": f"password: '{text}'\nnested: {{list: ['{text}', {{deep: '{text}'}}]}}\n",
        "bad1.sls": f"{{{{ nope_{text} }}}} {text}",
        "bad2.sls": f"a: {text}\n  b: {text}\n",
        "bad3.sls": f"{{{{ raise('{text}') }}}}",
        "bad4.sls": f"{{{{ '{text}' | int('x').bit_length('{text}') }}}}",
        "bad5.sls": f"{text}: 1\n{text}: 2\n",
        "all.sls": "x: 1\n",
    }


@pytest.fixture
def system() -> Iterator[System]:
    with whole_system() as made:
        yield made


def test_a_canary_is_in_no_byte_that_others_can_read(system: System, tmp_path: Path) -> None:
    canary = Canary("the secret of one device")
    roots = write_tree(tmp_path / "roots", tree(canary))
    policy = tmp_path / "policy.yaml"
    policy.write_text("users: {root: viewer}\n")
    policy.chmod(0o600)
    port, enroll_port = free_port(), free_port()
    system.add_master(pillar_roots={"base": [str(roots)]})
    gateway = system.add_gateway(SITE, "central", broker={"port": port, "enroll_port": enroll_port})
    system.join(SITE)
    with Sniffer(THERE, [port, enroll_port]) as sniffer:
        for name in (OWNER, NEIGHBOUR, THIEF):
            [token] = KeyClient(gateway).new_tokens({"uses": 1, "name": name, "address": f"{THERE}:{enroll_port}"})
            (system.folder / f"{name}.token").write_text(token.text)
            system.add_agent(name, SITE)
        system.present(3)
        # The broker knows one connection of a device: who listens in its name has it to himself.
        system.stop(THIEF)
        thief = IdentityFile(system.folder / THIEF).load()
        assert thief is not None
        with Tap(port, "#", "os/#", username=thief.did, password=thief.password) as tap:
            for fun, *arg in LOOKS:
                answers = run(system, "central", fun, *arg)
                assert set(answers) == {OWNER, NEIGHBOUR}
            assert run(system, "central", "pillar.ls")[OWNER] == ["password", "nested", "x", "_errors"]
            assert run(system, "central", "pillar.ls")[NEIGHBOUR] == ["x"]
            # Whoever may see it, where it is made, does; and what does not render is explained to him.
            seen = system.command("pillar", "show", OWNER, status=1)
            assert canary.text in seen.out
            assert "bad1.sls, line 1" in seen.error
            assert canary.text not in system.command("pillar", "show", NEIGHBOUR, status=0).out
            # Another role, where it is kept, is shown nothing of it.
            system.change(SITE, policy=str(policy))
            system.children[SITE].process.send_signal(signal.SIGHUP)
            system.until(lambda: system.view(SITE, "/operators/me")["roles"] == ["viewer"], "the policy counts")
            status, refused = system.ask(SITE, "GET", f"/devices/{OWNER}/pillar")
            assert status == 403
            assert run(system, "central", "pillar.items")[NEIGHBOUR] == {"x": "**********"}
            shown = [refused, *(system.ask(SITE, "GET", path)[1] for path in PATHS)]
            found = {f"topic {topic}": payload for topic, payload in tap.heard()}
        found |= {f"stream {number}": stream for number, stream in enumerate(sniffer.captured)}
        found |= {f"answer {number}": body for number, body in enumerate(shown)}
        for child in (*system.children,):
            found[f"log of {child}"] = system.log(child).encode()
        found |= {
            str(path.relative_to(system.folder)): path.read_bytes()
            for path in system.folder.rglob("*")
            if path.is_file() and not path.is_socket()
        }
        assert {"central/station.sqlite", f"{SITE}/station.sqlite"} <= set(found)
        assert b"pillar does not render file=base:bad1.sls line=1" in found["log of central"]
        assert {
            name: found_in([canary], content) for name, content in found.items() if found_in([canary], content)
        } == {}
        audited = system.command("audit", "list", "--json", status=0).out
        assert "pillar.show" in audited
        assert canary.text not in audited
        # The search would have found it: what is asked for with ``unmask`` is a return like any other.
        assert run(system, "central", "pillar.get", "password", unmask=True)[OWNER] == canary.text
        kept = b"".join(path.read_bytes() for path in (system.folder / "central").glob("station.sqlite*"))
        assert found_in([canary], kept)


def run(system: System, station: str, fun: str, *arg: Any, **kwarg: Any) -> dict[str, Any]:
    """A job on all devices; what each returned."""
    ended = system.ended(station, system.issue(station, "cam-*", fun, *arg, kwarg=kwarg))
    # A device that could not answer had nothing to show; what it was asked shows whether one is hidden from it.
    assert set(ended.words().values()) <= {"ok", "failed", "refused"}, ended.words()
    return {name: outcome.value for name, outcome in ended.by_device().items()}
