"""The list of pages, and their rendering as HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aisp_mcp import __version__
from aisp_mcp.front.cli import format
from aisp_mcp.front.cli.commands import command_line
from aisp_mcp.front.dashboard import figures, words
from aisp_mcp.front.dashboard.request import Links, PageRequest
from aisp_mcp.runs.export.markdown import environment_rows
from aisp_mcp.server.charts import drawing
from aisp_mcp.server.text import numbers
from aisp_mcp.server.text.escape import visible

if TYPE_CHECKING:
    from jinja2 import Environment


MAX_INLINE = 3  # fields of a record that is written on one line


@dataclass(frozen=True)
class SitePage:
    """A page. name: of its module in pages/, its template and its address.

    exported: part of a static site; pages of forms are not.
    """

    name: str
    title: str
    exported: bool = True

    def build(self, request: PageRequest) -> dict[str, Any]:
        """Return the template's data. Raises AispError."""
        module = import_module(f"aisp_mcp.front.dashboard.pages.{self.name}")
        build: Callable[[PageRequest], dict[str, Any]] = module.build
        return build(request)


@dataclass(frozen=True)
class MenuEntry:
    """A link of the menu. key: goes there after `g`."""

    title: str
    page: str
    key: str
    query: Mapping[str, str] = field(default_factory=dict)


PAGES = {
    page.name: page
    for page in (
        SitePage("overview", "Overview"),
        SitePage("targets", "Targets"),
        SitePage("verdicts", "Verdicts"),
        SitePage("run", "Run"),
        SitePage("history", "History"),
        SitePage("compare", "Compare"),
        SitePage("analysis", "Analysis"),
        SitePage("profiles", "Profiles"),
        SitePage("profile", "Profile"),
        SitePage("timeline", "Timeline", exported=False),
        SitePage("machine", "Machine"),
        SitePage("jobs", "Jobs"),
        SitePage("job", "Job"),
        SitePage("planners", "Planners", exported=False),
        SitePage("settings", "Settings", exported=False),
    )
}
MENU = {
    "Results": (
        MenuEntry("Overview", "overview", "o"),
        MenuEntry("Targets", "targets", "t"),
        MenuEntry("Verdicts", "verdicts", "v"),
    ),
    "Explain": (
        MenuEntry("Compare", "compare", "c"),
        MenuEntry("Profiles", "profiles", "p"),
        MenuEntry("Analysis", "analysis", "a"),
    ),
    "Plan": (
        MenuEntry("Recommendations", "analysis", "r", {"section": "recommendations"}),
        MenuEntry("Planners", "planners", "l"),
    ),
    "System": (
        MenuEntry("Machine", "machine", "m"),
        MenuEntry("Jobs", "jobs", "j"),
        MenuEntry("Settings", "settings", "s"),
    ),
}
PARENTS = {"run": "verdicts", "history": "targets", "profile": "profiles", "timeline": "profiles", "job": "jobs"}
EXPORTED = frozenset(page.name for page in PAGES.values() if page.exported)


def render(page: SitePage, request: PageRequest, links: Links, csrf: str = "") -> bytes:
    """Return the page as HTML. Raises AispError if there is nothing to show."""
    return _fill(f"{page.name}.html.j2", page, request, links, csrf, page.build(request))


def render_error(page: SitePage, request: PageRequest, links: Links, error: dict[str, Any]) -> bytes:
    """Return an error as HTML, under the title of the page that was requested."""
    return _fill("error.html.j2", page, request, links, "", {"error": error})


def render_sign_in(reason: str, links: Links) -> bytes:
    """Return the page for a browser that is not signed in."""
    return _environment().get_template("sign_in.html.j2").render(reason=reason, file=links.file).encode()


def _fill(template: str, page: SitePage, request: PageRequest, links: Links, csrf: str, data: dict[str, Any]) -> bytes:
    """Fill in the template with the page's data and what all pages share: menu, settings and links."""
    shared = {"page": page, "menu": _menu(page, request), "request": request, "csrf": csrf, "version": __version__}
    text = _environment().get_template(template).render(**shared, link=links.to, file=links.file, **data)
    return text.encode("utf-8", "replace")


