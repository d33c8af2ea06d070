"""Who may hold how many connections at a door of the API."""

from __future__ import annotations

from functools import partial

import pytest

from gateway.api.places import Kind, Place, Places
from upstream.networks import network_of

PLACES = 64


def nothing() -> None:
    """How a connection ends that nobody has to end."""


def taken(places: Places, kind: Kind, holder: str, wanted: int) -> list[Place]:
    """As many places as it gets."""
    found = [places.take(kind, holder, nothing) for _ in range(wanted)]
    return [place for place in found if place is not None]


def test_one_user_has_a_quarter_all_users_have_half_and_the_rest_is_for_admins() -> None:
    places = Places(lambda: PLACES)
    assert len(taken(places, "user", "eve", PLACES)) == PLACES // 4
    assert len(taken(places, "user", "mallory", PLACES)) == PLACES // 4
    assert not taken(places, "user", "bob", 1)
    assert len(taken(places, "admin", "ada", 2 * PLACES)) == PLACES // 2
    assert places.held == PLACES
    assert not taken(places, "admin", "root", 1)


def test_a_place_that_is_free_again_is_given_again() -> None:
    places = Places(lambda: PLACES)
    mine = taken(places, "user", "eve", PLACES)
    places.free(mine[0])
    places.free(mine[0])
    assert len(taken(places, "user", "eve", PLACES)) == 1


def test_the_oldest_stranger_of_the_most_crowded_address_gives_way() -> None:
    places, left = Places(lambda: PLACES), list[str]()
    for number in range(PLACES // 8):
        places.take("stranger", "192.0.2.66", partial(left.append, f"66/{number}"))
    for address in range(4):
        taken(places, "stranger", f"192.0.2.{address}", 4)
    assert places.take("stranger", "192.0.2.7", nothing) is not None
    assert left == ["66/0"]
    # And whoever shares an address with a flood is not kept out by it.
    assert len(taken(places, "stranger", "192.0.2.66", 3)) == 3
    assert left == ["66/0", "66/1", "66/2", "66/3"]
    assert places.held == PLACES * 3 // 8


def test_no_address_is_ended_for_its_name_when_many_addresses_hold_one_place_each() -> None:
    places, left = Places(lambda: PLACES), list[str]()
    names = [f"192.0.2.{number}" for number in (9, *range(10, 9 + PLACES * 3 // 8))]
    for name in names:
        places.take("stranger", name, partial(left.append, name))
    for number in range(3):
        places.take("stranger", f"198.51.100.{number}", partial(left.append, f"198.51.100.{number}"))
    assert left == names[:3]


def test_an_address_whose_share_is_used_up_ends_its_own_connection_and_no_others() -> None:
    places, left = Places(lambda: PLACES), list[str]()
    for name in ("192.0.2.2", "192.0.2.1"):
        for _ in range(PLACES // 8):
            places.take("stranger", name, partial(left.append, name))
    taken(places, "stranger", "192.0.2.1", 2)
    assert left == ["192.0.2.1", "192.0.2.1"]


def test_a_stranger_with_a_token_leaves_its_place_to_others() -> None:
    places = Places(lambda: PLACES)
    (place,) = taken(places, "stranger", "192.0.2.1", 1)
    assert places.move(place, "admin", "ada")
    assert len(taken(places, "stranger", "192.0.2.1", PLACES // 8)) == PLACES // 8
    (other,) = taken(places, "stranger", "192.0.2.2", 1)
    assert len(taken(places, "user", "eve", PLACES)) == PLACES // 4
    assert not places.move(other, "user", "eve")
    assert places.held == 1 + PLACES // 8 + PLACES // 4


def test_streams_have_a_share_of_their_own() -> None:
    places = Places(lambda: PLACES)
    mine = taken(places, "user", "eve", PLACES // 4)
    assert [places.begin_stream(place) for place in mine] == [True] * 8 + [False] * 8
    places.end_stream(mine[0])
    places.end_stream(mine[0])
    places.free(mine[1])
    assert [places.begin_stream(place) for place in mine[8:]] == [True] * 2 + [False] * 6


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("somewhere", "somewhere"),
    ],
)
def test_an_ipv6_host_has_a_whole_network(address: str, network: str) -> None:
    assert network_of(address) == network
