"""The way in to the MCP server: `aisp-mcp`, or `python -m aisp_mcp`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import sys
from collections.abc import Iterator, Sequence

from aisp_mcp import __version__
from aisp_mcp.errors import AispError
from aisp_mcp.front import neutral
from aisp_mcp.front.http.address import add_http
from aisp_mcp.front.options import add_home, add_selection, add_shared, export_selection, open_context
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import load_catalog, select
from aisp_mcp.settings import ToolSettings

# How long a thread may compute in Python before another gets its turn. A call changes threads some fifteen times, and
# beside a tool that computes each change costs about this: with 0.5 ms calls took up to 15 ms on sixteen cores.
SWITCH_S = 0.0001


def main(argv: Sequence[str] | None = None) -> int:
    """Serve MCP over standard input and output, or list the tools. Serving does not return."""
    options = _parser().parse_args(argv)
    # Standard output belongs to the protocol.
    logging.basicConfig(level=logging.WARNING, handlers=[_log_handler()])
    try:
        export_selection(options)
        ctx = open_context(options)
        with _nothing_collected():
            load_catalog(ctx.settings)
        # What cannot be offered is said here, before a client is connected.
        select(ToolSettings.from_env())
    except AispError as error:
        return _refuse(error)
    if options.list:
        from aisp_mcp.front.cli import listing

        print(listing.as_json() if options.json else listing.as_text())
        return 0
    sys.setswitchinterval(SWITCH_S)
    from aisp_mcp.front.apart import Apart

    ctx.apart = Apart()
    # The protocol library costs half a second: --list does not pay it.
    if options.http:
        return _serve_http(ctx, options)
    with _nothing_collected():
        from aisp_mcp.front.mcp.stdio import serve
    return serve(ctx)


def _serve_http(ctx: Context, options: argparse.Namespace) -> int:
    with _nothing_collected():
        from aisp_mcp.front.http.serve import serve_http
    try:
        return serve_http(ctx, options)
    except AispError as error:
        return _refuse(error)


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """For imports: what they make stays. Looking through it for garbage lengthens the start, and pauses calls later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Neutral(logging.Formatter):
    """Formatter that neutralises a caller's words in log lines."""

    def format(self, record: logging.LogRecord) -> str:
        return neutral.text(super().format(record))


def _log_handler() -> logging.Handler:
    """Lines on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Neutral("aisp %(levelname)s %(message)s"))
    return handler


def _refuse(error: AispError) -> int:
    print(neutral.text(f"aisp-mcp: {error.code}: {error.message} {error.hint or ''}"), file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aisp-mcp", description="The aisp MCP server, over standard input and output, or HTTP."
    )
    parser.add_argument("--serve", action="store_true", help="serve over standard input and output (the default)")
    parser.add_argument("--list", action="store_true", help="list the tools and exit")
    parser.add_argument("--json", action="store_true", help="with --list: as JSON")
    parser.add_argument("--version", action="version", version=__version__)
    add_shared(parser)
    add_home(parser)
    add_selection(parser)
    add_http(parser)
    return parser
