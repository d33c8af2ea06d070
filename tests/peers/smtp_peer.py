"""An SMTP server of a test's own (RFC 5321): it keeps the mails it takes, and answers with the codes it is told."""

from __future__ import annotations

import asyncio
import email
import email.policy
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage

from tests.peers.broker import free_port


@dataclass
class SmtpPeer:
    """What came; ``codes`` are the next answers to RCPT, after which all is taken."""

    port: int
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    """Whom the envelopes named, of those that were taken."""
    codes: deque[int] = field(default_factory=deque)
    tries: int = 0

    def subjects(self) -> list[str]:
        """Of the mails that were taken."""
        return [str(mail["Subject"]) for mail in list(self.mails)]

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(b"220 peer\r\n")
            while line := await reader.readline():
                word = line[:4].upper()
                if word == b"DATA":
                    writer.write(b"354 go on\r\n")
                    body = await reader.readuntil(b"\r\n.\r\n")
                    text = body.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n.")
                    mail = email.message_from_bytes(text, policy=email.policy.default)
                    assert isinstance(mail, EmailMessage)
                    self.mails.append(mail)
                    writer.write(b"250 taken\r\n")
                elif word == b"QUIT":
                    writer.write(b"221 bye\r\n")
                    break
                elif word == b"RCPT":
                    self.tries += 1
                    code = self.codes.popleft() if self.codes else 250
                    if code == 250:
                        self.recipients.append(line.decode().partition(":")[2].strip(" <>\r\n"))
                    writer.write(f"{code} so be it\r\n".encode())
                else:
                    writer.write(b"250 peer\r\n")
                await writer.drain()
        writer.close()


@contextmanager
def smtp_peer(port: int | None = None) -> Iterator[SmtpPeer]:
    """Serve in a thread until the context is left."""
    peer = SmtpPeer(port or free_port())
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with await asyncio.start_server(peer.talk, "127.0.0.1", peer.port):
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield peer
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()
