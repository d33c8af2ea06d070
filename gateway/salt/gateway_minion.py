"""Answers for the gateway's own id, as the minion that runs beside a stock syndic under the same id does.

A master waits for each accepted key that a target means, so without an answer ``salt '*'`` waits for its whole timeout.
The gateway answers what harms nothing and refuses everything else by name, whatever is granted: its machine takes
orders under the name of the station, with the grants of the station.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.protocol.several import split
from device_agent.protocol.targeting import Target
from gateway.jobs.record import NOT_RUN_RETCODE
from gateway.salt.allowed import refusals
from gateway.salt.gateway_facts import GatewayFacts
from upstream.salt.order import SaltOrder
from upstream.salt.ports import DeviceAnswer

JIDS: Final = 1000
"""Orders that are remembered: a jid that comes again, from another master, is answered once."""


@dataclass(frozen=True)
class OwnId:
    """The gateway as a target."""

    id: str
    grains: Mapping[str, Any]


class GatewayMinion:
    """What the gateway says for its own id at Salt masters."""

    def __init__(self, id_: str, station: str, facts: GatewayFacts) -> None:
        """``station`` is the name under which the gateway's machine takes jobs."""
        self.id = id_
        self._station = station
        self._facts = facts
        self._answered: OrderedDict[str, None] = OrderedDict()
        # By function: what it returns, and how many arguments it takes.
        self._functions: dict[str, tuple[Callable[[], Any], int]] = {
            "grains.items": (lambda: dict(facts.grains), 0),
            "saltutil.find_job": (dict, 1),
            "saltutil.is_running": (list, 1),
            "saltutil.running": (list, 0),
            "test.ping": (lambda: True, 0),
        }

    def is_meant(self, target: Target, master: str) -> bool:
        """Whether a target of this master means the gateway's own id."""
        return target.matches(self.id, self._facts.known_to(master))

    def answer(self, order: SaltOrder) -> DeviceAnswer | None:
        """The answer to an order that means the gateway; None where it was given already."""
        if order.jid in self._answered:
            return None
        self._answered[order.jid] = None
        if len(self._answered) > JIDS:
            self._answered.popitem(last=False)
        if isinstance(order.fun, str):
            return self._one(order, order.fun, order.arg, order.kwarg)
        lists = [each if isinstance(each, list) else [each] for each in order.arg]
        lists += [[]] * (len(order.fun) - len(lists))
        found = {name: self._listed(order, name, args) for name, args in zip(order.fun, lists, strict=False)}
        return DeviceAnswer(
            value={name: each.value for name, each in found.items()},
            retcode=max(each.retcode for each in found.values()),
            success=all(each.success for each in found.values()),
            fun_args=order.arg,
            retcodes={name: each.retcode for name, each in found.items()},
        )

    def _listed(self, order: SaltOrder, fun: str, args: Sequence[Any]) -> DeviceAnswer:
        try:
            plain, named = split(args)
        except Refused as refusal:
            return _refused(f"bad_arguments: {refusal.detail}")
        return self._one(order, fun, plain, named)

    def _one(self, order: SaltOrder, fun: str, arg: Sequence[Any], kwarg: Mapping[str, Any]) -> DeviceAnswer:
        own = OwnId(self.id, self._facts.grains)
        denied = refusals(order.auth_list, [fun], [own], order.user or "this user")
        if self.id in denied:
            return _refused(denied[self.id])
        known = self._functions.get(fun)
        if known is None:
            allowed = ", ".join(self._functions)
            return _refused(
                f"not_granted: {fun[:128]} is not answered for {self.id}, the gateway's own id, whatever is granted; "
                f"allowed: {allowed}. Name the devices, or for the gateway's machine {self._station}"
            )
        value, takes = known
        if len(arg) + len(kwarg) != takes:
            words = "1 argument" if takes else "no arguments"
            return _refused(f"bad_arguments: {fun} takes {words} here, found {len(arg) + len(kwarg)}")
        return DeviceAnswer(value(), fun_args=list(arg))


def _refused(why: str) -> DeviceAnswer:
    return DeviceAnswer(f"refused: {why}", NOT_RUN_RETCODE, success=False)