def _menu(page: SitePage, request: PageRequest) -> dict[str, list[tuple[MenuEntry, bool]]]:
    """The groups of the menu: each entry, and True for the one that the page belongs to."""
    name, groups = PARENTS.get(page.name, page.name), dict[str, list[tuple[MenuEntry, bool]]]()
    fits = [entry for group in MENU.values() for entry in group if entry.page == name]
    exact = [entry for entry in fits if entry.query and entry.query.items() <= dict(request.query).items()]
    current = next(iter([*exact, *(entry for entry in fits if not entry.query)]), None)
    for title, group in MENU.items():
        shown = [entry for entry in group if PAGES[entry.page].exported or not request.static]
        groups[title] = [(entry, entry is current) for entry in shown]
    return groups


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("aisp_mcp.front.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters, tests = environment.filters, environment.tests
    filters.update(plain=visible, facts=environment_rows, svg=drawing.to_svg, with_unit=_with_unit, label=format.label)
    filters.update(ratio=numbers.ratio, seconds=numbers.seconds, percent=numbers.percent, size=numbers.size)
    filters.update(moment=numbers.moment, minute=_minute, measured=format.measured, amount=_amount)
    filters.update(title_of=words.title_of, rail=figures.rail)
    filters.update(flat=_flat, groupby_all=_grouped, as_rows=_as_rows)
    tests.update(nested=_is_nested)
    environment.globals.update(labels=format.labels, columns=_columns, command=command_line)
    return environment


def _minute(at: float) -> str:
    """UTC time of a record for a list: to the minute."""
    return numbers.moment(at)[:16]


def _with_unit(value: Any, name: str = "") -> str:
    """Format a value with the unit that its name ends in, control characters made visible."""
    return visible(format.value(name, _line(value)))


def _amount(value: float | None, unit: str) -> str:
    """Format a value in a unit; bytes with binary prefixes."""
    return numbers.size(None if value is None else round(value)) if unit == "bytes" else numbers.quantity(value, unit)


def _is_nested(value: Any) -> bool:
    """True for a record that needs its own section."""
    has_inner = isinstance(value, dict) and any(isinstance(item, dict | list) for item in value.values())
    return isinstance(value, dict) and (has_inner or len(value) > MAX_INLINE) and not set(value) >= {"low", "high"}


def _flat(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write each record within a row as one line of text."""
    return [{name: _line(value) for name, value in row.items()} for row in rows]


def _as_rows(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Records by name as rows if all are flat and have the same fields; else no rows."""
    records = list(value.values())
    alike = all(isinstance(record, dict) and record and set(record) == set(records[0]) for record in records)
    flat = alike and not any(isinstance(item, dict | list) for record in records for item in record.values())
    return [{"of": name, **record} for name, record in value.items()] if flat else []


def _grouped(rows: list[dict[str, Any]], *names: str) -> list[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
    """Group rows by the values of these fields, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.items())


def _line(value: Any) -> Any:
    is_measure = isinstance(value, dict) and (
        set(value) >= {"low", "high"} or set(value) == {"value", "share", "source"}
    )
    if not isinstance(value, dict) or is_measure:
        return value
    if any(isinstance(item, dict | list) for item in value.values()):
        titles = [value[name] for name in ("name", "what") if isinstance(value.get(name), str)]
        return ": ".join(titles) or value
    fields = {name: item for name, item in value.items() if item is not None}
    return ", ".join(f"{format.label(name)} {format.value(name, item)}" for name, item in fields.items())


def _columns(rows: list[dict[str, Any]], limit: int = 12) -> list[str]:
    """Names of the fields that have a value which fits a table cell, in order."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if any(_fits(row.get(name)) for row in rows)][:limit]


def _fits(value: Any) -> bool:
    if isinstance(value, dict):
        return set(value) >= {"low", "high"}
    return value not in (None, "", []) and not (
        isinstance(value, list) and any(isinstance(item, dict) for item in value)
    )
