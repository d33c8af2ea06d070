"""What the events of a call say, with the names that Salt has in them."""

from __future__ import annotations

from typing import Any

from device_agent.protocol import limits
from device_agent.protocol.messages import encode_value
from gateway.calls.call import Call, Ended


def room(call: Call) -> str:
    """The beginning of its tags."""
    return f"salt/{'run' if call.kind == 'runner' else 'wheel'}/{call.jid}"


def told(call: Call) -> dict[str, Any]:
    """What both of its events say of it."""
    given = call.fun_args
    if len(encode_value(given)) > limits.EVENT_DATA_BYTES // 4:
        given = [f"too large for an event: outstation runner jobs.list_job {call.jid}"]
    tag = {} if call.kind == "runner" else {"tag": room(call)}  # Salt has it of wheels alone
    return {"fun": call.said, "jid": call.jid, "user": call.user, "fun_args": given, **tag}


def result(ended: Ended) -> dict[str, Any]:
    """What the event of an end says beside its call. One that is too large for an event is asked for by its jid."""
    value = ended.value
    if len(encode_value(value)) > limits.EVENT_DATA_BYTES // 2:
        value = f"too large for an event: outstation runner jobs.lookup_jid {ended.jid}"
    said = {"return": value, "success": ended.ok}
    return said if ended.ok else {**said, "retcode": ended.retcode}
