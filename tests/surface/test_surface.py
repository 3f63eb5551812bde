"""The public surface, one file per tool: a change of it is a change a reviewer sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from reference_docs import pages as reference

from aisp_mcp.server import registry
from aisp_mcp.server.dispatch import load_catalog
from aisp_mcp.server.dispatch.arguments import OTHER_NAMES, renamed
from aisp_mcp.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Text of each generated page by its path."""
    return reference.pages()


def test_every_tool_has_its_snapshot_and_every_snapshot_its_tool(pages: dict[str, str]) -> None:
    snapshots = {path: text for path, text in pages.items() if path.startswith(reference.SNAPSHOTS)}
    present = {f"{reference.SNAPSHOTS}/{file.name}" for file in (ROOT / reference.SNAPSHOTS).glob("*.json")}
    assert present == set(snapshots)
    for path, text in snapshots.items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path}: run make gen"


def test_the_pages_name_every_tool_and_every_setting(pages: dict[str, str]) -> None:
    for path in pages:
        if path.startswith(reference.SNAPSHOTS):
            name = Path(path).stem
            assert sum(f"\n## {name}\n" in text for page, text in pages.items() if page.startswith("docs/tools/")) == 1
            assert f"[{name}](" in pages["docs/tools/index.md"]
            assert f"[{name}](" in pages["docs/cli.md"]
    for variable in ("AISP_HOME", "AISP_BENCH_ROOT", "AISP_TOOL_MODULES", "AISP_ALLOW_WRITE"):
        assert f"| `{variable}` |" in pages["docs/settings.md"]
    for code in ("UNKNOWN_ARGUMENT", "UNKNOWN_TOOL", "INTERNAL", "JOB_LOST"):
        assert f"| `{code}` |" in pages["docs/errors.md"]


def test_the_pages_do_not_depend_on_where_they_are_written(pages: dict[str, str]) -> None:
    text = "\n".join(pages.values())
    assert str(ROOT) not in text
    assert str(Path.home()) not in text


# Where another name means something else, and so is an argument of its own.
OWN_MEANING = {
    ("context", "aisp_distributed_plan"),  # a degree of parallelism
    ("dir", "aisp_hw_disk"),  # the folder that is measured
    ("path", "aisp_benchmark_adapt"),  # what is read
    ("path", "aisp_verify_bundle"),
    ("a", "aisp_analyze_stacking"),  # two variants, neither of which is the baseline
    ("b", "aisp_analyze_stacking"),
    ("question", "aisp_calculate"),  # a formula's name
}


def test_one_name_for_one_thing() -> None:
    load_catalog(Settings.from_env({}))
    found = {(old, tool.name) for tool in registry.tools() for old in OTHER_NAMES if old in tool.params.model_fields}
    # Each of these is what some tool calls it itself, and the others understand.
    own = {"output", "output_tokens", "replicates", "dtype", "precision"}
    assert {pair for pair in found if pair[0] not in own} == OWN_MEANING


@pytest.mark.parametrize(
    ("tool", "given", "understood"),
    [
        ("aisp_benchmark_export", {"path": "x.md"}, {"to": "x.md"}),
        ("aisp_optimize_finish", {"folder": "x.tar"}, {"to": "x.tar"}),
        ("aisp_recommend", {"top": 3}, {"limit": 3}),
        ("aisp_job_status", {"job": "j_1"}, {"job_id": "j_1"}),
        ("aisp_inference_kv_cache", {"context_tokens": 8192, "precision": "fp8"}, {"tokens": 8192, "dtype": "fp8"}),
        ("aisp_distributed_measure", {"dtype": "bf16", "context": 128}, {"precision": "bf16", "seq": 128}),
        ("aisp_distributed_plan", {"context": 2}, {"context": 2}),
        ("aisp_fit", {"prompt_tokens": 100, "output_tokens": 10}, {"prompt": 100, "output": 10}),
    ],
)
def test_other_words_for_an_argument_are_understood(
    tool: str, given: dict[str, object], understood: dict[str, object]
) -> None:
    load_catalog(Settings.from_env({}))
    assert renamed(registry.get(tool), given) == understood
