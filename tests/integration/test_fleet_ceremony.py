"""The root ceremony on real files: keys, root lists, signatures at different times, an offline site authority."""

from __future__ import annotations

import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid, NotFound, OutstationError, Refused, UsageInvalid
from device_agent.trust.chain import Anchor
from device_agent.trust.keys import SigningKey, fingerprint
from device_agent.trust.policy import DEFAULT_GRANTS, check_function
from device_agent.trust.root_list import MASTER_ROLES, MasterKey, follow, root_fingerprint
from gateway.devices.authority import Authority
from gateway.fleet import armor
from gateway.fleet.bundle import read_bundle
from gateway.fleet.ceremony import ROOT_LISTS, UNFINISHED, Ceremony
from gateway.fleet.description import describe, read_description
from gateway.fleet.grants import Grant
from gateway.fleet.joining import join_with_bundle, publish
from gateway.fleet.root_keys import read_root_key
from gateway.fleet.site_authority import read_request, sign_site
from tests.peers.clock import STARTED_WALL, HandClock
from tests.peers.fleet import party
from tests.peers.rope import new_keys

DAY = 86_400


@pytest.fixture
def ceremony(tmp_path: Path) -> Ceremony:
    made = Ceremony(tmp_path / "fleet")
    made.begin(STARTED_WALL, standalone=False)
    return made


def medium(ceremony: Ceremony, name: str) -> Path:
    """Take a root key to a medium of its own."""
    folder = ceremony.folder.parent / f"medium of {name}"
    folder.mkdir(exist_ok=True)
    path = ceremony.folder / f"{name}.key"
    return Path(shutil.move(path, folder)) if path.exists() else folder / path.name


def media(ceremony: Ceremony) -> dict[str, Path]:
    return {name: medium(ceremony, name) for name in ("root-1", "root-2", "root-3")}


def a_master(name: str = "master-a") -> MasterKey:
    return party(name).as_master(())


def test_a_fleet_begins_with_three_keys_for_their_owner_alone_and_one_root_list(ceremony: Ceremony) -> None:
    root = ceremony.current()
    assert (root.version, root.threshold, root.masters, root.issued) == (1, 2, (), int(STARTED_WALL))
    keys = [read_root_key(path) for path in sorted(ceremony.folder.glob("*.key"))]
    assert [(key.name, key.key.public) for key in keys] == [
        (f"root-{number}", public) for number, public in enumerate(root.roots, 1)
    ]
    assert all(stat.S_IMODE(key.path.stat().st_mode) == 0o600 for key in keys)
    with pytest.raises(UsageInvalid, match="there is a fleet in this folder"):
        ceremony.begin(STARTED_WALL, standalone=False)
    assert ceremony.current() == root


def test_a_master_is_added_changed_and_dropped_each_in_the_next_version(ceremony: Ceremony) -> None:
    described = read_description(describe(party("master-a").key, a_master()))
    assert described == a_master()
    progress = ceremony.add_master(described, [], STARTED_WALL, root_shell=False)
    assert (progress.complete, progress.root.version, progress.file.name) == (True, 2, ROOT_LISTS)
    assert ceremony.current().masters == (party("master-a").as_master(),)
    ceremony.add_master(a_master(), [], STARTED_WALL, root_shell=True)
    (master,) = ceremony.current().masters
    assert master.roles == (*MASTER_ROLES, "root-shell")
    impostor = replace(a_master("x"), name="master-a")
    with pytest.raises(UsageInvalid, match="another master is called master-a"):
        ceremony.add_master(impostor, [], STARTED_WALL, root_shell=False)
    with pytest.raises(NotFound, match="no master 'master-b'") as error:
        ceremony.drop_master("master-b", [], STARTED_WALL)
    assert error.value.found == "master-a"
    # By a clock that runs behind, the list is not older than the one before.
    ceremony.drop_master("master-a", [], STARTED_WALL - DAY)
    assert (ceremony.current().masters, ceremony.current().version) == ((), 4)
    assert ceremony.current().issued == int(STARTED_WALL)
    assert follow(ceremony.chain(), root_fingerprint(ceremony.current().roots)).version == 4


