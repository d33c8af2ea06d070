"""What an order calls, and what the audit and the master are told of it. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from device_agent.errors import OutstationError
from device_agent.protocol.several import joined, split
from gateway.audit.deed import Deed
from gateway.devices.policy import call_text
from gateway.salt.asked import ORIGIN
from gateway.typed_arguments import taken_apart
from upstream.salt.order import SaltOrder

JID_DIGITS: Final = 20
LINK: Final = "salt"
"""Under which what is refused is counted."""


def taken_apart_order(order: SaltOrder) -> SaltOrder:
    """The order with each NAME=VALUE among its arguments as a named one, as a minion takes them. Raises ``Refused``."""
    if isinstance(order.fun, str):
        arg, kwarg = taken_apart(order.arg, order.kwarg)
        return msgspec.structs.replace(order, arg=arg, kwarg=kwarg)
    each = [joined(*taken_apart(*split(given))) if isinstance(given, list) else given for given in order.arg]
    return msgspec.structs.replace(order, arg=each)


def denied(order: SaltOrder, who: str, why: str) -> Deed:
    """What the audit says of an order that was refused."""
    return Deed(
        user=who,
        door=LINK,
        action="run",
        subject=f"{order.tgt_type}: {order.tgt if isinstance(order.tgt, str) else ','.join(order.tgt)}",
        verdict="deny",
        why=why,
        jid=order.jid,
        fun=function_names(order),
        arguments=call_text("", order.arg, order.kwarg).strip(),
    )


def orderer(order: SaltOrder, master: str) -> str:
    """Name the user of a master as jobs and the audit do. No user of this station has an ``@`` in the name."""
    user = "".join(letter if letter.isprintable() and not letter.isspace() else "_" for letter in order.user[:64])
    return f"{user or 'unknown'}@{master}"[:128]


def function_names(order: SaltOrder) -> str:
    return order.fun if isinstance(order.fun, str) else ",".join(order.fun)


def each_function(order: SaltOrder) -> list[str]:
    """Every function that is named, whatever stands between the names."""
    return function_names(order).split(",")


def impossible(order: SaltOrder) -> str:
    if not isinstance(order.fun, str) and len(order.fun) == 1:
        return "a list of one function; order it by its name alone"
    if odd := next((name for name in ([order.fun] if isinstance(order.fun, str) else order.fun) if "," in name), ""):
        return f"{odd[:130]} is no function; several are a list of names, with a list of arguments for each"
    if len(order.jid) != JID_DIGITS:
        return "this gateway takes jids of 20 digits; set unique_jid: False on the master"
    return ""


def refusal_words(error: OutstationError) -> str:
    """A refusal in the words that ``salt`` shows: what, what was found, and what mends it."""
    parts: list[Any] = [error.what, error.found]
    text = ": ".join(str(part) for part in parts if part)
    if error.error_id == "policy.not_granted":
        return f"not_granted: {text}; what a Salt master may order is granted to the site with --origin {ORIGIN}"
    return f"{text}; allowed: {error.allowed}" if error.allowed else text
