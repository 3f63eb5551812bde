"""Entry point of the MCP server: `aisp-mcp`, or `python -m aisp_mcp`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence

from aisp_mcp import __version__
from aisp_mcp.errors import AispError
from aisp_mcp.front import terminal_text
from aisp_mcp.front.http.address import add_http
from aisp_mcp.front.options import add_home, add_selection, add_shared, export_selection, open_context
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import is_open, load_catalog, load_listed, select
from aisp_mcp.settings import PoolSettings, ToolSettings

# How long a thread may run Python code before another gets its turn. A call switches threads some fifteen times, and
# while a tool computes, each switch takes about this long: with 0.5 ms, calls took up to 15 ms on sixteen cores.
SWITCH_S = 0.0001


def main(argv: Sequence[str] | None = None) -> int:
    """Serve MCP over standard input and output, or list the tools. Serving does not return."""
    options = _parser().parse_args(argv)
    # Standard output belongs to the protocol.
    logging.basicConfig(level=logging.WARNING, handlers=[_log_handler()])
    try:
        export_selection(options)
        ctx = open_context(options)
        if PoolSettings.from_env().workers:
            os.environ["AISP_LEASES"] = str(ctx.settings.home / "leases")  # of all its jobs
        chosen = ToolSettings.from_env()
        with _gc_paused():
            few = is_open(chosen) and not (options.list or options.http)
            (load_listed if few else load_catalog)(ctx.settings)
        # Report a bad selection of tools before a client connects.
        select(chosen)
    except AispError as error:
        return _report(error)
    if options.list:
        from aisp_mcp.front.cli import listing

        print(listing.as_json() if options.json else listing.as_text())
        return 0
    sys.setswitchinterval(SWITCH_S)
    from aisp_mcp.front.subprocess_calls import SubprocessCalls

    ctx.call_in_subprocess = SubprocessCalls()
    # Importing the protocol library takes half a second, which --list does not need.
    if options.http:
        return _serve_http(ctx, options)
    with _gc_paused():
        from aisp_mcp.front.mcp.stdio import serve
    return serve(ctx)


def _serve_http(ctx: Context, options: argparse.Namespace) -> int:
    with _gc_paused():
        from aisp_mcp.front.http.serve import serve_http
    try:
        return serve_http(ctx, options)
    except AispError as error:
        return _report(error)


@contextlib.contextmanager
def _gc_paused() -> Iterator[None]:
    """Import without garbage collection, and exempt the modules from it: scanning them would slow start and calls."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _SafeFormatter(logging.Formatter):
    """Formatter that escapes control characters, since log lines quote callers."""

    def format(self, record: logging.LogRecord) -> str:
        return terminal_text.escape(super().format(record))


def _log_handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SafeFormatter("aisp %(levelname)s %(message)s"))
    return handler


def _report(error: AispError) -> int:
    print(terminal_text.escape(f"aisp-mcp: {error.code}: {error.message} {error.hint or ''}"), file=sys.stderr)
    return 2


def serve_judge(argv: Sequence[str]) -> int:
    """Serve over HTTP, with a pool of workers for submissions. Does not return unless it cannot serve."""
    parser = argparse.ArgumentParser(
        prog="aisp serve-judge", description="Judge submissions of many clients, one at a time on each device."
    )
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="submissions worked on at once (default 2)")
    parser.add_argument("--queue", type=int, default=1000, metavar="N", help="submissions that may wait (default 1000)")
    options, rest = parser.parse_known_args(argv)
    if min(options.workers, options.queue) < 1:
        parser.error("--workers and --queue are at least 1")
    os.environ.update(
        AISP_POOL_WORKERS=str(options.workers),
        AISP_POOL_QUEUE=str(options.queue),
        AISP_PARALLEL_JOBS=str(options.workers),
    )
    http = [] if any(word.partition("=")[0] == "--http" for word in rest) else ["--http", "127.0.0.1:8000"]
    return main([*http, *rest])


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
