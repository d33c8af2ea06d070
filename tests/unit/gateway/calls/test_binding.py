"""Arguments are fitted to a function as Salt fits them, and what does not fit is named."""

from __future__ import annotations

from typing import Any

import pytest

from device_agent.errors import UsageInvalid
from gateway.calls.binding import argspec, bound, words


async def delete(_: object, match: str, include: bool = False, *, quick: int = 3) -> None:
    """Three arguments."""


async def anything(_: object, *args: Any, **kwargs: Any) -> None:
    """Whatever."""


@pytest.mark.parametrize(
    ("arg", "kwarg", "direct", "fitted"),
    [
        (["foo"], {}, False, (["foo"], {})),
        ([], {"match": "foo"}, False, ([], {"match": "foo"})),
        # As in a reactor file: what has no default becomes positional, and defaults are filled in.
        ([], {"match": "foo"}, True, (["foo"], {"include": False})),
        ([], {"match": "foo", "quick": 1}, True, (["foo"], {"quick": 1, "include": False})),
        ([], {"match": "foo", "__user__": "Reactor", "__pub_jid": "1"}, False, ([], {"match": "foo"})),
    ],
)
def test_arguments_are_fitted(
    arg: list[Any], kwarg: dict[str, Any], direct: bool, fitted: tuple[list[Any], dict[str, Any]]
) -> None:
    assert bound(delete, "wheel.key.delete", arg, kwarg, direct=direct) == fitted


@pytest.mark.parametrize(
    ("arg", "kwarg", "words_of_it"),
    [
        ([], {}, "missing a required argument"),
        (["a"], {"mach": "b"}, "has no argument 'mach'"),
        (["a", True, 3], {}, "too many positional arguments"),
        ([7], {}, "is of another kind"),
        (["a"], {"quick": "x"}, "is of another kind"),
    ],
)
def test_what_does_not_fit_is_named_with_what_is_allowed(
    arg: list[Any], kwarg: dict[str, Any], words_of_it: str
) -> None:
    with pytest.raises(UsageInvalid) as refused:
        bound(delete, "wheel.key.delete", arg, kwarg)
    assert words_of_it in str(refused.value)
    assert refused.value.allowed
    if "argument" in words_of_it:
        assert refused.value.allowed == "match, include=False, quick=3"


def test_a_function_with_any_arguments_takes_any() -> None:
    assert bound(anything, "runner.test.arg", [1, "x"], {"a": None}) == ([1, "x"], {"a": None})
    assert words(anything) == "*args, **kwargs"
    assert argspec(delete) == {"args": ["match", "include"], "defaults": [False], "kwargs": None, "varargs": None}


@pytest.mark.parametrize("hint", ["KnownToATypeCheckerAlone", "list[int] | list[str]"])
def test_a_hint_that_cannot_be_checked_lets_everything_pass(hint: str) -> None:
    async def lights(_: object, how: object) -> None:
        """A function of a site."""

    # As in a file that imports what its hints name under ``if TYPE_CHECKING``.
    lights.__annotations__["how"] = hint
    assert bound(lights, "runner.site.lights", [2], {}) == ([2], {})
