"""The results of an orchestration for people, as Salt's outputter of that name writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

OUTPUTTER: Final = "highstate"
WIDTH: Final = 12
BEHIND_LABELS: Final = " " * (WIDTH + 2)


def highstate(value: Any) -> list[str]:
    """The lines of a value that asks for this outputter; none of any other."""
    if (
        not isinstance(value, Mapping)
        or value.get("outputter") != OUTPUTTER
        or not isinstance(value.get("data"), Mapping)
    ):
        return []
    return [line for name, data in value["data"].items() for line in _of_master(str(name), data)]


def step_line(progress: Mapping[str, Any]) -> str:
    """A step that has just come to its end, in one line."""
    step = progress.get("ret")
    if not isinstance(step, Mapping):
        return ""
    number = step.get("__run_num__")
    place = f"{number + 1} of {progress.get('len')}" if isinstance(number, int) else "a step"
    first = str(step.get("comment", "")).split("\n", 1)[0]
    return f"{place}: {step.get('__id__')}: {_word(step.get('result'))}; {first}"


def _of_master(name: str, data: Any) -> Iterator[str]:
    yield f"{name}:"
    if isinstance(data, list):
        yield "    Data failed to compile:"
        for error in data:
            yield "----------"
            yield from (f"    {line}" for line in str(error).split("\n"))
        return
    if not isinstance(data, Mapping):
        yield f"    {data}"
        return
    steps = [each for each in data.items() if isinstance(each[1], Mapping)]
    for tag, step in sorted(steps, key=lambda each: each[1].get("__run_num__", 0)):
        yield "----------"
        yield from _of_step(str(tag), step)
    yield from _summary(name, [step for _, step in steps])


def _of_step(tag: str, step: Mapping[str, Any]) -> Iterator[str]:
    words = tag.split("_|-")
    told = {
        "ID": step.get("__id__"),
        "Function": f"{words[0]}.{words[-1]}",
        "Name": step.get("name") if step.get("name") != step.get("__id__") else None,
        "Result": step.get("result"),
        "Comment": step.get("comment"),
        "Started": step.get("start_time"),
        "Duration": None if step.get("duration") is None else f"{step['duration']} ms",
    }
    for label, value in told.items():
        if value is not None or label == "Result":
            first, *rest = str(value).split("\n")
            yield f"{label:>{WIDTH}}: {first}".rstrip()
            yield from (f"{BEHIND_LABELS}{line}" for line in rest)
    for warning in step.get("warnings") or ():
        yield f"{'Warning':>{WIDTH}}: {warning}"
    changes = step.get("changes")
    yield f"{'Changes':>{WIDTH}}:"
    if changes:
        yield from (f"{BEHIND_LABELS}{line}" for line in _yaml(changes))


def _summary(name: str, steps: list[Mapping[str, Any]]) -> Iterator[str]:
    results = [step.get("result") for step in steps]
    changed = sum(1 for step in steps if step.get("changes"))
    good = sum(1 for result in results if result is not False)
    waiting = sum(1 for result in results if result is None)
    told = [text for text, count in ((f"unchanged={waiting}", waiting), (f"changed={changed}", changed)) if count]
    yield ""
    yield f"Summary for {name}"
    yield "-" * 12
    yield f"Succeeded: {good}" + (f" ({', '.join(told)})" if told else "")
    yield f"Failed:    {len(results) - good}"
    yield "-" * 12
    yield f"Total states run: {len(results)}"
    yield f"Total run time: {sum(float(step.get('duration') or 0) for step in steps):.3f} ms"


def _word(result: Any) -> str:
    return {True: "ok", False: "failed", None: "not run"}.get(result, str(result))


def _yaml(value: Any) -> list[str]:
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text.removesuffix("...\n").rstrip("\n").split("\n")
