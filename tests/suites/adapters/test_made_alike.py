"""Candidates that make norms or draw parameters in their own way, and get the baseline's values all the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import adapter_support as support
import foreign_kernelbench as kernelbench
import pytest

from aisp_mcp.judge.candidate import adapted
from aisp_mcp.judge.candidate.formats import first_values

torch = pytest.importorskip("torch")
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


class Device(torch.overrides.TorchFunctionMode):  # type: ignore[misc,unused-ignore]
    """A GPU's device context, on a CPU: only tensors of torch.empty() draw from a generator of their own."""

    drawing = (torch.nn.init.kaiming_uniform_, torch.nn.init.uniform_, torch.Tensor.uniform_)

    def __init__(self, generator: Any) -> None:
        super().__init__()
        self.generator, self.addresses = generator, set[int]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in self.drawing and (*args, kwargs.get("tensor"))[0].data_ptr() in self.addresses:
            kwargs["generator"] = self.generator
        result = func(*args, **kwargs)
        if func is torch.empty:
            self.addresses.add(result.data_ptr())
        return result


class Elsewhere(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """Draws the parameters of a linear layer in memory that no device context reaches."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        self.own, self.shift = (torch.nn.Parameter(torch.Tensor(*shape)) for shape in ((6, 4), (6,)))
        torch.nn.init.kaiming_uniform_(self.own, a=5**0.5)
        torch.nn.init.uniform_(self.shift, -0.5, 0.5)
        self.register_buffer("twice", 2 * self.own.detach())


class Linear(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """Draws them as the baseline does."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        self.inner = torch.nn.Linear(4, 6)
        self.register_buffer("twice", 2 * self.inner.weight.detach())


def test_a_candidate_that_does_not_draw_on_the_device_is_made_again_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    generator, real = torch.Generator(), torch.manual_seed

    def seed(number: int) -> Any:
        generator.manual_seed(number + 1)
        return real(number)

    def on_device(make: Any, device: str) -> Any:
        with Device(generator):
            return make()

    monkeypatch.setattr(torch, "manual_seed", seed)
    monkeypatch.setattr(adapted, "on_device", on_device)
    tensors = {"weight": torch.randn(6, 4), "bias": torch.randn(6)}
    for kind, times in ((Elsewhere, 2), (Linear, 1)):
        baseline = partial(torch.nn.Linear, 4, 6)
        new = first_values.make(baseline, kind, tensors, "cuda", kind)
        module = first_values.loaded(new, tensors, {"x": torch.randn(1)})
        assert torch.equal(module.twice, 2 * tensors["weight"])
        assert kind.made == times


@pytest.mark.parametrize("capturing", [False, True])
def test_no_value_is_read_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch, capturing: bool) -> None:
    """Reading waits for the device, which ends the capture with an error."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    read, tensors = list[Any](), {"weight": torch.ones(6, 4), "bias": torch.ones(6)}
    key = first_values._key
    monkeypatch.setattr(first_values, "_key", lambda tensor: read.append(tensor) or key(tensor))
    mode = first_values._writing()({(24,): ("weight", tensors["weight"])})
    with mode:
        torch.zeros(6, 4)
    assert bool(read) != capturing
