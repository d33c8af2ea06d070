"""What proves during a command that an SSH server is alive: every packet that it sends.

asyncssh accepts one proof only, a reply to its keepalive request (RFC 4254, section 4). TinySSH before 20260906 and
libssh 0.7 answer SSH_MSG_UNIMPLEMENTED instead (RFC 4253, section 11.4). Without this file asyncssh takes such a server
for dead after the third keepalive, in the middle of the command.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from asyncssh import SSHClientConnection
from asyncssh.packet import SSHPacket

UNIMPLEMENTED: Final = 3
REQUEST_SUCCESS: Final = 81
REQUEST_FAILURE: Final = 82
"""Numbers of messages (RFC 4250, section 4.1.2)."""


def accept_any_packet(connection: SSHClientConnection) -> None:
    """Count every packet from the server as a sign of life, from now on."""
    # asyncssh makes its connections itself, so two methods that every packet passes are replaced in the made one.
    whole: Any = connection
    process, finish = whole.process_packet, whole._finish_recv_packet  # noqa: SLF001 - asyncssh has no hook for this
    requests = whole._global_request_waiters  # noqa: SLF001 - keepalives that have no answer yet, oldest first
    ended_early = 0

    def process_packet(kind: int, number: int, packet: SSHPacket) -> bool | Awaitable[None]:
        nonlocal ended_early
        if kind == UNIMPLEMENTED and requests:
            # The sequence number in it proves nothing: TinySSH's is off by one. The keepalive is the only packet sent
            # during a command that a server may not know. Should it have meant another one, the reply still comes.
            _answer(requests.pop(0))
            ended_early += 1
        elif kind in {REQUEST_SUCCESS, REQUEST_FAILURE} and not requests and ended_early:
            ended_early -= 1
            return True
        answer: bool | Awaitable[None] = process(kind, number, packet)
        return answer

    def finish_recv_packet(*arguments: Any, **options: Any) -> None:
        whole._keepalive_count = 0  # noqa: SLF001 - how many keepalives in a row had no answer
        finish(*arguments, **options)

    whole.process_packet, whole._finish_recv_packet = process_packet, finish_recv_packet  # noqa: SLF001 - as above


def _answer(waiter: Any) -> None:
    if not waiter.done():
        waiter.set_result((REQUEST_FAILURE, SSHPacket(b"")))
