"""gateway/broker/passwords.py; that mosquitto takes these is in integration."""

from __future__ import annotations

import pytest

from gateway.broker.passwords import fits, hash_password, is_hash, new_password

MADE_BY_MOSQUITTO = (
    "$7$101$nOXdJC7fcR/HIm8Z$Ec7gdmcw6Zc1lKIoojJEZw6PaY5U+ktru9hbR+0tYt7ICrwuWKmk1piag/27SsezQ06pPWKUg7wn2Djv9lliyg=="
)


def test_a_password_fits_its_own_hash_and_no_other() -> None:
    password = new_password()
    assert fits(password, hash_password(password))
    assert not fits(password + "x", hash_password(password))
    assert not fits(password, hash_password("other"))


def test_a_password_has_as_many_random_bytes_as_the_design_asks_for() -> None:
    assert len(new_password()) == 32
    assert new_password() != new_password()


def test_the_same_password_has_another_hash_each_time() -> None:
    first, second = hash_password("same"), hash_password("same")
    assert first != second
    assert first.startswith("$7$1$")


def test_what_mosquittos_own_tool_makes_fits() -> None:
    assert is_hash(MADE_BY_MOSQUITTO)
    assert fits("secret", MADE_BY_MOSQUITTO)


@pytest.mark.parametrize(
    "text", ["", "secret", "$7$0$AAAA$" + "A" * 88, "$7$1$AAAA$" + "A" * 87, "$7$1$=A$" + "A" * 88]
)
def test_what_is_no_hash_fits_nothing(text: str) -> None:
    assert not fits("secret", text)
