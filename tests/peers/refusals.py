"""Why something was refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

import pytest

from device_agent.errors import Refused

P = ParamSpec("P")


def reason(call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> str:
    """Call something that must be refused; the reason it was."""
    with pytest.raises(Refused) as refused:
        call(*args, **kwargs)
    return refused.value.reason
