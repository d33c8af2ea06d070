"""A device changes the key that is sealed to it: what a thief of an old or a new flash can open, and every stop."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from device_agent.errors import Refused
from device_agent.identity import FILE, SEALING_FILE, Identity, IdentityFile
from device_agent.trust.key_change import sign_key_change
from device_agent.trust.sealing_keys import OVERLAP_SECONDS
from tests.peers.sealing_bench import DAY, YEAR, SealingBench, not_answered


@pytest.fixture
async def bench(tmp_path: Path) -> SealingBench:
    """A device that has just joined, and knows since when it has its key."""
    made = SealingBench(_folder(tmp_path / "flash"))
    await made.look()
    return made


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


async def changed(bench: SealingBench) -> None:
    """A year passes, and the device changes its key."""
    bench.pass_time(YEAR)
    await bench.look()
    assert not bench.keys.pending


# --- thieves ---------------------------------------------------------------------------------------------------------


async def test_a_flash_that_was_read_before_the_change_opens_nothing_that_was_recorded_after_it(
    bench: SealingBench,
) -> None:
    stolen = bench.copy("stolen")
    before = bench.recorded()
    await changed(bench)
    after = bench.recorded()
    assert bench.opens(before, stolen)
    assert not bench.opens(after, stolen)
    assert bench.opens(after)


async def test_a_flash_that_is_read_after_the_overlap_opens_nothing_that_was_recorded_before_the_change(
    bench: SealingBench,
) -> None:
    recorded = bench.recorded()
    old = bench.device.identity.kem.private
    await changed(bench)
    bench.pass_time(OVERLAP_SECONDS - DAY)
    await bench.look()
    assert bench.opens(recorded)
    bench.pass_time(DAY)
    await bench.look()
    assert not bench.opens(recorded)
    assert all(old not in path.read_bytes() for path in bench.folder.iterdir())
    assert bench.opens(bench.recorded())


async def test_the_bytes_of_a_key_that_went_are_overwritten_in_the_files_that_held_it(
    bench: SealingBench, tmp_path: Path
) -> None:
    old = bench.device.identity.kem.private
    await changed(bench)
    # A second name for each file shows what becomes of its blocks once another file has its place.
    for name in (FILE, SEALING_FILE):
        (tmp_path / f"kept-{name}").hardlink_to(bench.folder / name)
    assert old in (tmp_path / f"kept-{SEALING_FILE}").read_bytes()
    bench.pass_time(OVERLAP_SECONDS)
    await bench.look()
    for name in (FILE, SEALING_FILE):
        assert set((tmp_path / f"kept-{name}").read_bytes()) == {0}


async def test_a_change_that_was_recorded_does_not_bring_the_old_key_back(bench: SealingBench) -> None:
    await changed(bench)
    [first] = bench.station.heard
    kem = bench.station.kem
    bench.pass_time(DAY)
    with pytest.raises(Refused, match="unknown_session"):
        await bench.station.changes.answer("cam-7", first)
    old = sign_key_change(
        bench.device.identity.sig, site="lisbon", sid=b"recorded", kem=bench.device.site.fleet.a.kem.public
    )
    with pytest.raises(Refused, match="unknown_session"):
        await bench.station.changes.answer("cam-7", old)
    assert bench.station.kem == kem


async def test_another_device_changes_no_key_but_its_own(bench: SealingBench) -> None:
    session = bench.device.site.sessions[bench.device.did]
    forged = sign_key_change(bench.device.site.fleet.b.key, site="lisbon", sid=session.sid, kem=bytes(31) + b"\x09")
    with pytest.raises(Refused, match="unknown_issuer"):
        await bench.station.changes.answer("cam-7", forged)


async def test_a_device_that_tells_another_key_all_the_time_is_held_up(bench: SealingBench) -> None:
    session = bench.device.site.sessions[bench.device.did]
    told = [
        sign_key_change(bench.device.identity.sig, site="lisbon", sid=session.sid, kem=bytes([1 + n]) * 32)
        for n in range(4)
    ]
    bench.station.brings = False
    for body in told[:3]:
        await bench.station.changes.answer("cam-7", body)
    with pytest.raises(Refused, match="too_often"):
        await bench.station.changes.answer("cam-7", told[3])


# --- stops -----------------------------------------------------------------------------------------------------------


async def test_a_stop_at_any_moment_of_a_change_leaves_a_device_that_opens_what_is_sealed_to_it(
    bench: SealingBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``kill -9`` is played at each write: what the flash held then, and what the station sealed to at that moment."""
    moments: list[tuple[Path, bytes]] = []

    def moment() -> None:
        bench_copy = tmp_path / f"moment-{len(moments)}"
        shutil.copytree(bench.folder, bench_copy)
        moments.append((bench_copy, bench.recorded()))

    real = Path.replace

    def replaced(path: Path, target: Path) -> Path:
        moment()
        result = real(path, target)
        moment()
        return result

    sealed_before = bench.recorded()
    bench.pass_time(YEAR)
    monkeypatch.setattr(Path, "replace", replaced)
    bench.station.answers = moment
    bench.station.brings = False
    await bench.look()
    moment()
    assert bench.keys.pending
    bench.station.bring()
    moment()
    await bench.write_changes()
    monkeypatch.undo()
    assert len(moments) >= 9
    kems = {bench.station.kem}
    for folder, sealed in moments:
        assert bench.opens(sealed, folder), folder.name
        assert bench.opens(sealed_before, folder), folder.name
        # And it goes on: with a station that has either key, the change comes to its end.
        bench.start(folder)
        bench.folder = folder
        bench.station.answers, bench.station.brings = (lambda: None), True
        await bench.look()
        assert bench.device.identity.kem.public == bench.station.kem, folder.name
        assert bench.opens(bench.recorded(), folder), folder.name
        kems.add(bench.station.kem)
        bench.device.clock.move(2 * 3600)
    assert len(kems) >= 2


