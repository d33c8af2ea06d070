"""What rendered files declare, as drafts of steps: Salt's shapes, checked as Salt checks them. Pure.

All that is wrong is told at once, each with its file and line, in the words that Salt has for it; then there are no
drafts at all. Nothing of a file that is wrong is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from gateway.orchestrate.words import ABSENT, REQUISITES, TURNED, Draft, SlsFile

SKIPPED: Final = "_"
NOT_ARGUMENTS: Final = frozenset({*REQUISITES, *TURNED, "order", "names", "state", "name"})


class Declared(Struct, kw_only=True):
    """One state under an id: its function and what stands under it."""

    id: str
    state: str
    fun: str
    file: SlsFile
    args: dict[str, Any]
    wanted: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names that it goes by, beside its id."""
        listed = self.args.get("names") or [self.args.get("name", self.id)]
        return [str(next(iter(name), "")) if isinstance(name, dict) else str(name) for name in listed]


class Errors(list[str]):
    """What is wrong, each with its place."""

    def tell(self, file: SlsFile, name: str, what: str) -> None:
        """One more."""
        self.append(f"{file.place(name)}: {what}")


def drafts(files: Sequence[SlsFile]) -> tuple[list[Draft], list[str]]:
    """The steps that these files declare, in the order in which they are written, or what is wrong."""
    errors = Errors()
    declared: list[Declared] = []
    homes: dict[str, SlsFile] = {}
    for file in files:
        for name, body in _bodies(file, errors):
            if (other := homes.get(name)) is not None:
                said = f"SLS '{other.env}:{other.sls}' and SLS '{file.env}:{file.sls}'"
                what = f"The conflicting ID is '{name}' and is found in {said}"
                errors.tell(file, name, f"Detected conflicting IDs, SLS IDs need to be globally unique. {what}")
                continue
            homes[name] = file
            declared += _of_id(name, body, file, errors)
    for each in declared:
        _turn(each, declared, errors)
    if errors:
        return [], errors
    found = [draft for number, each in enumerate(declared) for draft in _fanned(each, number, errors)]
    return ([], errors) if errors else (found, [])


def _bodies(file: SlsFile, errors: Errors) -> Iterator[tuple[str, Any]]:
    if not isinstance(file.data, dict):
        errors.tell(file, "", f"SLS {file.sls} does not render to a dictionary")
        return
    for name, body in file.data.items():
        if not isinstance(name, str):
            kind = type(name).__name__
            what = f"is not formed as a string, but is type {kind}. It may need to be quoted."
            errors.tell(file, str(name), f"ID '{name}' in SLS '{file.sls}' {what}")
        elif name in ("extend", "exclude"):
            errors.tell(file, name, f"{name} is not there in an orchestration: write the steps as they shall be")
        elif name != "include" and not name.startswith("__"):
            yield name, body


def _of_id(name: str, body: Any, file: SlsFile, errors: Errors) -> Iterator[Declared]:
    if isinstance(body, str) and "." in body:
        body = {body: []}
    if not isinstance(body, dict):
        errors.tell(file, name, f"ID {name} in SLS {file.sls} is not a dictionary")
        return
    kinds: set[str] = set()
    for key, items in body.items():
        word = str(key)
        if word.startswith(SKIPPED):
            continue
        state, _, fun = word.partition(".")
        if items is None:
            what = f"contains a short declaration ({word}) with a trailing colon. When not passing any arguments"
            errors.tell(file, name, f"ID '{name}' in SLS '{file.sls}' {what} to a state, the colon must be omitted.")
        elif not isinstance(items, list):
            errors.tell(file, name, f"State '{name}' in SLS '{file.sls}' is not formed as a list")
        elif state in kinds:
            what = "contains multiple state declarations of the same type"
            errors.tell(file, name, f"ID '{name}' in SLS '{file.sls}' {what}")
        else:
            kinds.add(state)
            made = _declared(name, state, fun, items, file, errors)
            if made is not None:
                yield made


def _declared(name: str, state: str, fun: str, items: Sequence[Any], file: SlsFile, errors: Errors) -> Declared | None:
    funs = [fun] if fun else []
    args: dict[str, Any] = {}
    for item in items:
        if isinstance(item, str):
            funs.append(item)
            if " " in item.strip():
                what = "has whitespace, a function with whitespace is not supported, perhaps this is an argument"
                where = f'The function "{item}" in state "{name}" in SLS "{file.sls}"'
                errors.tell(file, name, f'{where} {what} that is missing a ":"')
        elif isinstance(item, dict):
            for key, value in item.items():
                known = args.get(str(key))
                both = str(key) in (*REQUISITES, *TURNED) and isinstance(known, list) and isinstance(value, list)
                args[str(key)] = [*(known or ()), *value] if both else value
        else:
            what = f"each item is one argument with its value, and here is {str(item)[:80]!r}"
            errors.tell(file, name, f"In state '{name}' in SLS '{file.sls}' {what}")
    for key in ABSENT:
        if key in args:
            errors.tell(file, name, f"{key} in state '{name}' is not there in an orchestration")
    names = args.get("names")
    if names is not None and not isinstance(names, list):
        what = "needs to be formed as a list"
        errors.tell(file, name, f"The 'names' argument in state '{name}' in SLS '{file.sls}' {what}")
        return None
    if not funs:
        errors.tell(file, name, f"No function declared in state '{name}' in SLS '{file.sls}'")
        return None
    if len(funs) > 1:
        what = f"Please choose one of the following: {', '.join(funs)}"
        errors.tell(file, name, f"Too many functions declared in state '{name}' in SLS '{file.sls}'. {what}")
        return None
    made = Declared(id=name, state=state, fun=funs[0], file=file, args=args)
    for kind in REQUISITES:
        if kind in args:
            made.wanted += _wanted(kind, args[kind], made, errors)
    return made


