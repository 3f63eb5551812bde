"""SVG to PNG, through a program that renders SVG; none is shipped."""

from __future__ import annotations

from pathlib import Path

from aisp_mcp.errors import Unavailable
from aisp_mcp.process import browser


def find() -> str:
    """rsvg-convert or a Chromium on PATH. Raises Unavailable NOT_INSTALLED."""
    if program := browser.find("rsvg-convert"):
        return program
    raise Unavailable(
        "NOT_INSTALLED",
        f"A PNG needs a program that draws SVG; looked for rsvg-convert, {', '.join(browser.BROWSERS)} on PATH.",
        "sudo apt-get install librsvg2-bin, or leave png out: the SVG needs nothing.",
        (("aisp_hw_roofline", {}),),
    )


def draw(program: str, svg: Path, png: Path, size: tuple[int, int], timeout_s: float = 60) -> Path:
    """Write the PNG with two dots per pixel of the SVG's size. Raises ProcessError."""
    from aisp_mcp.process.run import run

    if Path(program).name == "rsvg-convert":
        argv = [program, "--zoom", "2", "--output", str(png), str(svg)]
    else:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        flags += ["--force-device-scale-factor=2", f"--window-size={size[0]},{size[1]}"]
        argv = [program, *flags, f"--screenshot={png}", svg.absolute().as_uri()]
    run(argv, timeout_s=timeout_s, check=True)
    return png
