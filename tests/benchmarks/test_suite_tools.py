"""Listing targets and chapters over MCP: pages, filters, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.anyio
SPEC = '"""Summary {n}."""\nfrom aisp_mcp.bench import Benchmark\nclass One(Benchmark): ...\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """100 targets in two chapters, one of them broken."""
    for n in range(100):
        folder = tmp_path / "suites" / f"ch{n % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"baseline_t{n}.py").write_text(SPEC.format(n=n))
        (folder / f"optimized_t{n}_fast.py").write_text('"""Quick."""\ndef run(): ...\n')
    (folder / "baseline_t99.py").write_text("(")
    return tmp_path / "suites"


async def ask(connect: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    async with connect() as client:
        answer = (await client.call_tool(tool, arguments)).structured_content
    assert isinstance(answer, dict)
    return answer


async def test_pages_hold_every_target_once(connect: Any, root: Path) -> None:
    names: list[str] = []
    arguments: dict[str, Any] = {"bench_root": str(root)}
    for _ in range(5):
        page = (await ask(connect, "aisp_benchmark_targets", **arguments))["result"]
        names += [target["name"] for target in page["targets"]]
        if page.get("next_cursor") is None:
            break
        arguments["cursor"] = page["next_cursor"]
    assert len(names) == len(set(names)) == page["total"] == 100
    assert names[:3] == ["ch0:t0", "ch0:t2", "ch0:t4"]


async def test_a_filter_finds_words_and_a_chapter_narrows(connect: Any, root: Path) -> None:
    page = (await ask(connect, "aisp_benchmark_targets", bench_root=str(root), chapter="ch1", filter="summary 17"))[
        "result"
    ]
    assert [target["name"] for target in page["targets"]] == ["ch1:t17"]
    assert page["sentence"] == "1 of 1 targets run here: aisp bench run ch1:t17 measures one."
    assert page["targets"][0]["variants"] == ["ch1:t17_fast"]


async def test_a_broken_file_shows_its_problem(connect: Any, root: Path) -> None:
    page = (await ask(connect, "aisp_benchmark_targets", bench_root=str(root), filter="t99"))["result"]
    assert "syntax error" in page["targets"][0]["problems"][0]


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        ({"chapter": "ch"}, "UNKNOWN_CHAPTER", "ch"),
        ({"cursor": "nothing"}, "BAD_CURSOR", "without a cursor"),
        ({"bench_root": ["/does/not/exist"]}, "NO_BENCH_ROOT", "AISP_BENCH_ROOT"),
    ],
)
async def test_refusals_say_what_to_do(
    connect: Any, root: Path, arguments: dict[str, str], code: str, hint: str
) -> None:
    error = (await ask(connect, "aisp_benchmark_targets", **{"bench_root": str(root), **arguments}))["error"]
    assert error["code"] == code
    assert hint in error["hint"]


async def test_chapters_are_counted(connect: Any, root: Path) -> None:
    result = (await ask(connect, "aisp_list_chapters", bench_root=str(root)))["result"]
    counts = [
        (chapter["name"], chapter["targets"], chapter["variants"], chapter["problems"])
        for chapter in result["chapters"]
    ]
    assert counts == [("ch0", 50, 50, 0), ("ch1", 50, 50, 1)]
