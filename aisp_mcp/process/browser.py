"""The Chromium that is already installed, for printing pages and drawing pictures. None is shipped."""

from __future__ import annotations

import shutil

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")


def find(*before: str) -> str | None:
    """The path of the first of these programs, then of the known browsers, that is on PATH."""
    return next((path for name in (*before, *BROWSERS) if (path := shutil.which(name))), None)
