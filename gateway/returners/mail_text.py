"""Subject and text of a mail, rendered from templates in processes of their own, which bound what one can do."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from device_agent.errors import Refused
from gateway.render import Renderer
from gateway.render_frames import Task, Tree
from gateway.returners.own_thread import OwnThread
from gateway.returners.returned import NotReturned

TEMPLATE_BYTES: Final = 256 * 1024
TEXT_CHARACTERS: Final = 1_000_000
SUBJECT_CHARACTERS: Final = 200
ENVIRONMENT: Final = "returner"
DEFAULT: Final = """\
id: {{ id }}
site: {{ site }}
function: {{ fun }}
arguments: {{ fun_args }}
jid: {{ jid }}
outcome: {{ outcome }}{% if why %} ({{ why }}){% endif %}

return:
{{ shown }}
"""
_WRAPPED: Final = (
    b'{% set subject %}{% include "subject" %}{% endset %}{% set text %}{% include "text" %}{% endset %}'
    b"subject: {{ subject | string | yaml_dquote }}\ntext: {{ text | string | yaml_dquote }}\n"
)


class MailText:
    """Renders a mail for a return. The file of the text is read each time, so that it can be changed."""

    def __init__(self, renderer: Renderer, subject: str, template: str | None) -> None:
        self._renderer = renderer
        self._subject = subject
        self._template = template
        self._thread = OwnThread()

    async def of(self, told: dict[str, Any]) -> tuple[str, str]:
        """Subject, on one line, and text. Raises ``NotReturned``."""
        files = {"mail": _WRAPPED, "subject": self._subject.encode(), "text": await self._thread.call(self._text)}
        digest = hashlib.sha256(b"\0".join(files.values())).hexdigest()
        shown = told["return"] if isinstance(told["return"], str) else json.dumps(told["return"], indent=4, default=str)
        context = {**told, "shown": shown[:TEXT_CHARACTERS]}
        tree = Tree(digest, {ENVIRONMENT: files})
        try:
            rendered = await self._renderer.render(
                tree, Task(digest, "", {}, env=ENVIRONMENT, path="mail", context=context)
            )
        except Refused as busy:
            raise NotReturned(str(busy)) from None
        if rendered.refused:
            problem = rendered.problems[0] if rendered.problems else None
            place = self._template or "smtp.subject"
            where = f"{place}:{problem.line}: {problem.what}" if problem is not None else f"{place}: {rendered.why}"
            raise NotReturned(f"the mail cannot be rendered ({rendered.refused}): {where}")
        said = rendered.value()
        subject = " ".join("".join(c if c.isprintable() else " " for c in str(said["subject"])).split())
        return subject[:SUBJECT_CHARACTERS], str(said["text"])[:TEXT_CHARACTERS]

    def _text(self) -> bytes:
        if self._template is None:
            return DEFAULT.encode()
        try:
            with Path(self._template).open("rb") as file:
                text = file.read(TEMPLATE_BYTES + 1)
        except OSError as error:
            raise NotReturned(f"smtp.template: {self._template}: {error.strerror or error}") from None
        if len(text) > TEMPLATE_BYTES:
            raise NotReturned(f"smtp.template: {self._template}: more than {TEMPLATE_BYTES} bytes")
        return text
