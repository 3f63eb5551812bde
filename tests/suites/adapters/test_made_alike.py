"""Candidates that make norms in their own way, and get the baseline's values all the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import adapter_support as support
import foreign_kernelbench as kernelbench
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(280)]
STAGES = """        self.stages = nn.Sequential(
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.Linear(width, width), nn.BatchNorm1d(width)
        )
"""
STAGED = kernelbench.problem("Stages.", "return self.stages(x)", "torch.randn(32, N)", STAGES, "[N]")
STAGED = STAGED.replace("N = 192", "N = 24")
FOLD = """class Stage(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)

    def fold(self):
        linear, norm = self.linear, self.norm
        factor = norm.weight.data * (norm.running_var + norm.eps).rsqrt()
        linear.weight.data = linear.weight.data * factor[:, None]
        linear.bias.data = (linear.bias.data - norm.running_mean) * factor + norm.bias.data
        self.norm = nn.Identity()

    def forward(self, x):
        return self.norm(self.linear(x))
"""
FOLDED = """        self.one, self.two = Stage(width), Stage(width)
        self.one.fold()
        self.two.fold()
"""
folding = partial(kernelbench.candidate, "return self.two(self.one(x))", FOLDED)
IN_EVALUATION = {
    "dropped": folding(before=FOLD),
    "kept": folding(before=FOLD.replace("self.norm = nn.I", "kept = nn.I")),
}
IN_EVALUATION["kept"] = IN_EVALUATION["kept"].replace("self.norm(self.linear(x))", "self.linear(x)")
SCALELESS = {"scaleless": folding(before=FOLD.replace("norm.weight.data *", "torch.ones(24) *"))}
ONE_MORE = {"one_more": folding(before=FOLD).replace("self.one.fold", "nn.BatchNorm1d(width)\n        self.one.fold")}
SWAPPED = """        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        late, early = nn.BatchNorm1d(width), nn.BatchNorm1d(width)
        self.norms = nn.ModuleList([early, late])
        for norm in self.norms:
            nn.init.ones_(norm.weight)
"""
OWN_NORM = """class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x):
        return nn.functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, True)
"""
OWN_NORMS = (
    SWAPPED[: SWAPPED.index("        late")] + "        self.norms = nn.ModuleList([Norm(width), Norm(width)])\n"
)
BOTH = "return self.norms[1](self.linears[1](self.norms[0](self.linears[0](x))))"
IN_TRAINING = {
    "swapped": kernelbench.candidate(BOTH, SWAPPED),
    "own_norm": kernelbench.candidate(BOTH, OWN_NORMS, before=OWN_NORM),
}
WRONG_ORDER = {"wrong_order": kernelbench.candidate(BOTH.replace("norms[1]", "norms[0]", 1), SWAPPED)}


def test_norms_have_the_baselines_values_before_they_are_folded(cli_here: Any, tmp_path: Path) -> None:
    _, report = support.compared(cli_here, tmp_path, STAGED, IN_EVALUATION | SCALELESS | ONE_MORE, "--mode", "eval")
    assert support.failing(report) == set(SCALELESS), report["failing"]
    assert [row["target"] for row in report["skipped"]] == ["kernelbench:it_one_more"]


def test_norms_in_another_order_or_of_another_class_are_known(cli_here: Any, tmp_path: Path) -> None:
    _, report = support.compared(cli_here, tmp_path, STAGED, IN_TRAINING | WRONG_ORDER)
    assert report["skipped"] == []
    assert support.failing(report) == set(WRONG_ORDER), report["failing"]
