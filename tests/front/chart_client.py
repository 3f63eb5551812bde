"""A client that shows pages, and profiles to show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client import advertise

from aisp_mcp.front.mcp.parts.apps import MIME_TYPE, Apps
from aisp_mcp.front.mcp.server import Handlers, build_server
from aisp_mcp.server.context import Context
from aisp_mcp.settings import Settings

DATA = Path(__file__).parent.parent / "profile" / "data"
SHOWS_PAGES = advertise(Apps.identifier, {"mimeTypes": [MIME_TYPE]})


@asynccontextmanager
async def showing(era: str = "auto", extension: Any = SHOWS_PAGES) -> AsyncIterator[Client]:
    """A client that shows pages."""
    server = build_server(Handlers(Context(settings=Settings.from_env())))
    async with Client(server, mode=era, read_timeout_seconds=50, extensions=[extension]) as client:
        yield client
