"""The identity of a device on flash: it comes back as it was, or stops the agent; it is never silently another."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid
from device_agent.identity import FILE, MAGIC, Identity, IdentityFile, new_identity
from tests.peers.guarded import Guarded


def test_all_that_was_learned_comes_back() -> None:
    device = Guarded()
    device.live()
    device.site.rotate()
    device.tell_epoch(device.site.epoch_for(device.did))
    identity = device.identity
    again = Identity.from_bytes(identity.to_bytes())
    plain = ("did", "site", "name", "certificate", "index", "password", "host", "join_port", "port", "tls_port", "tls")
    assert {name: getattr(again, name) for name in plain} == {name: getattr(identity, name) for name in plain}
    assert again.sig.private == identity.sig.private
    assert again.kem.private == identity.kem.private
    assert again.anchor.root == identity.anchor.root
    assert again.anchor.pinned == device.site.fleet.fingerprint
    assert again.anchor.site_certificate("lisbon") == identity.anchor.site_certificate("lisbon")
    assert (again.groups.epoch, again.groups.newest) == (2, device.site.group_key)
    assert again.floor.value == identity.floor.value
    # The time is the site's to tell, each time anew.
    assert not again.floor.has_time
    assert again.joined
    assert not again.changed


def test_a_first_start_makes_an_identity_that_stays(tmp_path: Path) -> None:
    file = IdentityFile(tmp_path)
    assert file.load() is None
    made = file.load_or_begin()
    assert not made.joined
    assert IdentityFile(tmp_path).load_or_begin().fingerprint == made.fingerprint


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        IdentityFile(tmp_path).load_or_begin()
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_it_is_on_disk_before_it_takes_the_place_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = IdentityFile(tmp_path)
    before = file.load_or_begin().to_bytes()
    (tmp_path / f"{FILE}.new").write_bytes(b"left by a crash")
    order: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        order.append(f"{file.path.read_bytes() == before}")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    file.save(new_identity().to_bytes())
    assert order == ["True", "False"]


@pytest.mark.parametrize("damage", ["cut", "empty", "bit", "text", "key"])
def test_a_damaged_file_stops_the_start_and_stays(tmp_path: Path, damage: str) -> None:
    file = IdentityFile(tmp_path)
    whole = bytearray(file.load_or_begin().to_bytes())
    content = {
        "cut": bytes(whole[:-1]),
        "empty": b"",
        "bit": bytes(whole[:60]) + bytes([whole[60] ^ 1]) + bytes(whole[61:]),
        "text": b"not an identity at all, but long enough to be one",
        "key": MAGIC + bytes(whole[len(MAGIC) :]).replace(new_identity().sig.private[:1], b"\x00", 1) + b"x",
    }[damage]
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ConfigInvalid, match="damaged") as raised:
        file.load_or_begin()
    assert raised.value.where == str(tmp_path / FILE)
    assert (tmp_path / FILE).read_bytes() == content


def test_a_folder_that_takes_no_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigInvalid, match="No space left"):
        IdentityFile(tmp_path).load_or_begin()
    assert IdentityFile(tmp_path).load() is None
