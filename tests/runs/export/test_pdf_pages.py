"""The printed report as a reader sees it: its text, its pages, nothing doubled, nothing folded. Needs chromium."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from export_runs import HOSTILE, comparison, run_of

from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.process import browser
from aisp_mcp.store.database import Store

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        browser.find() is None or shutil.which("pdftotext") is None,
        reason="apt-get install --no-install-recommends chromium poppler-utils",
    ),
]


@pytest.fixture
def printed(cli_here: Any, home: Path) -> Path:
    words = [(2.0, Verdict.FASTER), (0.5, Verdict.SLOWER), (1.0, Verdict.SAME), (None, Verdict.INVALID)]
    rows = [comparison(f"ch01:part{n}", ratio, verdict, HOSTILE) for n, (ratio, verdict) in enumerate(words)]
    with Store(home) as store:
        store.save_run(run_of(*rows, environment={f"fact{n}": n for n in range(60)}), None)
    done = cli_here("export", "pdf", "r_test", "--json")
    assert done.returncode == 0, done.stdout
    return Path(json.loads(done.stdout)["result"]["files"][0]["path"])


def poppler(*argv: str | Path) -> str:
    return subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True).stdout


def test_every_fold_is_open_and_no_word_is_drawn_twice(printed: Path) -> None:
    text = poppler("pdftotext", "-layout", printed, "-")
    assert "Run of 4 candidates" in text
    assert text.count("median of calls") == 3  # inside the folds, one per measured pair
    assert "fact59" in text
    assert len(re.findall(r"2[.0]*×\s+faster", text)) == 1  # a halo behind the chart's words would be a second copy
    assert "alert(1)" in text  # hostile text is text


def test_pages_are_a4_numbered_and_filled(printed: Path, tmp_path: Path) -> None:
    facts = poppler("pdfinfo", printed)
    count = int(re.search(r"Pages:\s+(\d+)", facts)[1])  # type: ignore[index]
    assert "(A4)" in facts
    assert count >= 2
    poppler("pdftoppm", "-r", "20", "-gray", printed, tmp_path / "page")
    for number, image in enumerate(sorted(tmp_path.glob("page*.pgm")), 1):
        lines = poppler("pdftotext", "-f", str(number), "-l", str(number), printed, "-").split("\n")
        assert f"{number} / {count}".replace(" ", "") in "".join(lines).replace(" ", "")
        pixels = image.read_bytes().split(b"\n", 3)[3]
        assert 20 < sum(value < 250 for value in pixels) < len(pixels)  # neither blank nor a dark page
        assert sum(value > 200 for value in pixels) > len(pixels) // 2
