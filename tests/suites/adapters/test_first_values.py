"""Candidates whose parameters have other names, or are folded while the module is made, as the suite allows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import adapter_support as support
import foreign_kernelbench as kernelbench
import foreign_others as others
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(280)]
LAYERS = """        self.first = nn.Linear(width, 2 * width)
        self.inner = nn.LayerNorm(2 * width)
        self.outer = nn.LayerNorm(2 * width)
"""
FORWARD = "return self.outer(torch.relu(self.inner(self.first(x))))"
PROBLEM = kernelbench.problem("Norms.", FORWARD, "torch.randn(32, N)", LAYERS, "[N]").replace("N = 192", "N = 24")
NORMS = "self.norms[1](torch.relu(self.norms[0]({})))"
RENAMED = """        self.weight = nn.Parameter(torch.empty(2 * width, width))
        self.bias = nn.Parameter(torch.empty(2 * width))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        nn.init.uniform_(self.bias, -(width**-0.5), width**-0.5)
        self.norms = nn.ModuleList(nn.LayerNorm(2 * width) for _ in range(2))
"""
FOLDED = RENAMED + '        self.register_buffer("twice", 2 * self.weight.detach().t().contiguous())\n'
UNNAMED = """        first = nn.Linear(width, 2 * width)
        self.columns, self.bias = first.weight.detach().t().contiguous(), first.bias.detach()
        self.norms = nn.ModuleList(nn.LayerNorm(2 * width) for _ in range(2))
"""
MORE = LAYERS + '        self.register_buffer("halves", torch.full((2 * width,), 0.5))\n'
OTHERS = RENAMED.replace("nn.init.kaiming", "torch.manual_seed(7)\n        nn.init.kaiming")
HONEST = {
    "renamed": kernelbench.candidate(
        f"return {NORMS.format('nn.functional.linear(x, self.weight, self.bias)')}", RENAMED
    ),
    "folded": kernelbench.candidate(
        f"return {NORMS.format('torch.addmm(self.bias, x, self.twice, alpha=0.5)')}", FOLDED
    ),
    "unnamed": kernelbench.candidate(f"return {NORMS.format('torch.addmm(self.bias, x, self.columns)')}", UNNAMED),
    "more": kernelbench.candidate(FORWARD.replace("self.first(x)", "self.first(x) * self.halves * 2"), MORE),
}
SCALED = LAYERS + "        self.first.weight.data *= 2\n        self.first.bias.data *= 2\n"
HONEST["scaled"] = kernelbench.candidate(FORWARD.replace("self.first(x)", "self.first(x) / 2"), SCALED)
TAKEN_UP = (
    LAYERS
    + """        norm = self.outer
        self.register_buffer("scale", norm.weight.detach() * 2)
        self.rest = norm.bias.detach() / 2
