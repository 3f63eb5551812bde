"""Operators that a policy forbids: refused wherever they are called from, and disclosed where they are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import adapter_support as support
import foreign_kernelbench as kernelbench
import pytest

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.options import Policy
from aisp_mcp.judge.parent import hints
from aisp_mcp.judge.protocol.forbidden import CALLED, UNKNOWN
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.runs import adapted
from aisp_mcp.suites.adapters import formats
from aisp_mcp.suites.adapters.records import AdaptedProblem

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
SLOW = "import torch\n\n\ndef product(a, b):\n    return (a[:, :, None] * b[None]).sum(1)\n"
FAST = "def product(a, b):\n    return a @ b\n"
PROGRAM = """
import gc
import json
import os
import sys
import traceback
import torch
from aisp_mcp.judge.candidate.forbidden import forbid
a = torch.randn(8, 8)
calls = {
    "@": lambda: a @ a,
    "linear": lambda: torch.nn.functional.linear(a, a),
    "out": lambda: torch.mm(a, a, out=torch.empty(8, 8)),
    "method": lambda: a.softmax(1),
    "module": lambda: torch.nn.CrossEntropyLoss()(a, a),
    "norm": lambda: torch.linalg.vector_norm(a),
    "other": lambda: a.relu(),
    "decompose": lambda: torch.ops.aten.matmul.default.decompose(a, a),
}
def refused(names):
    forbid(names[:1], names[1:]) if "import triton" in names else forbid(names)
    for each in gc.get_objects():
        if isinstance(each, torch.library.Library) and each.ns == "aten":
            each._destroy()
    for name, call in calls.items():
        with torch.inference_mode():
            try:
                call()
            except RuntimeError as error:
                yield name, str(error)
for names in json.loads(sys.argv[1]):
    if os.fork():
        os.wait()
        continue
    try:
        answer = dict(refused(names))
    except BaseException:
        answer = {"failed": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
    os._exit(0)
"""
OPERATORS = (
    "torch.matmul",
    "aten::mm",
    "F.softmax",
    "torch.nn.functional.cross_entropy",
    "torch.linalg.vector_norm",
    "absent.gemm",
)
NO_OPERATORS = ("torch.nonsense", "torch.clone")
RULES = (
    "torch.mm",
    "chunk_kda",
    "import triton",
    "@triton.jit",
    "torch.clone",
    "fla.ops.kda",
    "F.softmax",
)  # of a problem


@pytest.fixture(scope="module")
def refused() -> dict[tuple[str, ...], dict[str, str]]:
    """What calls of a program are told, by the operators that it must not call; each in a fork of one process."""
    forbidden: list[tuple[str, ...]] = [OPERATORS, RULES, *((name,) for name in NO_OPERATORS)]
    argv = [sys.executable, "-c", PROGRAM, json.dumps(forbidden)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    return dict(zip(forbidden, map(json.loads, done.stdout.splitlines()), strict=True))


def test_operators_are_refused_whoever_calls_them(refused: dict[tuple[str, ...], dict[str, str]]) -> None:
    matmul = f"{CALLED}torch.matmul"
    words = dict(refused[OPERATORS])
    assert [words.pop(name) for name in ("method", "module", "norm")]
    assert words == {"@": matmul, "linear": matmul, "out": f"{CALLED}aten::mm", "decompose": matmul}


def test_rules_of_a_problem_that_are_no_operators_have_no_effect(
    refused: dict[tuple[str, ...], dict[str, str]],
) -> None:
    assert {name: words for name, words in refused[RULES].items() if name != "module"} == {
        **dict.fromkeys(("@", "out", "decompose"), f"{CALLED}torch.mm"),
        **dict.fromkeys(("linear",), f"{CALLED}torch.mm"),
        "method": f"{CALLED}F.softmax",
    }


@pytest.mark.parametrize("name", NO_OPERATORS)
def test_names_that_stand_for_nothing_are_errors(name: str, refused: dict[tuple[str, ...], dict[str, str]]) -> None:
    assert f"{UNKNOWN}{name}" in refused[(name,)]["failed"]
    raised = Flag(code="incorrect_raised", severity="fatal", message=f"candidate raised: {UNKNOWN}{name}")
    with pytest.raises(UsageError, match="names no operator"):
        hints.flag(raised)


def test_a_verdict_names_the_forbidden_operator(cli_here: Any, tmp_path: Path) -> None:
    support.write(tmp_path, {"slow": SLOW, "fast": FAST})
    words = ("bench", "verify", str(tmp_path / "slow.py"), str(tmp_path / "fast.py"), "--preset", "quick", "--json")
    inputs = ("--inputs", "a=randn(16,8), b=randn(8,16)", "--evidence", "--forbid", "torch.matmul")
    result = json.loads(cli_here(*words, *inputs, timeout=200).stdout)["result"]
    verdict, evidence = result["rulings"][0], result["evidence"][0]
    assert (verdict["verdict"], verdict["flags"]) == ("invalid", ["forbidden_operator"])
    assert "calls torch.matmul, which is forbidden here" in verdict["sentence"]
    assert evidence["disclosed"]["forbidden"] == ["torch.matmul"]


def test_a_policy_that_was_complied_with_is_a_note() -> None:
    [note] = hints.notes(["torch.sort"], [])
    assert (note.code, note.severity) == ("policy", "note")
    assert note.message == "Forbidden here, and not called by the candidate: torch.sort."
    [note] = hints.notes([], [], ["import triton"])
    assert note.message.startswith("Forbidden by the problem: import triton; the candidate called none")
    assert hints.notes([], []) == []
    assert hints.notes(["torch.sort"], [Flag(code="a", severity="fatal", message="")]) == []


def test_a_problems_own_rules_are_a_policy(tmp_path: Path) -> None:
    texts = {"reference": kernelbench.PROBLEMS["mlp"], "solution": kernelbench.PROBLEMS["mlp"]}
    folder = support.write(tmp_path / "mlp", texts)
    (folder / "problem.yaml").write_text('forbidden: ["torch.nn.functional.linear"]\n')
    (problem,) = formats.find(folder, None, (), {})
    assert problem.forbidden == ("torch.nn.functional.linear",)
    facts = AdaptedProblem(
        target="a:b", variants=[], files=[], inputs=[], disclosed=[], forbidden=list(problem.forbidden)
    )
    named = Policy(forbidden=("aten::mm", "problem"))
    assert adapted.with_rules(named, [facts]) == Policy(forbidden=("aten::mm",), rules=problem.forbidden)
    assert adapted.with_rules(Policy(forbidden=("aten::mm",)), []).forbidden == ("aten::mm",)
    with pytest.raises(UsageError, match="forbid no operators"):
        adapted.with_rules(named, [facts.model_copy(update={"forbidden": []})])