def test_two_holders_sign_at_different_times_and_nothing_counts_before(ceremony: Ceremony) -> None:
    keys = media(ceremony)
    with pytest.raises(UsageInvalid, match="no root key is here") as error:
        ceremony.add_master(a_master(), [], STARTED_WALL, root_shell=False)
    assert error.value.allowed == "root-1.key, root-2.key, root-3.key"
    first = ceremony.add_master(a_master(), [keys["root-1"]], STARTED_WALL, root_shell=False)
    assert (first.complete, first.signed_by, first.file.name) == (False, ("root-1",), UNFINISHED)
    assert first.missing == ("1 more of the root keys: root-2, root-3",)
    assert ceremony.current().version == 1
    with pytest.raises(UsageInvalid, match="waits for signatures"):
        ceremony.drop_master("master-a", [keys["root-2"]], STARTED_WALL)
    # The same key once more is no second one.
    assert not ceremony.add_signatures([keys["root-1"]]).complete
    copied = Ceremony(ceremony.folder.parent / "carried to the other holder")
    shutil.copytree(ceremony.folder, copied.folder)
    second = copied.add_signatures([keys["root-3"]])
    assert (second.complete, second.signed_by) == (True, ("root-1", "root-3"))
    assert copied.current().masters == (party("master-a").as_master(),)
    assert not (copied.folder / UNFINISHED).exists()
    with pytest.raises(UsageInvalid, match="no root list waits"):
        copied.add_signatures([keys["root-2"]])


def test_a_lost_root_key_is_replaced_by_the_two_others_and_who_pinned_the_old_ones_follows(ceremony: Ceremony) -> None:
    pinned = ceremony.current().fingerprint
    keys = media(ceremony)
    keys["root-2"].unlink()
    with pytest.raises(UsageInvalid, match="no such key file") as missing:
        ceremony.rotate(["root-2"], [keys["root-2"]], STARTED_WALL)
    assert missing.value.where == str(keys["root-2"])
    progress, fresh = ceremony.rotate(["root-2"], [keys["root-1"], keys["root-3"]], STARTED_WALL)
    assert progress.complete
    assert [key.name for key in fresh] == ["root-4"]
    assert list(ceremony.root_names().values()) == ["root-1", "root-2", "root-3", "root-4"]
    assert fresh[0].key.public in ceremony.current().roots
    assert ceremony.current().fingerprint != pinned
    anchor = Anchor(pinned)
    anchor.take_root_lists(ceremony.chain())
    assert anchor.root == ceremony.current()
    # From now on the new key signs like any other, and the lost one no more.
    keys["root-4"] = medium(ceremony, "root-4")
    assert ceremony.rotate([], [keys["root-4"], keys["root-1"]], STARTED_WALL)[0].complete
    with pytest.raises(NotFound, match="no root key 'root-2'") as error:
        ceremony.rotate(["root-2"], [keys["root-1"]], STARTED_WALL)
    assert error.value.found == "root-1, root-3, root-4"


def test_a_rotation_needs_two_of_the_keys_before_and_two_of_the_keys_after(ceremony: Ceremony) -> None:
    keys = media(ceremony)
    progress, fresh = ceremony.rotate(["root-2", "root-3"], [keys["root-1"]], STARTED_WALL)
    assert [key.name for key in fresh] == ["root-4", "root-5"]
    # Two of the new ones have signed, and one of the old.
    assert progress.missing == ("1 more of the keys of the list before: root-2, root-3",)
    assert ceremony.add_signatures([keys["root-3"]]).complete


