"""What a connected Salt master is told, in the forms that every release takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from device_agent.questions import Unanswered
from upstream.salt.channel import Channel
from upstream.salt.ports import DeviceAnswer, NotConfirmed, ReturnsOfJob
from upstream.salt.terms import SaltRules
from upstream.salt.wire import Packed

RETURNS_SECONDS: Final = 60.0
"""A master answers a chunk when each of its answers is stored, and it may have other minions to serve."""

ANNOUNCE_SECONDS: Final = 15.0
REGISTER_SECONDS: Final = 60.0
REGISTER_SECONDS_EACH: Final = 0.1
"""A master writes files for each resource: on a busy machine 5,000 of them took up to 97 s."""

SHOWN: Final = 80
"""Characters of an answer that is not as it should be."""


def confirmed(cmd: str, reply: Any) -> None:
    """Nil is a master's word that it has what it was told. Raises ``NotConfirmed`` for all else.

    A master on which something fails, as with a full disk, answers the same request with an empty text.
    """
    if reply is not None:
        raise NotConfirmed(f"the master does not confirm {cmd}", found=repr(reply)[:SHOWN], allowed="nil")


class Above:
    """Implements ``SaltAbove``. ``aside`` is for what must not wait until a chunk of answers is stored."""

    def __init__(self, rules: SaltRules, channel: Channel, aside: Channel) -> None:
        self._rules = rules
        self._channel = channel
        self._aside = aside

    async def announce(self, jid: str, ids: Sequence[str]) -> None:
        """The tag is the bare jid: another one is dropped by 3006 and 3007, or leaves ``salt`` waiting."""
        fields = {
            "pretag": f"syndic/{self._rules.id}",
            "events": [{"tag": jid, "data": {"jid": jid, "minions": list(ids)}}],
        }
        confirmed("_minion_event", await self._aside.request("_minion_event", fields, patience=ANNOUNCE_SECONDS))

    async def returns(self, entries: Sequence[ReturnsOfJob]) -> None:
        """Nil is the master's word that it has them."""
        load = [self._entry(entry) for entry in entries]
        patience = max(RETURNS_SECONDS, self._rules.request_channel_timeout)
        await self._tell("_syndic_return", {"load": load}, patience)

    async def events(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Without a prefix: with one the master posts each event twice."""
        fields = {"pretag": None, "events": [{"tag": tag, "data": dict(data)} for tag, data in events]}
        await self._tell("_minion_event", fields, self._rules.request_channel_timeout)

    async def register(self, resources: Mapping[str, Sequence[str]], grains: Mapping[str, Packed]) -> bool:
        """Masters before 3008 answer ``{}``, as to every command that they do not know."""
        fields = {"resources": {kind: list(ids) for kind, ids in resources.items()}, "resource_grains": grains}
        patience = REGISTER_SECONDS + REGISTER_SECONDS_EACH * sum(map(len, resources.values()))
        reply = await self._channel.request("_register_resources", fields, patience=patience)
        if reply is True:
            return True
        if reply == {}:
            return False
        raise Unanswered("the master does not confirm _register_resources", found=repr(reply)[:SHOWN], allowed="true")

    async def started(self) -> None:
        """Say that a syndic is here, as one does."""
        fields = {"tag": f"syndic/{self._rules.id}/start", "data": f"Syndic {self._rules.id} is here", "pretag": None}
        await self._tell("_minion_event", fields, ANNOUNCE_SECONDS)

    async def there(self, patience: float) -> None:
        """Ask something small, whose answer says nothing but that the master is there."""
        await self._aside.request("_file_envs", {}, patience=patience)

    async def request(self, cmd: str, fields: Mapping[str, Any], *, patience: float) -> Any:
        """Ask anything."""
        return await self._channel.request(cmd, fields, patience=patience)

    async def pillar(self, grains: Mapping[str, Any], *, patience: float, **fields: Any) -> dict[str, Any]:
        """The pillar of the gateway's own id."""
        return await self._channel.pillar(grains, patience=patience, **fields)

    async def _tell(self, cmd: str, fields: Mapping[str, Any], patience: float) -> None:
        confirmed(cmd, await self._channel.request(cmd, fields, patience=patience))

    def _entry(self, entry: ReturnsOfJob) -> dict[str, Any]:
        told: dict[str, Any] = {
            "id": self._rules.id,
            "jid": entry.jid,
            "fun": entry.fun if isinstance(entry.fun, str) else list(entry.fun),
            "load": dict(entry.load),
            "return": {device: _answer(answer, entry.fun) for device, answer in entry.answers.items()},
        }
        if entry.master_id:
            told["master_id"] = entry.master_id
        if entry.out:
            told["out"] = entry.out
        return told


def _answer(answer: DeviceAnswer, fun: str | Sequence[str]) -> dict[str, Any]:
    told = {**answer.more, "return": answer.value, "retcode": answer.retcode, "success": answer.success}
    if not isinstance(fun, str):
        # A master that is told of several functions and finds one number for all fails, and confirms nothing any more.
        told |= {
            "return": answer.value if isinstance(answer.value, dict) else dict.fromkeys(fun, answer.value),
            "retcode": {name: answer.retcodes.get(name, answer.retcode) for name in fun},
            "success": {name: not answer.retcodes[name] if name in answer.retcodes else answer.success for name in fun},
        }
    return {**told, "fun_args": list(answer.fun_args)}
