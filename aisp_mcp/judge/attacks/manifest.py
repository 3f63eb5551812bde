"""All validity issues, from the modules beside this one, and the public incidents of incidents.yaml."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType

from aisp_mcp.judge.attacks import disclosed
from aisp_mcp.judge.attacks.base import Case, Issue

HERE = Path(__file__).parent
HEADS = ("What happens", "Why it lies", "What we do", "Limits")
CLASSES = {
    "B": "neutralised by construction",
    "D": "a hard signal",
    "N": "a numeric oracle",
    "R": "disclosed",
}


@dataclass(frozen=True)
class Incident:
    """A public incident. issues: the numbers of the issues it shows; source: where it can be read."""

    year: int
    title: str
    what: str
    issues: tuple[int, ...]
    source: str


@cache
def _modules() -> tuple[tuple[str, ModuleType], ...]:
    """(category, module) of each issue with attacks."""
    return tuple((category, importlib.import_module(name)) for category, name in _names())


def _names() -> Iterator[tuple[str, str]]:
    for package in pkgutil.iter_modules([str(HERE)]):
        if package.ispkg:
            for module in pkgutil.iter_modules([str(HERE / package.name)]):
                yield package.name, f"{__package__}.{package.name}.{module.name}"


@cache
def issues() -> tuple[Issue, ...]:
    """All issues by number."""
    found = [*disclosed.ISSUES, *(_issue(category, module) for category, module in _modules())]
    return tuple(sorted(found, key=lambda one: one.id))


def _issue(category: str, module: ModuleType) -> Issue:
    title, _, _ = (module.__doc__ or "").partition(".\n")
    file = f"{category}/{module.__name__.rpartition('.')[2]}.py"
    about: Issue = module.ABOUT
    control = about.control or _paragraphs(module)["What we do"].removesuffix(".")
    return replace(about, category=category, title=title, file=file, control=control)


def cases() -> Iterator[tuple[str, Case]]:
    """(category, case) of all attacks and honest twins."""
    for category, module in _modules():
        for case in module.CASES:
            yield category, replace(case, issue=module.ABOUT.id)


def page(issue: Issue) -> dict[str, str]:
    """The four paragraphs of an issue's page, by heading; empty without attacks."""
    if not issue.file:
        return {}
    return _paragraphs(importlib.import_module(f"{__package__}.{issue.file.removesuffix('.py').replace('/', '.')}"))


def _paragraphs(module: ModuleType) -> dict[str, str]:
    return dict(re.findall(rf"^({'|'.join(HEADS)}): (.+?)$", module.__doc__ or "", re.MULTILINE))


@cache
def incidents() -> tuple[Incident, ...]:
    """All incidents, oldest first."""
    import yaml

    rows = yaml.safe_load((HERE / "incidents.yaml").read_text("utf-8"))
    found = [Incident(**{**row, "issues": tuple(row["issues"])}) for row in rows]
    return tuple(sorted(found, key=lambda one: (one.year, one.title)))
