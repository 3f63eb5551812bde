"""Truth of what readers are told: commands exist, links resolve, facts stand in one place."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import aisp_mcp
from aisp_mcp.front.cli.aliases import ALIASES

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
MACHINE_PATH = re.compile(r"(?<![\w.}])/(?:root|work|home/\w+|Users/\w+)\b")
BLOCK = re.compile(r"^(`{3,}).*?^\1$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"^```.*?^```|^ {4}.*?$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:^ *|`|\$ )aisp ([a-z][a-z0-9-]*(?: [a-z][a-z0-9-]*)?)", re.MULTILINE)
PACKAGE = re.compile(r"^\| (`[^|]+) \|", re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\n){2,}", re.MULTILINE)
CELL = re.compile(r"(?<!\\)\|")
MAKE = re.compile(r"`?make ([a-z]+)")
FLAG = re.compile(r'(?:Flag\(code=|_flag\(|Ended\(\s*)"(\w+)"|"(incorrect_\w+)"')
# Dense peaks and bandwidths as they circulate: TFLOP/s of A100, H100/H200, B200, RTX; TB/s of their memories.
PEAKS = {
    "312",
    "624",
    "989",
    "989.4",
    "989.5",
    "1979",
    "3958",
    "2250",
    "4500",
    "165.2",
    "330.3",
    "3.35",
    "4.8",
    "2.039",
}
PEAKS |= {f"{p}e12" for p in PEAKS} | {"1935", "2039", "3350", "4800", "1008", "733"}
NUMBER = re.compile(r"\d[\d_.]{2}")
PEAK_NAME = re.compile(r"tflops|flop/s|peak|bandwidth|gb/s|tb/s", re.IGNORECASE)


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository (known to git or about to be), generated and ignored ones left out."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def code_of(page: Path) -> str:
    """All code on a page: blocks and spans, one per line."""
    return "\n".join(CODE.findall(page.read_text("utf-8")))


@pytest.fixture(scope="module")
def pages() -> list[Path]:
    return tracked("*.md")


def links(page: Path) -> list[tuple[str, str]]:
    """(file, heading) of the links to files of the repository; a file without a name is the page itself."""
    found = LINK.findall(BLOCK.sub("", page.read_text("utf-8")))
    return [(target, heading) for target, heading in found if "://" not in target and not target.startswith("mailto:")]


def headings(page: Path) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    plain = re.sub(r"`|\]\([^)]*\)|\[|\*", "", "\n".join(HEADING.findall(BLOCK.sub("", page.read_text("utf-8")))))
    return {re.sub(r"[^\w -]", "", line.strip().lower()).replace(" ", "-") for line in plain.splitlines()}


def test_links_resolve(pages: list[Path]) -> None:
    dead = {page: [file for file, _ in links(page) if not (page.parent / file).exists()] for page in pages}
    assert {page: files for page, files in dead.items() if files} == {}


def test_links_to_headings_resolve(pages: list[Path]) -> None:
    pairs = {(page.parent / file if file else page, name) for page in pages for file, name in links(page) if name}
    assert len(pairs) > 50
    assert [(page, name) for page, name in pairs if page.suffix == ".md" and name not in headings(page)] == []


def test_each_row_of_a_table_has_the_cells_of_its_head(pages: list[Path]) -> None:
    """One that has fewer or more, or follows an empty line, is shown as text."""
    for page in pages:
        for table in TABLE.findall(BLOCK.sub("", page.read_text("utf-8"))):
            head, line, *rows = table.splitlines()
            assert not line.strip("|-: "), f"{page.name}: {head}"
            cells = len(CELL.findall(line))
            assert [row for row in (head, *rows) if len(CELL.findall(row)) != cells] == [], page.name


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs/index.md").read_text("utf-8")
    pages = [p.name for p in tracked("docs/*.md") if p.parent.name == "docs"]
    assert [name for name in pages if f"({name}" not in index] == ["index.md"]


def test_the_guide_to_verdicts_names_every_flag() -> None:
    text = (ROOT / "docs/verdicts.md").read_text("utf-8")
    folders = ("judge", "runs", "gate")
    files = tracked(*(f"aisp_mcp/{name}/*.py" for name in folders))
    flags = {code or other for p in files for code, other in FLAG.findall(p.read_text("utf-8"))}
    assert {"batching", "undeclared_cores", "incorrect_token", "incorrect_files"} <= flags
    assert [code for code in sorted(flags) if f"`{code}`" not in text] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/performance.md"])
def test_make_commands_in_the_text_exist(name: str) -> None:
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert targets is not None
    commands = set(MAKE.findall(code_of(ROOT / name)))
    assert commands
    assert commands <= set(targets.group(1).split())


@pytest.fixture(scope="module")
def commands() -> set[str]:
    """All commands, as a fresh process lists them."""
    listing = [sys.executable, "-m", "aisp_mcp", "--list", "--json"]
    tools = json.loads(subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    others = {"host uptime", "doctor", "dashboard", "serve-judge", "bench utils", "bench tui"} | {
        " ".join(words) for words in ALIASES
    }  # a recipe's; no tool; other words
    return {tool["cli"].removeprefix("aisp ") for tool in tools} | others


def test_commands_in_the_text_exist(pages: list[Path], commands: set[str]) -> None:
    named = {(page, command) for page in pages for command in COMMAND.findall(code_of(page))}
    assert len(named) > 50
    assert [pair for pair in named if pair[1] not in commands and pair[1].split()[0] not in commands] == []


def test_the_readme_shows_both_commands() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert "make demo" in text
    assert "make test" in text


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs/decisions"
    index = (folder / "README.md").read_text("utf-8")
    assert [p.name for p in sorted(folder.glob("0*.md")) if f"({p.name})" not in index] == []


def test_files_named_in_the_map_exist() -> None:
    for name in ("README.md", "docs/architecture.md"):
        text = (ROOT / name).read_text("utf-8")
        named = re.findall(r"`((?:aisp_mcp|benchmarks|tools|tests|docs)/[\w/.-]*)`", text)
        assert [n for n in named if not (ROOT / n).exists()] == [], name


def test_the_architecture_page_lists_every_package_in_the_order_of_the_layers() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    packages = text.split("\n## Packages\n")[1].split("\n## ")[0]
    listed = [
        name.rstrip("/").removesuffix(".py")
        for row in PACKAGE.findall(packages)
        for name in re.findall(r"`([^`]+)`", row)
    ]
    package = ROOT / "aisp_mcp"
    existing = {p.stem for p in package.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()} - {"__init__"}
    assert set(listed) == existing
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0]
    height = {name.strip("() "): i for i, row in enumerate(contract["layers"]) for name in row.split("|")}
    assert [height[name] for name in listed] == sorted(height[name] for name in listed)


def test_no_path_of_one_machine_is_left_in_the_tree() -> None:
    problems = []
    for path in tracked():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        if path != Path(__file__) and (hit := MACHINE_PATH.search(text)):
            problems.append(f"{path.relative_to(ROOT)}: {hit.group()}")
    assert problems == []


def test_the_version_is_written_once() -> None:
    literal = f'"{aisp_mcp.__version__}"'
    places = [p.relative_to(ROOT).as_posix() for p in tracked("*.py", "*.toml") if literal in p.read_text("utf-8")]
    assert places == ["aisp_mcp/__init__.py"]


def test_every_declared_marker_marks_a_test() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    declared = {line.partition(":")[0] for line in options["markers"]}
    used = {name for page in tracked("tests/*.py") for name in re.findall(r"mark\.(\w+)", page.read_text("utf-8"))}
    assert declared - used == set()
    assert set(re.findall(r"(?:\(| or )(\w+)", " ".join(options["addopts"]))) <= declared


def test_the_changelog_knows_the_version() -> None:
    assert f"## {aisp_mcp.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def peaks_in(source: str) -> Iterator[str]:
    """Numbers that look like a GPU's peak, on lines that speak of one."""
    if not any(PEAK_NAME.search(line) and NUMBER.search(line) for line in source.splitlines()):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        number = token.string.replace("_", "").lower()
        if token.type == tokenize.NUMBER and number.removesuffix(".0") in PEAKS and PEAK_NAME.search(token.line):
            yield f"{token.start[0]}: {token.string}"


def test_peaks_of_gpus_stand_in_the_facts_table_only() -> None:
    peaks = {p.relative_to(ROOT).as_posix(): list(peaks_in(p.read_text("utf-8"))) for p in tracked("aisp_mcp/*.py")}
    assert {name: hits for name, hits in peaks.items() if hits} == {}


def test_the_search_for_peaks_finds_one() -> None:
    assert list(peaks_in("PEAK_TFLOPS = 989\nbandwidth = 3.35e12\nprice = 989\n")) == ["1: 989", "2: 3.35e12"]


def test_the_index_of_results_lists_every_record_once() -> None:
    folder = ROOT / "results"
    listed = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\)", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in folder.glob("*.json"))
