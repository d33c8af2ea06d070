"""A device's pillar from its tree: the top files, the SLS files that they name for it, what those include, all merged.

What Salt does with the same tree, and the errors that it puts into ``_errors``; tests compare the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import filter as matching
from typing import Any, Final

from msgspec import Struct, field

from device_agent.errors import UsageInvalid
from device_agent.protocol.targeting import OPERATORS
from gateway import render_yaml
from gateway.devices.pillar_merge import Strategy, merge
from gateway.render_names import state_names, top_names
from gateway.render_reads import Reads
from gateway.render_sls import Problem, Sources, Unrenderable

TOP: Final = "top.sls"
PROBLEMS: Final = 100
BAD_TOP: Final = "Error encountered while rendering pillar top file."
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
INCLUDES: Final = 64
"""How deep files may include each other."""


class Rules(Struct, frozen=True):
    """How pillars are put together, in Salt's words without ``pillar_`` in front."""

    source_merging_strategy: Strategy = "smart"
    merge_lists: bool = False
    includes_override_sls: bool = False
    nodegroups: dict[str, str] = field(default_factory=dict)
    """Each as a compound target."""


class Compiled(Struct, frozen=True):
    """A pillar, and what went wrong in it; what did also stands in its ``_errors``, without any text of a file."""

    pillar: dict[Any, Any]
    problems: list[Problem]


class _States(Struct):
    """What one environment's files came to, for those that include each other."""

    sources: Sources
    done: dict[str, Any] = field(default_factory=dict)