def test_a_rotation_that_was_given_up_leaves_its_key_for_the_next(ceremony: Ceremony) -> None:
    keys = media(ceremony)
    _, fresh = ceremony.rotate(["root-2"], [keys["root-1"]], STARTED_WALL)
    (ceremony.folder / UNFINISHED).unlink()
    _, again = ceremony.rotate(["root-2"], [keys["root-1"], keys["root-3"]], STARTED_WALL)
    assert [key.key.public for key in again] == [key.key.public for key in fresh]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", "an empty file"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\n", "-----BEGIN OPENSSH"),
        (None, "outstation root"),
    ],
    ids=["empty", "another kind", "one digit changed"],
)
def test_a_file_that_is_no_root_key_is_named(body: bytes | None, found: str, ceremony: Ceremony) -> None:
    path = ceremony.folder / "root-1.key"
    text = path.read_bytes()
    path.write_bytes(body if body is not None else text.replace(b"secret ", b"secret 0").replace(b"\n", b"\n", 1)[:-2])
    with pytest.raises(UsageInvalid, match="no root key, or it is damaged") as error:
        ceremony.add_master(a_master(), [path], STARTED_WALL, root_shell=False)
    assert (error.value.where, found in str(error.value.found)) == (str(path), True)
    assert error.value.hint


def test_a_key_of_another_fleet_signs_nothing_here(ceremony: Ceremony, tmp_path: Path) -> None:
    other = Ceremony(tmp_path / "other")
    other.begin(STARTED_WALL, standalone=False)
    foreign = other.folder / "root-1.key"
    with pytest.raises(UsageInvalid, match="no root key of this fleet") as error:
        ceremony.add_master(a_master(), [foreign], STARTED_WALL, root_shell=False)
    assert fingerprint(other.current().roots[0]) in str(error.value.found)
    assert fingerprint(ceremony.current().roots[0]) in str(error.value.allowed)
    with pytest.raises(UsageInvalid, match="no fleet"):
        Ceremony(tmp_path).current()


@pytest.mark.parametrize("change", ["cut", "flip", "kind", "words"])
def test_a_description_that_was_changed_on_the_way_is_refused(change: str) -> None:
    line = describe(party("master-a").key, a_master())
    given, found = {
        "cut": (line[:-4], "not copied exactly"),
        "flip": (line[:40] + ("a" if line[40] != "a" else "b") + line[41:], "not copied exactly"),
        "kind": (line.replace("os-master", "os-request"), "the request of a site"),
        "words": ("central", "no such line"),
    }[change]
    with pytest.raises(UsageInvalid, match="not what belongs here") as error:
        read_description(given)
    assert found in str(error.value.found)
    # Broken over lines, as a ticket may show it, it is still the same.
    assert read_description("\n ".join([line[:50].upper(), line[50:90], line[90:]])) == a_master()
    # And so it is among the other lines that a command printed.
    assert read_description(f"name: master-a\n{line}\nnext: elsewhere\n") == a_master()


def test_a_description_signed_by_another_key_proves_nothing() -> None:
    forged = describe(party("master-b").key, a_master())
    body = armor.unwrap("os-master", describe(party("master-a").key, a_master()))
    # The name of the right key, over words that it never signed.
    unsigned = armor.wrap("os-master", body[:-1] + bytes([body[-1] ^ 1]))
    for line in (forged, unsigned):
        with pytest.raises(UsageInvalid, match="proves nothing"):
            read_description(line)


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:4510", "tcp://host:*", "tcp://host:0", "tcp://[::]:1", "host:4510"])
def test_an_address_that_gateways_cannot_connect_to_is_not_described(address: str) -> None:
    master = party("master-a")
    with pytest.raises(UsageInvalid, match="cannot connect to this address"):
        describe(master.key, MasterKey("master-a", master.key.public, master.kem.public, master.curve, (address,), ()))


