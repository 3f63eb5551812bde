"""Totals, counts, extremes and medians must be those of NVIDIA's own tools, to the nanosecond."""

import csv
import importlib.util
import os
import random
from functools import cache
from pathlib import Path

import nsys_stats
import oracle_tools
import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.profile.readers import ncu, nsys
from aisp_mcp.profile.recording import record
from aisp_mcp.profile.timeline import summarize

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", oracle_tools.NSYS_CAPTURES)
def test_tables_equal_nsys_stats(name, tmp_path):
    """Kernels, API, memory operations, ranges: count, total, extremes, median, bytes; and so it was recorded."""
    database = oracle_tools.unpack(name, tmp_path)
    oracle = nsys_stats.ask(oracle_tools.tool("nsys"), database)
    profile = nsys_stats.differences(oracle, summarize.profile(nsys.read(database)).timeline)
    assert [row["different"] for row in profile.values()] == [[]] * 4
    assert profile["kernels"]["compared"] > 0
    assert nsys_stats.columns(oracle_tools.recorded(name)) == nsys_stats.columns(oracle)


EXAMPLES = "usr/share/doc/nsight-compute/examples"


@pytest.fixture(scope="module")
def reports():
    root = os.environ.get("AISP_ORACLE_ROOT")
    rows = sorted((Path(root) / EXAMPLES).rglob("*.ncu-rep")) if root else []
    if not rows:
        pytest.skip("NVIDIA's example reports are not here: set AISP_ORACLE_ROOT to the unpacked Debian package")
    return rows


def test_ncu_program_and_module_agree(reports, tmp_path):
    """Both ways to a .ncu-rep, on NVIDIA's own examples: to 1e-6 where the page prints as many digits."""
    pytest.importorskip("ncu_report", reason="the package ncu-report is not installed")
    seen = 0
    for report in reports:
        folder = tmp_path / report.stem
        folder.mkdir()
        pages = record.read_ncu(oracle_tools.tool("ncu"), report, folder)
        module = record.read_ncu(None, report, folder)
        assert [k.grid for k in pages.kernels] == [k.grid for k in module.kernels]
        for page, exact in zip(pages.kernels, module.kernels, strict=True):
            assert page.limiter.bound == exact.limiter.bound
            for name in page.metrics.keys() & exact.metrics.keys():
                rounded = 5e-7 * max(1.0, _scale(folder / "report.raw.csv", name)) + 5e-3 * (
                    name not in _precise(folder)
                )
                assert page.metrics[name] == pytest.approx(exact.metrics[name], rel=1e-6, abs=rounded), (report, name)
                seen += 1
    assert seen > 2000


def test_three_ways_to_one_report_of_an_h200(tmp_path):
    """The page that ncu 2025.3 wrote on the card, this machine's ncu, and NVIDIA's module: one record."""
    report = oracle_tools.unpack("triton.ncu-rep.gz", tmp_path)
    path = oracle_tools.unpack("triton.ncu-raw.csv.gz", tmp_path)
    page = ncu.read(path, oracle_tools.DATA / "triton.ncu-details.csv.gz")
    digits = _last_digits(path)
    ways = [(record.read_ncu(oracle_tools.tool("ncu"), report, tmp_path), _last_digits(tmp_path / "report.raw.csv"))]
    if importlib.util.find_spec("ncu_report"):
        ways.append((record.read_ncu(None, report, tmp_path), [{}] * len(digits)))
    for way, printed in ways:
        seen = 0
        for at, (kernel, other) in enumerate(zip(page.kernels, way.kernels, strict=True)):
            assert kernel.limiter.bound == other.limiter.bound
            for name in kernel.metrics.keys() & other.metrics.keys():
                half = 0.501 * (digits[at][name] + printed[at].get(name, 0.0))
                exact = max(other.metrics[name], 0.0)  # the page prints a difference of counters below 0 as 0
                assert kernel.metrics[name] == pytest.approx(exact, rel=1e-6, abs=half), name
                seen += 1
        assert seen > 6000


def _last_digits(path):
    """Per launch: what one unit of the last printed digit of each metric is worth, in base units."""
    with path.open(newline="") as stream:
        header, units, *rows = csv.reader(stream)
    scale = [(ncu.base("1", unit) or (1.0, ""))[0] for unit in units]
    return [
        {name: 10.0 ** -len(cell.partition(".")[2]) * one for name, cell, one in zip(header, row, scale, strict=True)}
        for row in rows
    ]


@cache
def _page(path):
    with path.open(newline="") as stream:
        rows = csv.reader(stream)
        return [next(rows) for _ in range(3)]


def _scale(path, name):
    """Value of one printed unit: the page rounds after scaling."""
    header, units, _ = _page(path)
    return ncu.base("1", units[header.index(name)])[0]


def _precise(folder):
    """Metrics that the page prints with six decimals; it prints others with two."""
    header, _, row = _page(folder / "report.raw.csv")
    return {
        name for name, cell in zip(header, row, strict=True) if len(cell.rpartition(".")[2]) == 6 or "." not in cell
    }


@pytest.mark.timeout(600)
def test_damaged_reports_are_read_or_refused(reports, tmp_path):
    """NVIDIA's own programs read them, in children: whatever becomes of those, the answer is a profile or an error."""
    rng = random.Random(7)
    whole = min(reports, key=lambda path: path.stat().st_size).read_bytes()
    module = importlib.util.find_spec("ncu_report") is not None
    seen = set()
    for number in range(20):
        data = bytearray(whole)
        if number % 2:
            del data[rng.randrange(len(data)) :]
        else:
            for _ in range(200):
                data[rng.randrange(len(data))] = rng.randrange(256)
        report = tmp_path / f"{number}.ncu-rep"
        report.write_bytes(data)
        for program in [oracle_tools.tool("ncu"), *([None] if module else [])]:
            folder = tmp_path / f"{number}-{program is None}"
            folder.mkdir()
            try:
                seen.add(len(record.read_ncu(program, report, folder).kernels) > 0)
            except AispError as error:
                seen.add(error.code)
    assert seen & {"NOTHING_RECORDED", "BAD_PROFILE"}
