"""The documentation site builds without warnings, without torch, and needs no network to be read."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MISSING = [name for name in ("sphinx", "furo", "myst_parser") if importlib.util.find_spec(name) is None]
# One process, so that it can tell afterwards what was imported.
BUILD = """
import sys
from sphinx.cmd.build import main
code = main(sys.argv[1:])
sys.exit(code or "torch" in sys.modules)
"""
FETCHED = re.compile(r"<(?:script|img|iframe)\b[^>]*\bsrc=\"(?:https?:)?//|<link\b[^>]*\bhref=\"(?:https?:)?//")

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the extra docs is not installed: no {', '.join(MISSING)}")


def build(builder: str, folder: Path, root: Path = ROOT, *others: str) -> Path:
    """Output folder of the site of the pages below root, with warnings as errors."""
    pages = folder / "site"
    options = [
        "-b",
        builder,
        "-E",
        "-W",
        "--keep-going",
        "-q",
        "-c",
        str(ROOT / "tools/site"),
        "-d",
        str(folder / "cache"),
    ]
    command = [sys.executable, "-c", BUILD, *options, *others, str(root), str(pages)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return pages


def test_the_api_is_read_without_warnings(tmp_path: Path) -> None:
    """The site of two pages: an index, and the one whose content is imported. Links: test_text.py."""
    docs = tmp_path / "pages/docs"
    docs.mkdir(parents=True)
    shutil.copy(ROOT / "docs/api.md", docs)
    docs.joinpath("index.md").write_text("# Index\n\n[API](api.md)\n")
    build("dummy", tmp_path, docs.parent, "-D", "suppress_warnings=myst.xref_missing")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_page_is_read_without_warnings(tmp_path: Path) -> None:
    build("dummy", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_site_has_every_page_the_api_and_a_search_and_fetches_nothing(tmp_path: Path) -> None:
    site = build("html", tmp_path)
    sources = (path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md"))
    assert [page for page in sources if not (site / page.with_suffix(".html")).is_file()] == []
    assert 'id="aisp_mcp.bench.Benchmark.inputs"' in (site / "docs/api.html").read_text("utf-8")
    assert "aisp_run_benchmarks" in (site / "searchindex.js").read_text("utf-8")
    assert 'url=docs/index.html"' in (site / "index.html").read_text("utf-8")
    pages = {page: page.read_text("utf-8") for page in site.rglob("*.html")}
    assert [page for page, text in pages.items() if FETCHED.search(text)] == []
    styles = "\n".join(style.read_text("utf-8") for style in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')]+", styles) == []
