"""Export the pages as a static site: those linked from the menu, and every page that they link to."""

from __future__ import annotations

from pathlib import Path

from aisp_mcp.errors import AispError, Refused, UsageError
from aisp_mcp.front.dashboard import site
from aisp_mcp.front.dashboard.app import STATIC, asset
from aisp_mcp.front.dashboard.flames import page_of
from aisp_mcp.front.dashboard.request import FileLinks, PageRequest, answer_from
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure

MARK = ".aisp-dashboard"  # marks a folder that this command wrote and may overwrite


def write(ctx: Context, folder: Path, max_files: int) -> int:
    """Write the pages and return how many. Raises UsageError NO_FOLDER, Refused FOLDER_NOT_EMPTY."""
    if folder.exists() and not folder.is_dir():
        raise UsageError("NO_FOLDER", f"{folder} is a file.", "Choose a new folder.")
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        message = f"{folder} contains files that this command did not write."
        raise Refused("FOLDER_NOT_EMPTY", message, "Choose a new folder.")
    (folder / "static").mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text("written by aisp dashboard export\n", encoding="utf-8")
    for name in STATIC:
        (folder / "static" / name).write_bytes(asset(name))
    links, written = FileLinks(site.EXPORTED | {"flame"}, max_files), set[str]()
    links.to("overview")
    while pending := [(key, name) for key, name in links.names.items() if name not in written]:
        for (page, query), name in pending:
            written.add(name)
            (folder / name).write_bytes(_page(ctx, page, dict(query), links))
    return len(written)


def _page(ctx: Context, name: str, query: dict[str, str], links: FileLinks) -> bytes:
    request = PageRequest(ctx, query, static=True)
    page = site.PAGES.get(name, site.PAGES["profile"])
    try:
        return page_of(ctx, query["id"]).encode() if name == "flame" else site.render(page, request, links)
    except AispError as error:  # such as a profile whose file is gone
        data = answer_from(name, failure(name, error, Stopwatch(ctx))).error or {}
        return site.render_error(page, request, links, data)