async def test_the_file_of_root_lists_is_what_a_master_takes_and_an_older_or_foreign_one_it_does_not(
    ceremony: Ceremony, tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    master = Authority(folder, role="master", site="central", curve=new_keys(), clock=HandClock())
    file = ceremony.folder / ROOT_LISTS
    with pytest.raises(UsageInvalid, match="does not take these root lists") as unnamed:
        await publish(master, file.read_bytes(), str(file))
    assert "outstation master init" in str(unnamed.value.hint)
    entry = MasterKey("central", master.signing.public, master.kem.public, bytes(32), (), ())
    ceremony.add_master(entry, [], STARTED_WALL, root_shell=False)
    older = file.read_bytes()
    assert await publish(master, older, str(file))
    assert not await publish(master, older, str(file))
    ceremony.rotate([], [], STARTED_WALL)
    assert await publish(master, file.read_bytes(), str(file))
    with pytest.raises(UsageInvalid, match="does not take these root lists") as rollback:
        await publish(master, older, str(file))
    assert "version 2 of fleet" in str(rollback.value.found)
    assert "after 3 of fleet" in str(rollback.value.allowed)
    other = Ceremony(tmp_path / "other")
    other.begin(STARTED_WALL, standalone=False)
    for _ in range(3):
        other.rotate([], [], STARTED_WALL)
    with pytest.raises(UsageInvalid, match="does not take these root lists"):
        await publish(master, (other.folder / ROOT_LISTS).read_bytes(), "other")
    for damaged in (b"", b"\xff", older[:-1], (ceremony.folder / "root-1.key").read_bytes()):
        with pytest.raises(OutstationError) as error:
            await publish(master, damaged, "a file")
        assert isinstance(error.value, ConfigInvalid)
        assert (error.value.where, bool(error.value.hint)) == ("a file", True)


async def test_a_standalone_fleet_certifies_a_site_that_may_then_work_without_a_master(tmp_path: Path) -> None:
    ceremony = Ceremony(tmp_path / "fleet")
    ceremony.begin(STARTED_WALL, standalone=True)
    (authority,) = ceremony.current().masters
    assert (authority.roles, authority.curve, authority.addresses) == (("site-ca", "root-shell"), b"", ())
    folder = tmp_path / "state"
    folder.mkdir()
    clock = HandClock()
    gateway = Authority(folder, role="gateway", site="lisbon", curve=new_keys(), clock=clock)
    request = read_request(armor.wrap("os-request", gateway.request()))
    bundle = sign_site(ceremony, request, Grant(("cmd.*",), "salt"), clock.wall())
    assert read_bundle(bundle.text()) == bundle
    await join_with_bundle(gateway, bundle.text())
    certificate = gateway.certificate
    assert certificate is not None
    assert certificate.expires - certificate.issued == 400 * DAY
    assert certificate.policy.fun == DEFAULT_GRANTS
    check_function(certificate.policy, "cmd.run", [], {}, origin="salt")
    with pytest.raises(Refused, match="not_granted"):
        check_function(certificate.policy, "cmd.run", [], {})
    assert gateway.may("job")
    assert gateway.masters() == []
    clock.move(401 * DAY)
    assert not gateway.may("job")


def test_without_an_offline_authority_no_site_is_certified_by_hand(ceremony: Ceremony, tmp_path: Path) -> None:
    gateway = Authority(tmp_path, role="gateway", site="lisbon", curve=new_keys(), clock=HandClock())
    request = read_request(armor.wrap("os-request", gateway.request()))
    with pytest.raises(UsageInvalid, match="no offline site authority"):
        sign_site(ceremony, request, Grant(), STARTED_WALL)
    foreign = Ceremony(tmp_path / "standalone")
    foreign.begin(STARTED_WALL, standalone=True)
    shutil.copy(foreign.folder / "site-authority.keys", ceremony.folder)
    with pytest.raises(UsageInvalid, match="does not count any more"):
        sign_site(ceremony, request, Grant(), STARTED_WALL)
    with pytest.raises(UsageInvalid, match="proves nothing"):
        read_request(armor.wrap("os-request", SigningKey(bytes(32)).public))
