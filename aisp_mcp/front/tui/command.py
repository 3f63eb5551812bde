"""The command `aisp bench tui`: the screen, or a plain menu with --simple."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.front.options import add_home, add_shared, open_context

if TYPE_CHECKING:
    from aisp_mcp.front.tui.source import ListSource
    from aisp_mcp.server.context import Context


def run(argv: Sequence[str]) -> int:
    """Show the screen until the user quits. Raises Unavailable NOT_INSTALLED, UsageError NO_TERMINAL."""
    options = _parser().parse_args(argv)
    if not options.simple:
        _require_screen()
    source = partial(_source, open_context(options))
    if options.simple:
        from aisp_mcp.front.tui import simple

        return simple.run(source())
    from aisp_mcp.front.tui.app import Tui

    app = Tui(source)
    app.run()
    return app.return_code or 0


def _source(ctx: Context) -> ListSource:
    """Return the source; its imports take as long as the first frame."""
    from aisp_mcp.front.tui.source import ListSource

    return ListSource(ctx)


def _require_screen() -> None:
    """Raises Unavailable or UsageError if the screen cannot be drawn."""
    if find_spec("textual") is None:
        raise Unavailable(
            "NOT_INSTALLED",
            "The terminal view needs textual, which is not installed.",
            "pip install 'aisp-mcp[tui]', or use the plain menu: aisp bench tui --simple",
        )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # the screen is drawn on standard error
        raise UsageError(
            "NO_TERMINAL",
            "The terminal view needs a terminal.",
            "Without a terminal, use: aisp bench tui --simple, aisp job list",
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aisp bench tui", description="Jobs, targets and verdicts on one screen.")
    parser.add_argument("--simple", action="store_true", help="a plain menu, for terminals without cursor movement")
    add_shared(parser)
    add_home(parser)
    return parser
