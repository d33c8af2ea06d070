"""upstream/salt/publishes.py, upstream/salt/sign_in_budget.py and addresses."""

from __future__ import annotations

import pytest
import zmq.asyncio

from tests.peers.clock import HandClock
from tests.peers.refusals import reason
from tests.peers.salt_double import SaltDouble, new_box
from upstream.salt.publishes import SUBSCRIPTIONS, opened, signed_box
from upstream.salt.rsa_keys import MasterKey
from upstream.salt.sign_in_budget import AT_ONCE, ONE_PER_SECONDS, SignInBudget
from upstream.salt.subscription import WAITING_BYTES, Subscription
from upstream.salt.terms import endpoint
from upstream.salt.wire import pack

BOX, OTHER = new_box(), new_box()


def test_a_publish_is_known_to_be_the_masters_and_opened() -> None:
    double = SaltDouble()
    body = double.publish({"fun": "test.ping"})
    assert any(body.startswith(beginning) for beginning in SUBSCRIPTIONS)
    for frames in ([body], [b"syndic", body], [b"broadcast", body]):
        sealed = signed_box(frames, MasterKey(double.pem))
        assert opened(sealed, double.aes) == {"fun": "test.ping", "serial": 1}
        assert reason(opened, sealed, OTHER) == "bad_mac"


@pytest.mark.parametrize("frames", [[], [b"x", b"y", b"z"], [b"ab" * 20, b"y"]])
def test_frames_that_no_master_sends_us(frames: list[bytes]) -> None:
    assert reason(signed_box, frames, MasterKey(SaltDouble().pem)) == "malformed"


def test_nothing_is_opened_that_the_master_did_not_sign() -> None:
    double, other = SaltDouble(), SaltDouble("other")
    key = MasterKey(double.pem)
    assert reason(signed_box, [other.publish({}, box=double.aes)], key) == "bad_signature"
    sealed = double.aes.seal(pack({}))
    assert reason(signed_box, [pack({"enc": "aes", "load": sealed})], key) == "unsigned"
    assert reason(signed_box, [pack({"enc": "clear", "load": sealed})], key) == "malformed"


async def test_nobody_without_the_key_makes_a_reader_work_or_keep_much() -> None:
    key = MasterKey(SaltDouble().pem)
    assert reason(signed_box, [pack({"enc": "aes", "load": [0] * 100})], key) == "too_large"
    assert reason(signed_box, [pack({"enc": "aes", "load": [[[0]]]})], key) == "too_deep"
    with zmq.asyncio.Context() as context:
        subscription = Subscription(context, "tcp://127.0.0.1:9")
        try:
            socket = subscription._socket
            assert 0 < int(socket.rcvhwm) * int(socket.maxmsgsize) + WAITING_BYTES <= 80 << 20
        finally:
            subscription.close()
            subscription._monitor.close(linger=0)


def test_sign_ins_are_few_and_come_back_with_time() -> None:
    clock = HandClock()
    budget = SignInBudget(clock)
    assert [budget.take() for _ in range(AT_ONCE + 2)] == [True] * AT_ONCE + [False] * 2
    clock.move(ONE_PER_SECONDS)
    assert [budget.take(), budget.take()] == [True, False]
    clock.move(ONE_PER_SECONDS * 1000)
    assert sum(budget.take() for _ in range(20)) == AT_ONCE


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("salt", ("salt", 4506)),
        ("salt.example:4507", ("salt.example", 4507)),
        ("192.0.2.1", ("192.0.2.1", 4506)),
        ("[2001:db8::1]", ("[2001:db8::1]", 4506)),
        ("[2001:db8::1]:99", ("[2001:db8::1]", 99)),
    ],
)
def test_addresses(address: str, found: tuple[str, int]) -> None:
    assert endpoint(address, 4506) == found


@pytest.mark.parametrize("address", ["", "a:b", "a:0", "a:65536", "2001:db8::1", "tcp://a", "a b", "a\n", "[::1", ":1"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="no host"):
        endpoint(address, 4506)
