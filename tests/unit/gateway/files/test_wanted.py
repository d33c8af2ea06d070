"""gateway/files/wanted.py: the files that a job names, in the environment that it names."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.files.wanted import urls_of
from tests.peers.database import a_job


@pytest.mark.parametrize(
    ("fun", "arg", "kwarg", "urls"),
    [
        ("cp.get_file", ["salt://a", "/tmp/a"], {}, ["salt://a"]),
        ("cp.get_file", ["salt://a", "/tmp/a", "next"], {}, ["salt://a?saltenv=next"]),
        ("cp.get_file", ["salt://a?saltenv=x", "/tmp/a", "next"], {}, ["salt://a?saltenv=x"]),
        ("cp.cache_file", ["salt://a", "next"], {}, ["salt://a?saltenv=next"]),
        ("cp.cache_file", ["salt://a"], {"saltenv": "next"}, ["salt://a?saltenv=next"]),
        ("cmd.script", ["salt://a", "next"], {}, ["salt://a"]),
        ("test.echo", [{"deep": ["salt://a"]}, None], {"more": "salt://b"}, ["salt://a", "salt://b"]),
    ],
)
def test_addresses_have_the_environment_that_is_given_beside_them(
    fun: str, arg: list[Any], kwarg: dict[str, Any], urls: list[str]
) -> None:
    assert list(urls_of(a_job(fun=fun, arg=arg, kwarg=kwarg))) == urls
