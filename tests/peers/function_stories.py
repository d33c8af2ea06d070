"""All stories of functions. A new file of them is one more line here."""

from __future__ import annotations

from tests.peers import (
    function_cases_accounts,
    function_cases_keys,
    function_cases_packages,
    function_cases_services,
    function_cases_system,
    function_cases_twins,
)
from tests.peers.function_story import Step, Story

STORIES = (
    *function_cases_accounts.STORIES,
    *function_cases_keys.STORIES,
    *function_cases_packages.STORIES,
    *function_cases_services.STORIES,
    *function_cases_system.STORIES,
    *function_cases_twins.STORIES,
)

WITH_SALT = tuple(story for story in STORIES if story.salt is not None and (story.salt or "debian" in story.kinds))
"""Those that stock Salt is asked too."""


def steps(*marks: str, stories: tuple[Story, ...] = STORIES) -> set[str]:
    """The functions that are called with one of these marks for Salt."""
    return {step.fun for story in stories for step in story.steps if isinstance(step, Step) and step.salt in marks}
