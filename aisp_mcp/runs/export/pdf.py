"""The HTML report as PDF, printed by a Chromium that is already installed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from aisp_mcp.errors import ProcessError, Unavailable
from aisp_mcp.process import browser
from aisp_mcp.process.run import run

TIMEOUT_S = 60.0
_QUIET = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-extensions", "--no-pdf-header-footer"),
)


def to_pdf(html: bytes) -> bytes:
    """Print a self-contained page. Raises Unavailable NOT_INSTALLED without a browser, ProcessError if it fails."""
    program = find_browser()
    with tempfile.TemporaryDirectory(prefix="aisp-pdf-") as name:
        folder = Path(name)
        (folder / "report.html").write_bytes(html)
        done = run(_argv(program, folder), timeout_s=TIMEOUT_S, max_output=20_000)
        page = folder / "report.pdf"
        data = page.read_bytes() if page.is_file() else b""
    if not data.startswith(b"%PDF-"):
        how = f"did not finish within {TIMEOUT_S:g} s" if done.timed_out else f"ended with {done.returncode}"
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ProcessError("CRASHED", f"{program} made no PDF and {how}: {last[0][:300]}", "Use the html format.")
    return data


def find_browser() -> str:
    """The path of the first known browser. Raises Unavailable NOT_INSTALLED."""
    if program := browser.find():
        return program
    raise Unavailable(
        "NOT_INSTALLED",
        f"A PDF needs a Chromium browser; looked on PATH for {', '.join(browser.BROWSERS)}.",
        "Install one (Debian, Ubuntu: apt-get install chromium), or use the html format and print it yourself.",
    )


def _argv(program: str, folder: Path) -> list[str]:
    # Chromium's own sandbox refuses to start as root; the page is ours, escaped, and cannot load anything.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    page, profile = folder / "report.html", folder / "profile"
    return [
        program,
        *_QUIET,
        *sandbox,
        f"--user-data-dir={profile}",
        f"--print-to-pdf={folder / 'report.pdf'}",
        f"file://{page}",
    ]
