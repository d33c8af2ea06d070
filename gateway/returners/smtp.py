"""The returner ``smtp``, as Salt's: a mail for each return."""

from __future__ import annotations

import email.utils
import hashlib
import smtplib
import ssl
from email.message import EmailMessage
from functools import partial
from typing import Final

from device_agent.host_port import host_port
from gateway.returners.mail_text import MailText
from gateway.returners.own_thread import OwnThread
from gateway.returners.returned import NotReturned, Returned
from gateway.returners.settings import SmtpSettings

TRY_AGAIN: Final = 500
"""Replies below it are of the moment (RFC 5321, 4.2.1)."""


class SmtpReturner:
    """A connection for each mail."""

    most: int = 1

    def __init__(self, settings: SmtpSettings, text: MailText, station: str) -> None:
        self._settings = settings
        self._text = text
        self._station = station
        self._thread = OwnThread()

    async def send(self, returns: list[Returned]) -> None:
        """Raises ``NotReturned``."""
        for each in returns:
            mail = await self._mail(each)
            try:
                await self._thread.call(partial(self._deliver, mail))
            except smtplib.SMTPRecipientsRefused as error:
                codes = [code for code, _ in error.recipients.values()]
                words = f"{self._server}: no recipient was taken: {', '.join(map(str, codes))}"
                raise NotReturned(words, final=min(codes) >= TRY_AGAIN) from None
            except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
                words = f"{self._server}: {error.smtp_code} {_said(error.smtp_error)}"
                raise NotReturned(words, final=error.smtp_code >= TRY_AGAIN) from None
            except smtplib.SMTPResponseException as error:
                # Not a word about this mail: whoever runs the server, or set the password, can mend it.
                raise NotReturned(f"{self._server}: {error.smtp_code} {_said(error.smtp_error)}") from None
            except (smtplib.SMTPException, OSError) as error:
                raise NotReturned(f"{self._server}: {str(error) or type(error).__name__}") from None

    @property
    def _server(self) -> str:
        return host_port(self._settings.host, self._settings.port)

    async def _mail(self, returned: Returned) -> EmailMessage:
        told = returned.fields()
        subject, text = await self._text.of(told)
        ended = " ".join(str(told[name]) for name in self._settings.field_names)
        mail = EmailMessage()
        mail["From"] = self._settings.from_
        mail["To"] = ", ".join(self._settings.recipients)
        mail["Subject"] = f"{subject} {ended}".strip()
        mail["Date"] = email.utils.formatdate(returned.record.ended)
        # The same each time: servers and readers drop a mail that they have.
        digest = hashlib.sha256(returned.key.encode()).hexdigest()[:32]
        mail["Message-ID"] = f"<{digest}@{self._station}.outstation>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(text)
        return mail

    def _deliver(self, mail: EmailMessage) -> None:
        settings = self._settings
        with smtplib.SMTP(settings.host, settings.port, timeout=settings.seconds) as line:
            if settings.tls:
                line.starttls(context=ssl.create_default_context())
            if settings.username is not None:
                line.login(settings.username, settings.password or "")
            line.send_message(mail, settings.from_, settings.recipients)


def _said(error: bytes | str) -> str:
    text = error.decode("utf-8", "replace") if isinstance(error, bytes) else error
    return "".join(c if c.isprintable() else " " for c in text)[:200]
