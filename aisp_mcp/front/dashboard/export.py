"""The pages as files for a static site: what is linked from the menu is written, and what that links to."""

from __future__ import annotations

from pathlib import Path

from aisp_mcp.errors import AispError, Refused, UsageError
from aisp_mcp.front.dashboard import site
from aisp_mcp.front.dashboard.app import STATIC, asset
from aisp_mcp.front.dashboard.asked import Asked, answered
from aisp_mcp.front.dashboard.flames import page_of
from aisp_mcp.front.dashboard.links import Written
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure

MARK = ".aisp-dashboard"  # a folder with this file was written by us and may be overwritten


def write(ctx: Context, folder: Path, most: int) -> int:
    """The number of pages written. Raises UsageError NO_FOLDER, Refused FOLDER_NOT_EMPTY for somebody else's folder."""
    if folder.exists() and not folder.is_dir():
        raise UsageError("NO_FOLDER", f"{folder} is a file.", "Name a new folder.")
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise Refused("FOLDER_NOT_EMPTY", f"{folder} holds files that are not of this command.", "Name a new folder.")
    (folder / "static").mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text("written by aisp dashboard export\n", encoding="utf-8")
    for name in STATIC:
        (folder / "static" / name).write_bytes(asset(name))
    links, written = Written(site.FILED | {"flame"}, most), set[str]()
    links.to("overview")
    while waiting := [(key, name) for key, name in links.wanted.items() if name not in written]:
        for (page, query), name in waiting:
            written.add(name)
            (folder / name).write_bytes(_page(ctx, page, dict(query), links))
    return len(written)


def _page(ctx: Context, name: str, query: dict[str, str], links: Written) -> bytes:
    asked = Asked(ctx, query, static=True)
    page = site.PAGES.get(name, site.PAGES["profile"])
    try:
        return page_of(ctx, query["id"]).encode() if name == "flame" else site.render(page, asked, links)
    except AispError as error:  # such as a profile whose file is gone: the page says so
        said = answered(name, failure(name, error, Stopwatch(ctx))).error or {}
        return site.problem(page, asked, links, said)
