"""A gateway burns, or is stolen: another takes its place from a backup, and nobody goes to a device."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gateway.cli.key_views import KeyView
from tests.peers.system import System, assert_exactly_once, one_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 20
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]


def gateway_command(site: System, verb: str, *options: str) -> dict[str, object]:
    """``gateway backup`` or ``gateway restore``; what it says."""
    passphrase = site.folder / "passphrase"
    passphrase.write_text("correct horse battery staple\n")
    passphrase.chmod(0o600)
    finished = site.command(
        "gateway",
        verb,
        f"--config={site.folder / 'lisbon.yaml'}",
        f"--passphrase-file={passphrase}",
        "--json",
        *options,
        str(site.folder / "lisbon.backup"),
        status=0,
    )
    said: dict[str, object] = json.loads(finished.out)
    return said


def test_after_a_fire_a_restored_gateway_goes_on_with_every_device() -> None:
    with one_site(DEVICES) as site:
        backup = gateway_command(site, "backup")
        assert backup["devices"] == {"accepted": DEVICES}
        # The gateway goes on for a while: one device is put out, and the group key changes with it.
        site.command("keys", "revoke", IDS[0], "--why", "stolen", "--yes", station="lisbon", status=0)
        site.present(DEVICES - 1)
        assert_exactly_once(site.ended("central", site.issue("central", "*", "test.ping")), IDS[1:])
        site.kill("lisbon")
        shutil.rmtree(site.state_of("lisbon"))
        restored = gateway_command(site, "restore")
        assert restored["names"] == IDS
        assert not restored["new_keys"]
        site.restart("lisbon")
        # Nobody accepts anything. The master knows who was put out meanwhile, and says so.
        site.connected("lisbon")
        site.present(DEVICES - 1)
        assert_exactly_once(site.ended("central", site.issue("central", "*", "test.ping")), IDS[1:])
        assert_exactly_once(site.ended("lisbon", site.issue("lisbon", "*", "test.ping")), IDS[1:])
        (deed,) = site.command("audit", "list", "--action", "gateway.restore", "--json", status=0).out.splitlines()
        assert json.loads(deed)["site"] == "lisbon"


def test_after_a_theft_a_gateway_with_new_keys_takes_the_devices_over() -> None:
    with one_site(DEVICES) as site:
        gateway_command(site, "backup", "--without-keys")
        site.kill("lisbon")
        stolen = site.state_of("lisbon").rename(site.folder / "stolen")
        restored = gateway_command(site, "restore")
        assert restored["new_keys"]
        site.command("sites", "revoke", "lisbon", "--why", "stolen", "--yes", status=0)
        site.restart("lisbon")
        site.until(
            lambda: any((key.state, key.fingerprint) == ("pending", restored["fingerprint"]) for key in keys(site)),
            "the new key asks",
        )
        site.command("keys", "accept", "lisbon", "--fingerprint", str(restored["fingerprint"]), status=0)
        site.connected("lisbon")
        site.certified("lisbon")
        site.present(DEVICES)
        site.until(lambda: site.counters("lisbon")["certificates_renewed"] == DEVICES, "every certificate is renewed")
        assert_exactly_once(site.ended("central", site.issue("central", "*", "test.ping")), IDS)
        assert_exactly_once(site.ended("lisbon", site.issue("lisbon", "*", "test.ping")), IDS)
        assert not same_keys(stolen, site.state_of("lisbon"))


def keys(site: System) -> list[KeyView]:
    """The keys that the master knows."""
    return list(site.stations["central"].keys().keys)


def same_keys(one: Path, other: Path) -> bool:
    return any((one / name).read_bytes() == (other / name).read_bytes() for name in ("trust.keys", "curve.key"))
