"""What a rendering asks of the device that it is for, question by question, so that its answer can be kept for all
devices that answer the same.

What a template reads next depends on what it read before and on nothing else. So the questions and answers of one
rendering, in their order, are all of its input beside the tree and the settings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from device_agent.protocol.target_terms import Known
from device_agent.protocol.targeting import compile_target
from gateway.render_yaml import TooLarge

Question = tuple[str, ...]
"""``("grain", name)``, ``("grains",)`` for all of them, ``("id",)``, ``("site",)``, ``("match", kind, target)``,
``("one_of", *names)`` for the one of these names that the device has; and ``("given",)``, for the pillar that is there
before, which every compilation asks first. A reactor's file asks nothing of a device; ``("nested",)`` says that it read
the data of its event one level deeper than it is, ``("rewritten", line, text)`` that YAML reads a text as another
number."""

Called = Callable[[str, Sequence[Any], Mapping[str, Any]], Any]

QUESTIONS: Final = 50_000
QUESTION_BYTES: Final = 4 * 1024 * 1024
"""Most that one rendering may ask: a loop over names that it makes up has no end otherwise."""

_encoder: Final = msgspec.msgpack.Encoder()
ABSENT: Final = "absent"
TEXT_CHARACTERS: Final = 80


def answered(
    question: Question, device: str, grains: Mapping[str, Any], given: Mapping[Any, Any], site: str = ""
) -> str:
    """A device's answer, as a digest that two share only when they answer the same.

    ``given`` is the pillar that is there before, which targets may ask for.
    """
    match question:
        case ("grain", name):
            return digest(grains[name]) if name in grains else ABSENT
        case ("grains",):
            return digest(grains)
        case ("id",):
            return device
        case ("site",):
            return site
        case ("given",):
            return digest(given)
        case ("one_of", *names):
            return device if device in names else ABSENT
        case ("match", kind, target):
            return str(compile_target(target, kind).matches(device, Known(grains, given)))  # type: ignore[arg-type]  # an unknown kind is an error of its own
        case _:
            raise ValueError(question)


def digest(value: Any) -> str:
    """The digest of a plain value."""
    return hashlib.sha256(_encoder.encode(value)).hexdigest()


class Reads:
    """The questions of one rendering; each new one is told."""

    def __init__(
        self,
        device: str,
        grains: Mapping[str, Any],
        given: Mapping[Any, Any],
        tell: Callable[[Question], None],
        site: str = "",
        call: Called | None = None,
    ) -> None:
        self._device = device
        self._site = site
        self._grains = grains
        self._known = Known(grains, given)
        self._tell = tell
        self.call = call
        """Calls a function of the station, where the file may; None where it may not."""
        self._asked: set[Question] = set()
        self._bytes = 0

    @property
    def device(self) -> str:
        """The device's name."""
        self._ask("id")
        return self._device

    def nested(self) -> None:
        """The data of an event was read one level deeper."""
        self._ask("nested")

    def rewritten(self, line: int, text: str) -> None:
        """YAML reads a text as a number that is written otherwise."""
        self._ask("rewritten", str(line), text[:TEXT_CHARACTERS])

    @property
    def site(self) -> str:
        """The site that the device belongs to."""
        self._ask("site")
        return self._site

    @property
    def grains(self) -> Grains:
        """The device's grains."""
        return Grains(self._grains, self._ask)

    def meant(self, target: str, kind: str) -> bool:
        """Whether the device is meant. Raises ``UsageInvalid``."""
        compiled = compile_target(target, kind)  # type: ignore[arg-type]  # an unknown kind is an error of its own
        self._ask("match", kind, target)
        return compiled.matches(self._device, self._known)

    def one_of(self, names: Sequence[str]) -> str | None:
        """The one of these names that the device has; one question for all of them."""
        if not names:
            return None
        self._ask("one_of", *names)
        return self._device if self._device in names else None

    def _ask(self, *question: str) -> None:
        if question not in self._asked:
            self._bytes += sum(map(len, question))
            if len(self._asked) >= QUESTIONS or self._bytes > QUESTION_BYTES:
                raise TooLarge(f"it asks its device more than {QUESTIONS} things, or {QUESTION_BYTES} bytes of them")
            self._asked.add(question)
            self._tell(question)


class Grains(Mapping[str, Any]):
    """Grains as a template reads them. It cannot change them."""

    __module__ = "builtins"
    """Jinja says what has no such attribute: "'Grains object'", and not where its class is written."""

    def __init__(self, grains: Mapping[str, Any], ask: Callable[..., None]) -> None:
        self._grains = grains
        self._ask = ask

    def __getitem__(self, name: str) -> Any:
        self._ask("grain", str(name))
        return self._grains[name]

    def __contains__(self, name: object) -> bool:
        self._ask("grain", str(name))
        return name in self._grains

    def __iter__(self) -> Iterator[str]:
        self._ask("grains")
        return iter(self._grains)

    def __len__(self) -> int:
        self._ask("grains")
        return len(self._grains)

    def __repr__(self) -> str:
        """All of them."""
        return repr(dict(self))
