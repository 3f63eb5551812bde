"""Stored imports: looked up by id, label or path, in brief, and as histories of figures."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime

from aisp_mcp.errors import NotFound
from aisp_mcp.runs.imports import reading
from aisp_mcp.runs.imports.records import Figure, FigureHistory, Import, Imported, Line, Point
from aisp_mcp.server.context import Context

MOST = 1000  # imports that a history looks at, newest first
LINES = 8
STANDING = "measured elsewhere, not judged by aisp"


def stored(ctx: Context, limit: int = MOST) -> list[Import]:
    """Imports that the caller may see, newest first; none where nothing was ever stored."""
    if not (ctx.settings.home / "aisp.db").exists():  # a look does not create a store
        return []
    return ctx.store.list_imports(Import, limit, ctx.sees)


def find(ctx: Context, name: str) -> Import:
    """An import by id or label, the newest first; else the file at that path, which is read and not stored.

    Raises NotFound UNKNOWN_IMPORT, and the errors of reading.
    """
    known = stored(ctx)
    for found in known:
        if name in (found.id, found.label):
            return found
    try:
        return reading.read(name, None, ctx.clock())
    except NotFound as error:
        near = difflib.get_close_matches(name, [word for found in known for word in (found.label, found.id)], 3)
        hint = f"Did you mean {', '.join(near)}?" if near else "Give the path of a result file, or an id or label."
        message = f"No import and no file is named {name[:200]!r}."
        raise NotFound("UNKNOWN_IMPORT", message, hint, [("aisp_benchmark_imports", {})]) from error


def brief(found: Import, lines: int = LINES) -> Imported:
    """An import as an answer."""
    contents = found.contents
    return Imported(
        id=found.id,
        sentence=_sentence(found),
        format=found.format,
        label=found.label,
        standing=STANDING,
        machine=contents.machine,
        commit=contents.commit,
        measured_at=_utc(contents.measured_at) if contents.measured_at else None,
        figures=len(contents.figures),
        lines=[_line(figure) for figure in contents.figures[:lines]],
        notes=contents.notes,
    )


def _line(figure: Figure) -> Line:
    stated = figure.model_dump(include={"name", "metric", "value", "unit", "statistic"})
    return Line(**stated, samples=len(figure.samples), settings=figure.settings)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _sentence(found: Import) -> str:
    figures = found.contents.figures
    raw = sum(bool(figure.samples) for figure in figures)
    names = len({figure.name for figure in figures})
    samples = f"{raw} of them with raw samples" if raw else f"none with raw samples ({reading.raw_hint(found.format)})"
    one = "1 figure" if len(figures) == 1 else f"{len(figures)} figures"
    about = "1 benchmark" if names == 1 else f"{names} benchmarks"
    return f"{found.label}: {one} of {about} from {found.format}, {samples}; {STANDING}."


def histories(imports: list[Import], name: str, limit: int) -> list[FigureHistory]:
    """Figures whose name, metric or parameters contain the text, over all imports that hold them, oldest first."""
    wanted, found = name.lower(), dict[tuple[str, str, str], FigureHistory]()
    for one in sorted(imports, key=_when):
        for figure in one.contents.figures:
            if wanted in " ".join(figure.key).lower():
                history = found.setdefault(
                    figure.key,
                    FigureHistory(
                        name=figure.name, metric=figure.metric, unit=figure.unit, better=figure.better,
                        settings=figure.settings, points=[],
                    ),
                )  # fmt: skip
                history.points.append(_point(one, figure))
    return sorted(found.values(), key=lambda history: -len(history.points))[:limit]


def _when(found: Import) -> float:
    return found.contents.measured_at or found.imported_at


def _point(found: Import, figure: Figure) -> Point:
    about = found.contents
    return Point(
        at=_utc(_when(found)), import_id=found.id, label=found.label, machine=about.machine, commit=about.commit,
        value=figure.value,
    )  # fmt: skip