async def test_an_answer_that_was_lost_is_asked_for_again_with_the_same_key(bench: SealingBench) -> None:
    bench.pass_time(YEAR)
    bench.station.answers = not_answered
    await bench.look()
    wanted = bench.keys.newest.public
    assert bench.keys.pending
    bench.station.answers = lambda: None
    bench.start()
    await bench.look()
    assert bench.station.kem == bench.device.identity.kem.public == wanted


async def test_a_certificate_that_was_lost_is_brought_when_the_device_asks_again(bench: SealingBench) -> None:
    bench.pass_time(YEAR)
    bench.station.brings = False
    await bench.look()
    assert bench.station.kem == bench.keys.newest.public != bench.device.identity.kem.public
    bench.station.brings = True
    await bench.look()
    assert len(bench.station.heard) == 1
    bench.pass_time(600)
    await bench.look()
    assert bench.station.kem == bench.device.identity.kem.public


async def test_a_disk_that_is_full_keeps_the_key_from_being_told(
    bench: SealingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.pass_time(YEAR)

    async def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.rotation, "_keep", full)
    with pytest.raises(OSError, match="No space"):
        await bench.look()
    assert bench.station.heard == []


async def test_a_station_that_was_restored_from_before_the_change_is_told_again(bench: SealingBench) -> None:
    before = bench.device.site.requests[bench.device.did]
    await changed(bench)
    bench.pass_time(OVERLAP_SECONDS)
    await bench.look()
    bench.device.site.requests[bench.device.did] = before
    with pytest.raises(Refused, match="not_sealed_to_us"):
        bench.device.order(bench.device.site.job(5, to=bench.device.did))
    await bench.look()
    assert bench.station.kem == bench.device.identity.kem.public
    assert bench.device.order(bench.device.site.job(6, to=bench.device.did)).fun == "test.ping"


async def test_sealing_keys_that_are_damaged_stop_no_agent(bench: SealingBench) -> None:
    await changed(bench)
    path = bench.folder / SEALING_FILE
    path.write_bytes(path.read_bytes()[:-1])
    bench.start()
    await bench.look()
    assert bench.station.kem == bench.device.identity.kem.public
    assert bench.opens(bench.recorded())


# --- other releases --------------------------------------------------------------------------------------------------


async def test_a_gateway_that_knows_no_such_question_leaves_the_device_as_it_is_and_is_asked_a_week_later(
    bench: SealingBench,
) -> None:
    def unknown() -> None:
        raise Refused("unknown_question", "nothing here answers device.sealing_key")

    bench.pass_time(YEAR)
    bench.station.answers = unknown
    for _ in range(6):
        await bench.look()
        assert bench.opens(bench.recorded())
        bench.pass_time(DAY)
    assert len(bench.station.heard) == 1
    bench.pass_time(2 * DAY)
    await bench.look()
    assert len(bench.station.heard) == 2


async def test_an_agent_of_release_0_1_0_goes_on_with_the_identity_that_this_one_wrote(bench: SealingBench) -> None:
    """It reads the identity alone, and refuses one with more in it than it wrote."""
    await changed(bench)
    old = Identity.from_bytes((bench.folder / FILE).read_bytes())
    assert old.kem.public == bench.station.kem
    (bench.folder / SEALING_FILE).unlink()
    assert bench.opens(bench.recorded())


async def test_the_keys_of_a_device_whose_identity_was_moved_away_are_not_those_of_the_next(
    bench: SealingBench,
) -> None:
    await changed(bench)
    (bench.folder / FILE).unlink()
    fresh = IdentityFile(bench.folder).load_or_begin()
    again = IdentityFile(bench.folder).load()
    assert again is not None
    assert again.kems == again.kems[:1]
    assert again.kem.public == fresh.kem.public


# --- when ------------------------------------------------------------------------------------------------------------


async def test_a_key_is_changed_in_the_last_tenth_of_its_interval_and_not_while_the_one_before_is_kept(
    bench: SealingBench,
) -> None:
    bench.pass_time(0.89 * YEAR)
    await bench.look()
    assert bench.station.heard == []
    bench.pass_time(0.11 * YEAR)
    await bench.look()
    assert len(bench.station.heard) == 1
    bench.pass_time(10 * DAY)
    await bench.look(DAY)
    assert len(bench.station.heard) == 1
    bench.pass_time(OVERLAP_SECONDS)
    await bench.look(DAY)
    assert len(bench.station.heard) == 2


async def test_with_an_interval_of_0_the_key_stays(bench: SealingBench) -> None:
    bench.pass_time(5 * YEAR)
    await bench.look(0)
    assert bench.station.heard == []
