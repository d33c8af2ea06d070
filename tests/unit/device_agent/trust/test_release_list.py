"""device_agent/trust/release_list.py: only what a release key that counts has signed, and never an older list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import codec, cose
from device_agent.trust.release_list import (
    FILES_MAX,
    TYP,
    Released,
    Releases,
    open_release_list,
    read_release_list,
    sign_release_list,
)
from tests.peers.fleet import Fleet, signing_key
from tests.peers.flips import any_claims, reasons_of_flips, refused_or_read

KEY, OTHER, STRANGER = signing_key("release"), signing_key("release 2"), signing_key("stranger")
ROOT = replace(Fleet().root, releases=(KEY.public, OTHER.public))
NOW = 1_800_000_000
DOOR = Released("_modules/door.py", b"\1" * 32, {"open": "changes", "status": "looks"})
LENS = Released("_grains/lens.py", b"\2" * 32)


def signed(version: int = 1, key: Any = KEY, files: Any = (DOOR, LENS)) -> bytes:
    return sign_release_list(key, version=version, issued=NOW, files=files)


def refused(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments)
    return caught.value.reason


def test_a_list_says_what_was_released_under_which_path_and_class() -> None:
    opened = open_release_list(signed(7), ROOT)
    assert (opened.version, opened.issued, opened.kid) == (7, NOW, KEY.kid)
    assert opened.files == (LENS, DOOR)
    assert opened.of("_modules/door.py") == (DOOR,)
    assert opened.of("_modules/other.py") == ()


def test_one_path_may_have_a_file_for_each_environment() -> None:
    other = replace(DOOR, sha256=b"\0" * 32)
    assert open_release_list(signed(files=(DOOR, other)), ROOT).of(DOOR.path) == (other, DOOR)


@pytest.mark.parametrize(
    ("body", "root", "reason"),
    [
        (signed(), None, "no_release_key"),
        (signed(), replace(ROOT, releases=()), "no_release_key"),
        (signed(key=STRANGER), ROOT, "unknown_release_key"),
        (signed(), replace(ROOT, revoked=(KEY.kid,)), "release_key_revoked"),
        (signed(), replace(ROOT, releases=(OTHER.public,), revoked=(KEY.kid,)), "release_key_revoked"),
        (signed(key=Fleet().a.key), ROOT, "unknown_release_key"),
        (signed()[:-1] + b"\0", ROOT, "bad_signature"),
        (cose.sign(KEY, "os-rev", {c.VER: 1, c.IAT: NOW, c.FILES: []}), ROOT, "wrong_kind"),
    ],
)
def test_who_is_no_release_key_releases_nothing(body: bytes, root: Any, reason: str) -> None:
    assert refused(open_release_list, body, root) == reason


# --- the newest ------------------------------------------------------------------------------------------------------


def test_a_newer_list_takes_the_place_of_the_one_before_and_an_older_one_never_does() -> None:
    releases = Releases()
    assert refused(releases.current, ROOT) == "no_release_list"
    assert releases.take(signed(3), ROOT)
    assert not releases.take(signed(3), ROOT)
    assert refused(releases.take, signed(2), ROOT) == "rollback"
    assert refused(releases.take, signed(3, files=()), ROOT) == "rollback"
    assert refused(releases.take, signed(3, OTHER), ROOT) == "rollback"
    assert releases.take(signed(4, OTHER), ROOT)
    assert releases.current(ROOT).kid == OTHER.kid
    # Also after a restart.
    assert refused(Releases.restored(releases.export()).take, signed(3), ROOT) == "rollback"


def test_the_list_of_a_key_that_is_revoked_counts_no_more_and_its_successor_begins_anew() -> None:
    releases = Releases()
    releases.take(signed(2**53 - 1), ROOT)
    without = replace(ROOT, releases=(OTHER.public,), revoked=(KEY.kid,))
    assert refused(releases.current, without) == "release_key_revoked"
    assert refused(releases.take, signed(2**53 - 1), without) == "release_key_revoked"
    restored = Releases.restored(releases.export())
    assert refused(restored.current, without) == "release_key_revoked"
    assert restored.take(signed(1, OTHER), without)
    assert restored.current(without).version == 1


def test_a_version_that_was_seen_of_a_key_is_not_taken_again_after_another_key_went() -> None:
    releases = Releases()
    releases.take(signed(1, OTHER), ROOT)
    releases.take(signed(2), ROOT)
    without = replace(ROOT, releases=(OTHER.public,), revoked=(KEY.kid,))
    assert refused(releases.take, signed(1, OTHER), without) == "rollback"
    assert releases.take(signed(2, OTHER), without)


def test_a_state_with_another_signature_is_refused() -> None:
    releases = Releases()
    releases.take(signed(3), ROOT)
    [body, marks] = codec.decode(releases.export())
    bent = codec.encode([body[:-1] + bytes([body[-1] ^ 1]), marks])
    assert refused(Releases.restored(bent).current, ROOT) == "bad_signature"
    # Not even where its key counts only later.
    late = Releases.restored(bent)
    assert refused(late.current, None) == "no_release_key"
    assert refused(late.current, ROOT) == "bad_signature"
    for state in (b"", b"\x80", codec.encode([b"", 1]), codec.encode([b"", [[b"k", "1"]]]), codec.encode([b"x", []])):
        assert refused(Releases.restored, state)


# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {c.VER: 0},
        {c.VER: 2**53},
        {c.IAT: -1},
        {c.AUD: "lisbon"},
        {c.FILES: {}},
        {c.FILES: [["_modules/door.py", bytes(31), {}]]},
        {c.FILES: [["_modules/door.py", bytes(32)]]},
        {c.FILES: [["../door.py", bytes(32), {}]]},
        {c.FILES: [["/etc/passwd", bytes(32), {}]]},
        {c.FILES: [["_modules/../door.py", bytes(32), {}]]},
        {c.FILES: [["_modules//door.py", bytes(32), {}]]},
        {c.FILES: [["_modules/door.py\n", bytes(32), {}]]},
        {c.FILES: [["b.py", bytes(32), {}], ["a.py", bytes(32), {}]]},
        {c.FILES: [["a.py", bytes(32), {}], ["a.py", bytes(32), {}]]},
        {c.FILES: [["a.py", bytes(32), {"f": "root"}]]},
        {c.FILES: [["a.py", bytes(32), {"F": "looks"}]]},
        {c.FILES: [["a.py", bytes(32), {1: "looks"}]]},
        {c.FILES: [["a.py", bytes(32), {"g": "looks", "f": "looks"}]]},
        {c.FILES: [["a.py", bytes(32), {"g": ["looks"]}]]},
    ],
)
def test_a_list_out_of_bounds_is_refused(changes: dict[int, Any]) -> None:
    claims = {c.VER: 1, c.IAT: NOW, c.FILES: [], **changes}
    assert refused(read_release_list, cose.sign(KEY, TYP, claims)) in {"claim_invalid", "claim_unknown"}


def test_nobody_signs_what_nobody_reads() -> None:
    assert refused(signed, 0) == "claim_invalid"
    assert refused(signed, 1, KEY, [Released("..", bytes(32))]) == "claim_invalid"


def test_the_longest_list_fits_into_a_message() -> None:
    files = [Released(f"_modules/{number:04}_{'x' * 20}.py", bytes(32), {"f": "looks"}) for number in range(FILES_MAX)]
    assert len(open_release_list(signed(files=files), ROOT).files) == FILES_MAX


def test_whatever_bit_is_turned_over_it_is_refused() -> None:
    assert "bad_signature" in reasons_of_flips(signed(files=(LENS,)), lambda body: open_release_list(body, ROOT))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(body: bytes) -> None:
    assert refused(open_release_list, body, ROOT)


@given(any_claims([c.VER, c.IAT, c.FILES, c.AUD]))
def test_any_claims_under_a_good_signature_are_read_or_refused(claims: dict[int, Any]) -> None:
    refused_or_read(lambda body: open_release_list(body, ROOT), cose.sign(KEY, TYP, claims))
