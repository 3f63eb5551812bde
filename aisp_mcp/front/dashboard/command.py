"""The command `aisp dashboard`: serve the pages, or export them as files."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from aisp_mcp.errors import Refused, UsageError
from aisp_mcp.front.options import add_home, add_shared, open_context
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import load_catalog

PORT, MAX_FILES = 8100, 2000


def run(argv: Sequence[str]) -> int:
    """Run the command; serving does not return. Raises AispError."""
    is_export = list(argv[:1]) == ["export"]
    options = (_export_parser() if is_export else _parser()).parse_args(argv[1:] if is_export else argv)
    with tempfile.TemporaryDirectory(prefix="aisp-dashboard-") as folder:
        if options.data:
            options.artifacts_dir = folder
        ctx = open_context(options)
        load_catalog(ctx.settings)
        if options.data:
            import_run(ctx, options.data)
        if is_export:
            from aisp_mcp.front.dashboard.export import write

            try:
                count = write(ctx, options.folder, options.files)
            except OSError as error:
                reason = f"Cannot write {options.folder}: {error.strerror}."
                raise Refused("UNWRITABLE", reason, "Choose another folder.") from None
            print(f"Wrote {count} pages; start with {options.folder / 'index.html'}")
            return 0
        from aisp_mcp.front.dashboard.serve import serve

        return serve(ctx, options.port, options.allow_run, Path(folder))


def import_run(ctx: Context, path: Path) -> None:
    """Store the run of a file: run.json of a run's folder, or results.json of an export.

    Raises UsageError BAD_RUN_FILE.
    """
    import json

    from aisp_mcp.store.records.run import Run

    try:
        data = json.loads(path.read_bytes())
        run = Run.model_validate(data["run"] if isinstance(data, dict) and "run" in data else data)
    except OSError as error:
        raise UsageError("BAD_RUN_FILE", f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, ValidationError):
        hint = "Give the run.json of a run's folder, or a file that aisp bench export --format json wrote."
        raise UsageError("BAD_RUN_FILE", f"{path} does not contain a run.", hint) from None
    ctx.store.save_run(run, None)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65_536):
        raise argparse.ArgumentTypeError("a port is 0 to 65535")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aisp dashboard",
        description="Serve web pages of runs, machine, jobs and planners on this machine. "
        "`aisp dashboard export DIR` writes them as files.",
    )
    parser.add_argument("--port", type=_port, metavar="N", default=PORT, help="0: any free port; default 8100")
    parser.add_argument("--allow-run", action="store_true", help="let forms start and cancel jobs")
    return _shared(parser)


def _export_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aisp dashboard export", description="Write the pages as a static site.")
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="a new or empty folder, or one that this command wrote"
    )
    parser.add_argument(
        "--files", metavar="N", type=int, default=MAX_FILES, help="maximum number of pages; default 2000"
    )
    return _shared(parser)


def _shared(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--data", metavar="RUN.json", type=Path, help="show only this run instead of the store")
    add_shared(parser)
    add_home(parser)
    return parser
