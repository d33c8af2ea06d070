"""The mine: values that devices keep at their station, for others to read."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from device_agent import mine
from device_agent.ended import FunctionFailed
from device_agent.errors import Refused
from device_agent.host import Host
from device_agent.own import Own
from device_agent.protocol import mine as words
from device_agent.protocol.messages import decode_value

Name = Annotated[str, Meta(min_length=1, max_length=128)]


async def send(
    host: Host,
    name: Name,
    *args: Any,
    mine_function: str | None = None,
    allow_tgt: str | list[str] | None = None,
    allow_tgt_type: str | None = None,
    own: Own,
    **kwargs: Any,
) -> bool:
    """Call a function, and keep what it returns in the mine under its name, or under another with ``mine_function``.

    With ``allow_tgt`` only the devices that this target means may read it.

    CLI Example:

        outstation run 'cam-7' mine.send network.ip_addrs
        outstation run 'cam-7' mine.send addresses mine_function=network.ip_addrs allow_tgt='recorder-*'
    """
    try:
        who = words.allowed(allow_tgt, allow_tgt_type)
    except Refused as refusal:
        raise FunctionFailed(refusal.detail, value=False) from None
    call = words.Call(name, mine_function or name, list(args), kwargs, *who, alias=bool(mine_function))
    await mine.keep(own, [await mine.entry(call, host, own)])
    return True


async def get(
    host: Host, tgt: str | list[str], fun: Any, tgt_type: str = "glob", exclude_minion: bool = False, *, own: Own
) -> dict[str, Any]:
    """Return values of the mine by device, of the devices that a target means.

    Of several functions, as a list or with commas between, they are returned by function and device. What the asking
    device may not read is not there.

    CLI Example:

        outstation run 'recorder-1' mine.get 'cam-*' network.ip_addrs
        outstation run 'recorder-1' mine.get 'os:Debian' 'network.ip_addrs,test.version' tgt_type=grain
    """
    if not isinstance(fun, str | list) or (isinstance(fun, list) and not all(isinstance(each, str) for each in fun)):
        raise FunctionFailed("fun is a name, names with commas between, or a list of names", value={})
    names = list(dict.fromkeys(name for name in (fun.split(",") if isinstance(fun, str) else fun) if name))
    if isinstance(tgt, list):
        tgt, tgt_type = ",".join(tgt), "list"
    if not names or not tgt:
        return {}
    several = len(names) > 1 or isinstance(fun, list)
    if len(names) > words.ENTRIES:
        raise FunctionFailed(f"{len(names)} functions, at most {words.ENTRIES}", value={})
    found = words.decode_found(await mine.ask(own, words.GET, words.encode(words.Get(tgt, names, tgt_type))))
    values: dict[str, Any] = {}
    for each in found:
        if not (exclude_minion and each.device == host.grains.get("id")):
            place = values.setdefault(each.name, {}) if several else values
            place[each.device] = decode_value(each.value)
    return values


async def update(host: Host, clear: bool = False, mine_functions: Any = None, *, own: Own) -> bool | None:
    """Call the functions of ``mine_functions``, or those that are given, and keep the results.

    They are in the device's settings, and in its pillar, of which those count that look and change nothing. With
    ``clear`` they are all that the device has in the mine from then on.

    CLI Example:

        outstation run 'cam-*' mine.update
        outstation run 'cam-7' mine.update mine_functions='["network.ip_addrs"]'
    """
    wanted = mine_functions or own.settings.get("mine_functions")
    beside = [] if mine_functions else mine.from_pillar(await own.pillar.load_or_none(), wanted)
    if not beside and (not wanted or not isinstance(wanted, dict | list)):
        return None
    try:
        calls = [*words.calls(wanted or []), *beside]
    except Refused as refusal:
        raise FunctionFailed(refusal.detail, value=False) from None
    await mine.refresh([call for call in calls if mine.there_is(call.fun)], host, own, clear=clear)
    return True


async def delete(_host: Host, fun: Name, *, own: Own) -> bool:
    """Take a value of this device out of the mine.

    CLI Example:

        outstation run 'cam-7' mine.delete network.ip_addrs
    """
    await mine.ask(own, words.DELETE, words.encode(words.Delete(fun)))
    return True


async def flush(_host: Host, *, own: Own) -> bool:
    """Take all values of this device out of the mine.

    CLI Example:

        outstation run 'cam-7' mine.flush
    """
    await mine.ask(own, words.DELETE, words.encode(words.Delete()))
    return True


async def valid(_host: Host, *, age: bool = False, own: Own) -> dict[str, Any] | None:
    """Return the entries of ``mine_functions`` whose function is here.

    Those of the device's pillar are named by their functions alone. With ``age`` each is ``call``, which is what is
    returned without, and ``age``: how many seconds ago its value was told, nothing when it is not in the mine. What was
    sent otherwise is listed as well then.

    CLI Example:

        outstation run 'cam-7' mine.valid
        outstation run 'cam-7' mine.valid age=True
    """
    configured = own.settings.get("mine_functions")
    beside = mine.from_pillar(await own.pillar.load_or_none(), configured)
    if not configured and not beside and not age:
        return None
    try:
        calls = words.calls(configured or {})
    except Refused as refusal:
        raise FunctionFailed(refusal.detail) from None
    found: dict[str, Any] = {call.name: _shown(call, configured) for call in calls if mine.there_is(call.fun)}
    # With which arguments is for whoever may see the pillar.
    found |= {call.name: {call.fun: []} if call.alias else [] for call in beside if mine.there_is(call.fun)}
    if not age:
        return found
    ages = words.decode_ages(await mine.ask(own, words.AGES)).ages
    names = [*found, *(name for name in ages if name not in found)]
    return {name: {"call": found.get(name), "age": ages.get(name)} for name in names}


def _shown(call: words.Call, configured: Any) -> Any:
    if call.alias:
        return {call.fun: [*call.arg, *({name: value} for name, value in call.kwarg.items())]}
    return configured[call.name] if isinstance(configured, dict) else []