class Compiler:
    """Compiles for one device. ``given`` is the pillar that is there before: from outside, or with the question."""

    def __init__(
        self,
        environments: Mapping[str, Sources],
        rules: Rules,
        reads: Reads,
        given: Mapping[Any, Any],
        only: str | None,
    ) -> None:
        self._environments = environments
        self._rules = rules
        self._reads = reads
        self._given = dict(given)
        self._only = only
        self._errors: list[str] = []
        self._problems: list[Problem] = []
        self._ignored: dict[str, set[str]] = {}

    def compile(self) -> Compiled:
        """All of it."""
        top_errors: list[str] = []
        matches = self._matches(self._merged_tops(self._tops(top_errors), top_errors))
        pillar: dict[Any, Any] = dict(self._given)
        for env, names in matches.items():
            pillar = self._environment(env, names, pillar)
        errors = self._errors + top_errors
        if errors:
            pillar["_errors"] = errors
        render_yaml.check(pillar)
        return Compiled(pillar, self._problems[:PROBLEMS])

    # --- the top files ---------------------------------------------------------------------------------------------

    def _tops(self, errors: list[str]) -> list[Any]:
        """Every top file, then what they include."""
        if self._only is not None:
            names = [self._only] if self._only in self._environments else []
        elif self._rules.source_merging_strategy == "none":
            names = ["base"]
        else:
            names = ["base", *(name for name in self._environments if name != "base")]
        wanted: list[tuple[Sources, str]] = []
        tops = []
        for name in names:
            sources = self._environments.get(name)
            if sources is None or TOP not in sources.files:
                continue
            try:
                top = sources.render(TOP, "", self._reads, self._given, {}, top_names)
            except Unrenderable as error:
                errors.append(f"Rendering Primary Top file failed, render error:\n{self._noted(error)}")
                break
            if isinstance(top, dict) and isinstance(top.get("include"), list):
                wanted += [(sources, str(sls)) for sls in top.pop("include")]
            tops.append(top)
        return tops + self._included_tops(wanted, errors)

    def _included_tops(self, wanted: list[tuple[Sources, str]], errors: list[str]) -> list[Any]:
        tops: list[Any] = []
        done = set()
        for sources, sls in wanted:
            if (sources.env, sls) in done:
                continue
            done.add((sources.env, sls))
            path = sources.place(sls)
            if path is None:
                errors.append(f"Rendering Top file {sls} failed, render error:\nthere is no such file")
                continue
            try:
                tops.append(sources.render(path, "", self._reads, self._given, {}, top_names))
            except Unrenderable as error:
                errors.append(f"Rendering Top file {sls} failed, render error:\n{self._noted(error)}")
        return tops

    def _merged_tops(self, tops: list[Any], errors: list[str]) -> dict[str, dict[str, list[Any]]]:
        """Environment -> target -> its matchers and files. A later top file replaces what was said of a target."""
        merged: dict[str, dict[str, tuple[int, list[Any]]]] = {}
        for top in tops:
            if not isinstance(top, dict):
                errors.append(BAD_TOP)
                return {}
            for env, targets in top.items():
                if env == "include":
                    continue
                if not isinstance(targets, dict) or not all(isinstance(said, list) for said in targets.values()):
                    errors.append(BAD_TOP)
                    return {}
                for target, said in targets.items():
                    merged.setdefault(str(env), {})[str(target)] = self._said(str(env), said)
        return {
            env: {target: said for target, (_, said) in sorted(targets.items(), key=lambda item: item[1][0])}
            for env, targets in merged.items()
        }

    def _said(self, env: str, said: list[Any]) -> tuple[int, list[Any]]:
        words = [each for each in said if isinstance(each, dict)]
        names = list(dict.fromkeys(each for each in said if isinstance(each, str)))
        order = 0
        for word in words:
            if "order" in word:
                try:
                    order = int(word["order"])
                except (TypeError, ValueError):
                    order = 0
            if word.get("ignore_missing"):
                self._ignored.setdefault(env, set()).update(names)
        return order, [*(word for word in words if "match" in word), *names]

    def _matches(self, top: dict[str, dict[str, list[Any]]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        wanted = [
            (env, target, _kind(said), said)
            for env, targets in top.items()
            if self._only is None or env == self._only
            for target, said in targets.items()
        ]
        # Thousands of devices may have an entry each, by name: together they are one question and not thousands.
        named = self._reads.one_of(list(dict.fromkeys(tgt for _, tgt, kind, _ in wanted if _is_name(tgt, kind))))
        for env, target, kind, said in wanted:
            if target == named if _is_name(target, kind) else self._is_meant(target, kind):
                names = found.setdefault(env, [])
                names += [name for name in said if isinstance(name, str) and name not in names]
        return found

    def _is_meant(self, target: str, kind: str) -> bool:
        if kind == "nodegroup":
            target, kind = self._rules.nodegroups.get(target, ""), "compound"
            if not target:
                return False
        elif "N@" in target and kind == "compound":
            target = " ".join(self._spelled(word) for word in target.split())
        try:
            return self._reads.meant(target, kind)
        except UsageInvalid as error:
            # Salt means nobody by it, and says so only in its log.
            self._problem(Problem(TOP, 0, "target", error.what, target[:200]))
            return False

    def _spelled(self, word: str) -> str:
        if not word.startswith("N@"):
            return word
        group = self._rules.nodegroups.get(word[2:])
        return f"( {group} )" if group else word

    # --- the files -------------------------------------------------------------------------------------------------

    def _environment(self, env: str, names: list[str], pillar: dict[Any, Any]) -> dict[Any, Any]:
        sources = self._environments.get(env)
        if sources is None:
            self._errors += [f"No matching pillar environment for environment '{env}' found" for _ in names]
            return pillar
        states = _States(sources)
        for name in (sls for glob in names for sls in matching(sources.available, glob) or [glob]):
            state = self._state(name, states, {}, 0)
            # What renders to no mapping has said so in the errors.
            if isinstance(state, dict):
                pillar = self._merge(pillar, state)
        return pillar

    def _missing(self, sls: str, env: str) -> None:
        if sls not in self._ignored.get(env, ()):
            said = f"Specified SLS '{sls}' in environment '{env}' is not available on the salt master"
            self._errors.append(said)
            self._problem(Problem(f"{env}:{sls}", 0, "missing", said, ""))

    def _state(self, sls: str, states: _States, defaults: Mapping[str, Any], depth: int) -> Any:
        sources = states.sources
        path = sources.place(sls)
        if path is None:
            self._missing(sls, sources.env)
            return None
        state: Any = None
        try:
            state = sources.render(path, sls, self._reads, self._given, defaults, state_names)
        except Unrenderable as error:
            self._noted(error)
            self._errors.append(f"Rendering SLS '{sls}' failed. Please see master log for details.")
        states.done[sls] = state
        if not state:
            return state
        if not isinstance(state, dict):
            said = f"SLS '{sls}' does not render to a dictionary"
            self._errors.append(said)
            self._problem(Problem(sources.label(path), 0, "shape", said, ""))
        elif "include" in state:
            if not isinstance(state["include"], list):
                said = f"Include Declaration in SLS '{sls}' is not formed as a list"
                self._errors.append(said)
                self._problem(Problem(sources.label(path), 0, "include", said, ""))
            else:
                return self._with_includes(sls, path, state, states, depth)
        return state

    def _with_includes(self, sls: str, path: str, state: dict[Any, Any], states: _States, depth: int) -> Any:
        """What the included files say, and over it, or below it, what this one says."""
        found: list[Any] = []
        for wanted in state.pop("include"):
            name, said = next(iter(wanted.items())) if isinstance(wanted, dict) and wanted else (wanted, None)
            said = said if isinstance(said, dict) else {}
            given = said.get("defaults")
            defaults = given if isinstance(given, dict) else {}
            for each in self._named(sls, path, str(name), states.sources):
                if depth >= INCLUDES:
                    raise render_yaml.TooLarge(f"files include each other more than {INCLUDES} deep")
                inner = states.done[each] if each in states.done else self._state(each, states, defaults, depth + 1)
                if not inner:
                    continue
                for key in reversed(str(said["key"]).split(":") if said.get("key") else []):
                    inner = {key: inner}
                if isinstance(inner, dict):
                    found.append(inner)
        order = [state, *found] if self._rules.includes_override_sls else [*found, state]
        whole = order[0]
        for each in order[1:]:
            whole = self._merge(whole, each)
        return whole

    @staticmethod
    def _named(sls: str, path: str, name: str, sources: Sources) -> list[str]:
        """The files that an include means: a name, a glob, or a name beside the file that begins with a dot."""
        found = matching(sources.available, name.lstrip(".").replace("/", "."))
        if name.startswith("."):
            parts = sls.split(".") if path.endswith("/init.sls") else sls.split(".")[:-1]
            name = ".".join([*parts, name[1:]])
        return [*found, *matching(sources.available, name)] or [name]

    def _merge(self, below: dict[Any, Any], above: dict[Any, Any]) -> dict[Any, Any]:
        return merge(below, above, self._rules.source_merging_strategy, lists=self._rules.merge_lists)

    def _noted(self, error: Unrenderable) -> str:
        self._problem(error.problem)
        return f"{error.problem.file}, line {error.problem.line}: {error.problem.kind}"

    def _problem(self, problem: Problem) -> None:
        if problem not in self._problems:
            self._problems.append(problem)


def _kind(said: list[Any]) -> str:
    """How a target is read: what stands beside it last."""
    kinds = [str(word["match"]) for word in said if isinstance(word, dict)]
    return kinds[-1] if kinds else "compound"


def _is_name(target: str, kind: str) -> bool:
    """Whether a target means the one device that has this name."""
    return kind in {"compound", "glob"} and target not in OPERATORS and _NAME.fullmatch(target) is not None
