"""What the documentation of a function tells people to type is what the function takes."""

from __future__ import annotations

import shlex

import pytest

from device_agent import loader
from gateway.typed_arguments import split_arguments

OPTIONS = {"--sealed", "--"}


def lines(name: str) -> list[str]:
    shown = (loader.find(name).__doc__ or "").partition("CLI Example:")[2]
    return [line.strip() for line in shown.splitlines() if line.strip()]


@pytest.mark.parametrize("name", loader.names())
def test_the_examples_of_a_function_are_taken_as_they_are_typed(name: str) -> None:
    assert lines(name)
    for line in lines(name):
        program, run, *words = shlex.split(line)
        assert (program, run) == ("outstation", "run")
        _, fun, *typed = [word for word in words if word not in OPTIONS]
        assert fun == name
        arg, kwarg = split_arguments(typed)
        loader._bind(name, loader.find(name), arg, kwarg)
