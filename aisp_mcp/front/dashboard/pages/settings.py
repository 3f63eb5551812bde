"""Settings stored in the browser: the folder of suites and the theme."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aisp_mcp.front.dashboard.request import THEMES, PageRequest


def build(request: PageRequest) -> dict[str, Any]:
    bench_root = request.bench_root or ""
    default = ":".join(map(str, request.ctx.settings.bench_roots))
    missing = bool(bench_root) and not Path(bench_root).expanduser().is_dir()
    return {
        "themes": THEMES,
        "bench_root": bench_root,
        "default": default,
        "missing": missing,
        "home": request.ctx.settings.home,
    }