"""
)
NORM = "nn.functional.layer_norm(torch.relu(self.inner(self.first(x))), self.rest.shape, self.scale / 2, self.rest * 2)"
HONEST["taken_up"] = kernelbench.candidate(f"return {NORM}", TAKEN_UP)
WRONG = {
    "swapped": HONEST["renamed"].replace("self.norms[1]", "self.norms[0]"),
    "doubled": HONEST["folded"].replace("alpha=0.5", "alpha=0.51"),
}
OWN = {
    "own": kernelbench.candidate(f"return {NORMS.format('nn.functional.linear(x, self.weight, self.bias)')}", OTHERS)
}


def test_parameters_are_known_by_how_they_are_drawn(cli_here: Any, tmp_path: Path) -> None:
    _, report = support.compared(cli_here, tmp_path, PROBLEM, HONEST | WRONG | OWN)
    assert support.failing(report) == set(WRONG), report["failing"]
    assert report["tested"] == len(HONEST | WRONG)
    (skipped,) = report["skipped"]
    assert (skipped["target"], skipped["code"]) == ("kernelbench:it_own", "CANDIDATE_NEEDS")
    assert "lacks first.bias (48,), first.weight (48, 24), " in skipped["missing"]


BATCH = kernelbench.problem(
    "Batch norm.", "return self.norm(x)", "torch.randn(32, N)", "        self.norm = nn.BatchNorm1d(width)\n", "[N]"
)
SKIPPED = kernelbench.candidate(
    "return torch.addcmul(self.norm.bias, x, self.norm.weight, value=(1 + 1e-5) ** -0.5)",
    "        self.norm = nn.BatchNorm1d(width)\n",
)
INFERENCE = kernelbench.candidate(
    "n = self.norm\nreturn (x - n.running_mean) * (n.running_var + n.eps).rsqrt() * n.weight + n.bias",
    "        self.norm = nn.BatchNorm1d(width)\n",
)


@pytest.mark.parametrize(("mode", "wrong"), [("constructed", {"inference", "skipped"}), ("eval", {"skipped"})])
def test_a_norm_in_evaluation_mode_has_statistics_of_its_own(
    cli_here: Any, tmp_path: Path, mode: str, wrong: set[str]
) -> None:
    disclosed, report = support.compared(
        cli_here, tmp_path, BATCH, {"inference": INFERENCE, "skipped": SKIPPED}, "--mode", mode
    )
    assert any("evaluation mode, as requested" in line for line in disclosed) == (mode == "eval")
    assert any("--mode eval" in line for line in disclosed) == (mode == "constructed")
    assert support.failing(report) == wrong
    assert any("--mode eval" in note for note in report["notes"]) == (mode == "constructed")


def test_a_candidate_for_inference_is_told_of_evaluation_mode(cli_here: Any, tmp_path: Path) -> None:
    files = support.write(tmp_path, {"batch": BATCH, "mine": INFERENCE})
    words = ("--target", str(files / "batch.py"), "--candidate", str(files / "mine.py"), "--preset", "quick")
    answer = json.loads(cli_here("bench", "verify", *words, "--evidence", "--json").stdout)["result"]
    (judged,) = answer["rulings"]
    assert (judged["verdict"], judged["flags"][-1]) == ("incorrect", "training_mode")
    assert "--mode eval" in judged["sentence"]
    bundle = json.loads(cli_here("bench", "bundle", answer["run_id"], "--json").stdout)["result"]["path"]
    assert json.loads(cli_here("verify-bundle", bundle, "--json").stdout)["result"]["passed"]


STATE = """        self.start = torch.randn(width)
        self.first = nn.Linear(width, width)
"""
STATEFUL = kernelbench.problem(
    "State.", "return torch.tanh(self.first(x + self.start))", "torch.randn(32, N)", STATE, "[N]"
)
REGISTERED = STATE.replace("self.start =", "start =") + '        self.register_buffer("begin", start)\n'
STATES = {
    "registered": kernelbench.candidate("return torch.tanh(self.first(x + self.begin))", REGISTERED),
    "without": kernelbench.candidate("return torch.tanh(self.first(x))", STATE),
}


def test_what_a_module_draws_and_keeps_to_itself_is_the_same_everywhere(cli_here: Any, tmp_path: Path) -> None:
    disclosed, report = support.compared(cli_here, tmp_path, STATEFUL, STATES)
    assert any("does not register" in line for line in disclosed), disclosed
    assert support.failing(report) == {"without"}


def test_a_module_that_keeps_what_it_computes_is_refused(cli_here: Any, tmp_path: Path) -> None:
    forward = "self.start = torch.tanh(self.first(x + self.start).mean(0))\n        return x + self.start"
    text = kernelbench.problem("Memory.", forward, "torch.randn(32, N)", STATE, "[N]")
    problem = support.write(tmp_path / "in", {"memory": text}) / "memory.py"
    to = ("--to", str(tmp_path / "out"), "--allow-write", str(tmp_path))
    answer = json.loads(cli_here("bench", "adapt", str(problem), *to, "--json").stdout)
    assert answer["error"]["code"] == "NOT_DETERMINISTIC", answer


def test_only_modules_have_a_mode(cli_here: Any, tmp_path: Path) -> None:
    task = support.gpumode_folder(tmp_path, sorted(others.GPUMODE)[0])
    words = ("--to", str(tmp_path / "out"), "--allow-write", str(tmp_path), "--mode", "eval")
    answer = json.loads(cli_here("bench", "adapt", str(task), *words, "--json").stdout)
    assert answer["error"]["code"] == "NO_MODE"
