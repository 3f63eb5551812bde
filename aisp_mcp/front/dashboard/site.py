"""All pages, and how one becomes HTML."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aisp_mcp import __version__
from aisp_mcp.front.cli import format
from aisp_mcp.front.cli.commands import command_line
from aisp_mcp.front.dashboard.asked import Asked
from aisp_mcp.front.dashboard.links import Links
from aisp_mcp.runs.export.facts import environment_rows
from aisp_mcp.server.charts import drawing
from aisp_mcp.server.text import numbers
from aisp_mcp.server.text.escape import visible

if TYPE_CHECKING:
    from jinja2 import Environment


MOST_INLINE = 3  # names of a record that is written on one line


@dataclass(frozen=True)
class Page:
    """name: of its module in pages/, its template and its address. menu: whether the menu names it.

    filed: whether it can be a file of a static site; pages of forms cannot.
    """

    name: str
    title: str
    menu: bool = True
    filed: bool = True

    def build(self, asked: Asked) -> dict[str, Any]:
        """The data of the template. Raises AispError."""
        found: Callable[[Asked], dict[str, Any]] = import_module(f"aisp_mcp.front.dashboard.pages.{self.name}").build
        return found(asked)


PAGES = {
    page.name: page
    for page in (
        Page("overview", "Overview"),
        Page("targets", "Targets"),
        Page("verdicts", "Verdicts"),
        Page("run", "Run", menu=False),
        Page("history", "History", menu=False),
        Page("compare", "Compare"),
        Page("analysis", "Analysis"),
        Page("profiles", "Profiles"),
        Page("profile", "Profile", menu=False),
        Page("timeline", "Timeline", menu=False, filed=False),
        Page("machine", "Machine"),
        Page("jobs", "Jobs"),
        Page("job", "Job", menu=False),
        Page("planners", "Planners", filed=False),
        Page("settings", "Settings", filed=False),
    )
}
FILED = frozenset(page.name for page in PAGES.values() if page.filed)


def render(page: Page, asked: Asked, links: Links, csrf: str = "") -> bytes:
    """The page as HTML. Raises AispError where there is nothing to show."""
    return fill(f"{page.name}.html.j2", page, asked, links, csrf, page.build(asked))


def problem(page: Page, asked: Asked, links: Links, error: dict[str, Any]) -> bytes:
    """The page that says why there is none."""
    return fill("problem.html.j2", page, asked, links, "", {"error": error})


def fill(template: str, page: Page, asked: Asked, links: Links, csrf: str, data: dict[str, Any]) -> bytes:
    """The template with what every page has: the menu, the browser's wishes, and links."""
    menu = [one for one in PAGES.values() if one.menu and (one.filed or not asked.static)]
    shared = {"page": page, "menu": menu, "asked": asked, "csrf": csrf, "version": __version__}
    text = _environment().get_template(template).render(**shared, link=links.to, file=links.file, **data)
    return text.encode("utf-8", "replace")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("aisp_mcp.front.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(plain=visible, facts=environment_rows, svg=drawing.to_svg, said=_said, label=format.label)
    made.filters.update(ratio=numbers.ratio, seconds=numbers.seconds, percent=numbers.percent, size=numbers.size)
    made.filters.update(moment=numbers.moment, measured=format.measured, amount=_amount)
    made.filters.update(flat=_flat, groupby_all=_grouped, tabled=_tabled)
    made.tests.update(nested=_nested)
    made.globals.update(labels=format.labels, columns=_columns, command=command_line, partial=partial)
    return made


def _said(value: Any, name: str = "") -> str:
    """One value with the unit its name ends in, fit to be shown."""
    return visible(format.value(name, _line(value)))


def _amount(value: float | None, unit: str) -> str:
    """A figure in the unit of its record; bytes with binary prefixes."""
    return numbers.size(None if value is None else round(value)) if unit == "bytes" else numbers.quantity(value, unit)


def _nested(value: Any) -> bool:
    """True for a record that needs a place of its own."""
    inner = isinstance(value, dict) and any(isinstance(item, dict | list) for item in value.values())
    return isinstance(value, dict) and (inner or len(value) > MOST_INLINE) and not set(value) >= {"low", "high"}


def _flat(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose records of plain values become one line of text each."""
    return [{name: _line(value) for name, value in row.items()} for row in rows]


def _tabled(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Records by name as rows, where all are plain and alike; else none."""
    inner = list(value.values())
    alike = all(isinstance(one, dict) and one and set(one) == set(inner[0]) for one in inner)
    plain = alike and not any(isinstance(item, dict | list) for one in inner for item in one.values())
    return [{"of": name, **one} for name, one in value.items()] if plain else []


def _grouped(rows: list[dict[str, Any]], *names: str) -> list[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
    """Rows by the values of these names, in the order of their first."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(found.items())


def _line(value: Any) -> Any:
    measured = isinstance(value, dict) and (set(value) >= {"low", "high"} or set(value) == {"value", "share", "source"})
    if not isinstance(value, dict) or measured:
        return value
    if any(isinstance(item, dict | list) for item in value.values()):
        named = [value[name] for name in ("name", "what") if isinstance(value.get(name), str)]
        return ": ".join(named) or value
    known = {name: item for name, item in value.items() if item is not None}
    return ", ".join(f"{format.label(name)} {format.value(name, item)}" for name, item in known.items())


def _columns(rows: list[dict[str, Any]], most: int = 12) -> list[str]:
    """Names of the columns of a table of records: those with a value that fits a cell, in their order."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if any(_fits(row.get(name)) for row in rows)][:most]


def _fits(value: Any) -> bool:
    if isinstance(value, dict):
        return set(value) >= {"low", "high"}
    return value not in (None, "", []) and not (isinstance(value, list) and any(isinstance(v, dict) for v in value))