def _wanted(kind: str, said: Any, of: Declared, errors: Errors) -> Iterator[tuple[str, str, str]]:
    """Each requisite of one kind, as type and name."""
    where = f"in state '{of.id}' in SLS '{of.file.sls}'"
    if isinstance(said, dict) and kind in TURNED:
        said = [{key: value} for key, value in said.items()]
    if not isinstance(said, list):
        errors.tell(of.file, of.id, f"The {kind} statement {where} needs to be formed as a list")
        return
    for item in said:
        one = {"id": item} if isinstance(item, str) else item
        if not isinstance(one, dict) or len(one) != 1:
            what = "is not formed as a single key dictionary"
            errors.tell(of.file, of.id, f"Requisite declaration {str(one)[:200]} {where} {what}")
            continue
        ((word, value),) = one.items()
        if "." in str(word):
            what = f"Requisite types must not contain dots, did you mean '{str(word).partition('.')[0]}'?"
            errors.tell(of.file, of.id, f"Invalid requisite type '{word}' {where}. {what}")
        elif not isinstance(value, str):
            what = "must have a string as the value"
            errors.tell(of.file, of.id, f"Requisite [{kind}: {word}] {where} {what}")
        else:
            yield kind, str(word), value


def _turn(of: Declared, every: Sequence[Declared], errors: Errors) -> None:
    """``require_in`` and its kin: the same, written at the other end."""
    for turned in TURNED:
        if turned not in of.args:
            continue
        for _, word, value in _wanted(turned, of.args[turned], of, errors):
            meant = [each for each in every if _is_meant(each, word, value)]
            if not meant:
                what = "It is not part of the high state. This is likely due to a missing include statement or an"
                where = f"Cannot extend ID '{value}' in '{of.file.env}:{of.file.sls}'."
                errors.tell(of.file, of.id, f"{where} {what} incorrectly typed ID ({turned}).")
            for each in meant:
                each.wanted.append((turned.removesuffix("_in"), of.state, of.id))


def _is_meant(each: Declared, word: str, value: str) -> bool:
    if word == "sls":
        return value in (each.file.sls, *each.file.included_from)
    return word in ("id", each.state) and (value == each.id or value in each.names)


def _fanned(of: Declared, number: int, errors: Errors) -> Iterator[Draft]:
    """A draft, or one for each of its names, which may have arguments of their own."""
    args = {key: value for key, value in of.args.items() if key not in NOT_ARGUMENTS}
    names = of.args.get("names")
    if not names:
        name = of.args.get("name", of.id)
        yield _draft(of, name if isinstance(name, str) else of.id, args, number, 0)
        return
    for place, entry in enumerate(_once(names), start=1):
        own: dict[str, Any] = {}
        name = entry
        if isinstance(entry, dict) and len(entry) == 1:
            ((name, listed),) = entry.items()
            if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
                what = f"what stands under the name {name} is a list of arguments with their values"
                errors.tell(of.file, of.id, f"In state '{of.id}' in SLS '{of.file.sls}' {what}")
                continue
            own = {str(key): value for each in listed for key, value in each.items()}
        if not isinstance(name, str):
            errors.tell(
                of.file, of.id, f"A name of state '{of.id}' in SLS '{of.file.sls}' is no text: {str(name)[:80]}"
            )
            continue
        draft = _draft(of, name, {**args, **own}, number, place)
        draft.order = own.get("order", draft.order)
        draft.args = {key: value for key, value in draft.args.items() if key not in NOT_ARGUMENTS}
        yield draft


def _draft(of: Declared, name: str, args: dict[str, Any], number: int, place: int) -> Draft:
    return Draft(
        id=of.id,
        name=name,
        state=of.state,
        fun=of.fun,
        file=of.file,
        args=args,
        wanted=list(of.wanted),
        order=of.args.get("order", FIRST_ORDER + number),
        name_order=place,
    )


FIRST_ORDER: Final = 10_000
"""Steps without an ``order`` come as they are written, from this number on: Salt's."""


def _once(names: Sequence[Any]) -> Iterator[Any]:
    seen: list[Any] = []
    for name in names:
        if name not in seen:
            seen.append(name)
            yield name
