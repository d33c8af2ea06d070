"""What a file of the reactor asks of its station while it is rendered: runners that only look.

There is no row of such a call and no event: it is a part of the rendering, and is made again with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from device_agent.clock import Clock
from device_agent.errors import OutstationError, Refused
from device_agent.protocol.messages import check_plain
from gateway.calls.binding import bound
from gateway.calls.call import Call, CallFailed
from gateway.calls.functions import Functions
from gateway.calls.running import Running
from gateway.devices.policy import Operator

log = logging.getLogger(__name__)

WHAT_CHARACTERS: Final = 500


class Looking:
    """Answers files. ``operator`` is the reactor, with the roles that it has now."""

    def __init__(
        self,
        *,
        functions: Functions,
        running: Callable[[Call], Running],
        operator: Callable[[], Operator],
        seconds: float,
        clock: Clock,
    ) -> None:
        self._functions = functions
        self._running = running
        self._operator = operator
        self._seconds = seconds
        self._clock = clock

    async def __call__(self, fun: str, arg: Sequence[Any], kwarg: Mapping[str, Any]) -> Any:
        """What a runner returns. Raises ``Refused`` with the reason."""
        operator, runners = self._operator(), self._functions.of("runner")
        able = sorted(name for name, each in runners.items() if each.for_templates and operator.may(each.need))
        if fun not in able:
            raise Refused("not_callable", f"it cannot be called in a file; these can: {', '.join(able)}")
        try:
            fitted, named = bound(runners[fun].run, f"runner.{fun}", arg, kwarg)
            call = Call(
                jid="",
                kind="runner",
                fun=fun,
                arg=fitted,
                kwarg=named,
                user=operator.name,
                operator=operator.name,
                roles=sorted(operator.roles),
                seconds=self._seconds,
                accepted=self._clock.wall(),
            )
            value = await runners[fun].run(self._running(call), *fitted, **named)
            check_plain(value)
        except CallFailed as failed:
            raise Refused("failed", str(failed.value)) from None
        except Refused:
            raise
        except OutstationError as error:
            raise Refused("failed", " ".join(str(error).split())) from None
        except Exception as error:
            # As for every other call: what is wrong in a function harms who called it, and not the station.
            log.error("a file's call failed fun=runner.%s", fun, exc_info=error)
            raise Refused("failed", repr(error)[:WHAT_CHARACTERS]) from None
        return value
