"""Stored imports: looked up by id, label or path, in brief, and as histories of figures."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime

from aisp_mcp.errors import NotFound
from aisp_mcp.runs.imports import reading
from aisp_mcp.runs.imports.records import Figure, FigureHistory, Import, Imported, Line, Point
from aisp_mcp.server.context import Context

MOST = 1000  # imports that a history considers, newest first
LINES = 8
STANDING = "measured elsewhere, not judged by aisp"


def stored(ctx: Context, limit: int = MOST) -> list[Import]:
    """Imports that the caller may see, newest first; none if nothing was ever stored."""
    if not (ctx.settings.home / "aisp.db").exists():  # reading does not create a store
        return []
    return ctx.store.list_imports(Import, limit, ctx.sees)


def find(ctx: Context, name: str) -> Import:
    """An import by id or label, the newest first; else the file at that path, which is read but not stored.

    Raises NotFound UNKNOWN_IMPORT, and the errors of reading.
    """
    known = stored(ctx)
    for imported in known:
        if name in (imported.id, imported.label):
            return imported
    try:
        return reading.read(name, None, ctx.clock())
    except NotFound as error:
        near = difflib.get_close_matches(
            name, [word for imported in known for word in (imported.label, imported.id)], 3
        )
        hint = f"Did you mean {', '.join(near)}?" if near else "Give the path of a result file, or an id or label."
        message = f"No import and no file is named {name[:200]!r}."
        raise NotFound("UNKNOWN_IMPORT", message, hint, [("aisp_benchmark_imports", {})]) from error


def brief(imported: Import, lines: int = LINES) -> Imported:
    """An import as an answer."""
    contents = imported.contents
    return Imported(
        id=imported.id,
        sentence=_sentence(imported),
        format=imported.format,
        label=imported.label,
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


def _sentence(imported: Import) -> str:
    figures = imported.contents.figures
    raw = sum(bool(figure.samples) for figure in figures)
    names = len({figure.name for figure in figures})
    samples = (
        f"{raw} of them with raw samples" if raw else f"none with raw samples ({reading.raw_hint(imported.format)})"
    )
    count_text = "1 figure" if len(figures) == 1 else f"{len(figures)} figures"
    about = "1 benchmark" if names == 1 else f"{names} benchmarks"
    return f"{imported.label}: {count_text} of {about} from {imported.format}, {samples}; {STANDING}."


def histories(imports: list[Import], name: str, limit: int) -> list[FigureHistory]:
    """Figures whose name, metric or parameters contain the text, over all imports that have them, oldest first."""
    plain_name, by_key = name.lower(), dict[tuple[str, str, str], FigureHistory]()
    for imported in sorted(imports, key=_when):
        for figure in imported.contents.figures:
            if plain_name in " ".join(figure.key).lower():
                history = by_key.setdefault(
                    figure.key,
                    FigureHistory(
                        name=figure.name, metric=figure.metric, unit=figure.unit, better=figure.better,
                        settings=figure.settings, points=[],
                    ),
                )  # fmt: skip
                history.points.append(_point(imported, figure))
    return sorted(by_key.values(), key=lambda history: -len(history.points))[:limit]


def _when(imported: Import) -> float:
    return imported.contents.measured_at or imported.imported_at


def _point(imported: Import, figure: Figure) -> Point:
    about = imported.contents
    return Point(
        at=_utc(_when(imported)), import_id=imported.id, label=imported.label, machine=about.machine,
        commit=about.commit, value=figure.value,
    )  # fmt: skip
