"""Every shipped pair: found, described, expected, right on honest and adversarial inputs, small on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from agreement import MODES, ROOTS, Agreement, few, mentions, targets

from aisp_mcp.suites import discovery as suites
from aisp_mcp.suites import expectations, selection
from aisp_mcp.suites.records import Target, Variant

TARGETS = targets()
CALLS = [target for target in TARGETS if target.goal in ("speed", "memory")]  # engines: test_serving_pairs.py
# of several ranks: test_ranked_pairs.py
ON_A_CPU = [target for target in CALLS if not target.needs.get("gpus") and not target.needs.get("ranks")]
PAIRS = [(target, variant) for target in ON_A_CPU for variant in target.variants if not variant.needs.get("gpus")]
IDS = [suites.full_name(target, variant) for target, variant in PAIRS]
TRITON = [target.name for target in TARGETS if any(mentions(v.path, "import triton") for v in target.variants)]
MOST_BYTES = 16 << 20
NAMES = [target.name for target in ON_A_CPU]
# One of each chapter, but none that takes more than half a second of processor.
COSTLY = {"ch13:training_quality", "labs/kv_optimization:kv_decode", "labs/speculative_decode:speculative_decode"}
QUICK = {target.chapter: target.name for target in ON_A_CPU if target.name not in COSTLY}
# The quickest with a Triton kernel: elementwise, reduction, product, attention.
QUICK_TRITON = [
    "ch07:strided_lanes", "ch08:row_softmax", "ch10:tile_product", "ch18:split_k_decode",
    "labs/persistent_decode:persistent_steps",
]  # fmt: skip

pytestmark = pytest.mark.torch


def quick(target: Target) -> list[Variant]:
    """Variants that run on a CPU and compile nothing."""
    slow = ("import triton", "torch.compile")
    return [v for v in target.variants if not v.needs.get("gpus") and not any(mentions(v.path, word) for word in slow)]


def test_every_file_is_usable_and_says_what_it_does() -> None:
    assert not [t.name for t in TARGETS if t.problem or not t.variants or any(v.problem for v in t.variants)]
    assert all(target.summary and all(variant.summary for variant in target.variants) for target in TARGETS)
    assert all((Path(target.path).parent / "README.md").is_file() for target in TARGETS)
    assert {"ch01", "ch02", "ch05", "ch07", "ch08", "ch09", "ch10"} <= {target.chapter for target in TARGETS}


def test_every_candidate_has_an_expectation_and_no_entry_is_left_over() -> None:
    known = {entry.candidate for entry in expectations.load(TARGETS)}
    done = [path.parent for path in (Path(t.path) for t in TARGETS) if path.with_name("expect.yaml").is_file()]
    missing = [suites.full_name(t, v) for t in TARGETS for v in t.variants if Path(t.path).parent in done]
    assert [name for name in missing if name not in known] == []
    assert expectations.unclaimed(TARGETS) == []


def recorded() -> set[tuple[str, str]]:
    """Candidates that a file in results/ names, each with `cpu` or `cuda`, as they are today."""
    names = set()
    for path in (Path(__file__).parents[2] / "results").glob("*.json"):
        body = json.loads(path.read_text("utf-8"))
        kind = "cuda" if path.name.startswith("h") else "cpu"
        rows = body.get("rows", [])
        changed = set(body.get("candidates changed afterwards", ()))
        names |= {(name, kind) for name in body.get("candidates", []) if ":" in name and name not in changed}
        names |= {(f"{r['target']}_{r['candidate']}".rstrip("_"), kind) for r in rows if "candidate" in r}
    return names


def test_an_entry_that_calls_itself_measured_is_in_a_record() -> None:
    entries = [entry for entry in expectations.load(TARGETS) if (entry.source or "").startswith("measured")]
    assert len(entries) > 100
    kinds = {(entry.candidate, "cpu" if "cpu" in entry.device else "cuda") for entry in entries}
    assert kinds - recorded() == set()


@pytest.mark.parametrize("target", few(ON_A_CPU, NAMES, {*NAMES} - {*QUICK.values()}))
def test_candidates_agree_on_a_small_call(target: Target) -> None:
    agreement = Agreement(target)
    assert {v.name: problems for v in quick(target) if (problems := list(agreement.problems(v)))} == {}
    inputs = agreement.inputs(5)
    least = sum(t.nbytes for t in inputs.values() if not isinstance(t, str))
    least += sum(t.nbytes for _, t in agreement.named(agreement.reference.baseline(inputs)))
    work = agreement.spec.work()
    assert least <= MOST_BYTES
    assert work.flops > 0
    assert work.bytes > 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", few([QUICK_TRITON, TRITON], ["some", "all"], ["all"]))
def test_triton_candidates_agree_in_the_interpreter(names: list[str]) -> None:
    pytest.importorskip("triton")
    command = [sys.executable, str(Path(__file__).with_name("agreement.py")), "triton", *names]
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert answer
    assert {name: problems for name, problems in answer.items() if problems} == {}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch's own compiler
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # likewise
@pytest.mark.parametrize(("target", "variant"), PAIRS, ids=IDS)
def test_a_candidate_stands_up_to_adversarial_inputs(target: Target, variant: Variant) -> None:
    import torch

    agreement = Agreement(target)
    assert list(agreement.problems(variant, MODES)) == []
    run, named = agreement.runner(variant), agreement.named
    first = [tensor.clone() for _, tensor in named(run(agreement.inputs(11)))]
    between = [tensor.clone() for _, tensor in named(run(agreement.inputs(12)))]
    again = [tensor for _, tensor in named(run(agreement.inputs(11)))]
    if not agreement.spec.tolerance.stochastic:
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, between, strict=True))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", IDS)
def test_the_judge_accuses_no_shipped_candidate(name: str, tmp_path: Path) -> None:
    from aisp_mcp.judge.comparison import compare
    from aisp_mcp.judge.options import Options
    from aisp_mcp.judge.presets import Preset
    from aisp_mcp.judge.records.verdict import Comparison

    pairs, _ = selection.pairs(ROOTS, [name])
    (pair,) = [pair for pair in pairs if pair.label == name]
    comparison = compare(pair, Options(Preset("least", 1, 0.004, 1), "small", "cpu", tmp_path))
    assert isinstance(comparison, Comparison)
    assert comparison.verdict.value not in ("incorrect", "invalid"), comparison.sentence
