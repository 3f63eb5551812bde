"""Problems whose forward() draws random tensors: these become inputs, for candidates as well."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import adapter_support as support
import foreign_kernelbench as kernelbench
import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.judge.candidate.formats import kernelbench as kernelbench_format  # noqa: E402
from aisp_mcp.judge.mutants.trial import Trial, calls  # noqa: E402
from aisp_mcp.suites.adapters import formats, writing  # noqa: E402
from aisp_mcp.suites.adapters.recording import recorder  # noqa: E402

pytestmark = [pytest.mark.torch]
CELL = "        self.cell = nn.GRUCell(width, width)\n"
FORWARD = "return self.cell(x, torch.randn(len(x), 8, device=x.device)) * torch.rand_like(x)"
COMPILED = f"@torch.compile\ndef compiled(self, x):\n    {FORWARD}"


def adapted(folder: Path, candidate: str) -> tuple[Any, Any, Any]:
    """The record, the specification, and the candidate's module of the pair that a problem becomes."""
    problem = kernelbench.problem("States.", FORWARD, "torch.randn(16, 8)", CELL, "[8]")
    before = COMPILED if "compiled" in candidate else ""
    texts = {"states": problem, "states_mine": kernelbench.candidate(candidate, CELL, before=before)}
    (found,) = formats.find(support.write(folder / "in", texts), None, (), {})
    files = folder / "out" / f"_{found.name}"
    support.write(files, {name.removesuffix(".py"): text for name, text in found.files.items()})
    recorded = recorder.record(kernelbench_format.Reference(files, **found.reference))
    spaces: list[dict[str, Any]] = []
    for name, text in sorted(writing.files(found, recorded).items()):
        spaces.append({"__file__": str(folder / "out" / name), "__name__": name})
        exec(compile(text, name, "exec"), spaces[-1])
    return recorded, spaces[0]["ProblemStates"](), spaces[1]["candidate"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
@pytest.mark.parametrize(
    ("candidate", "failure"),
    [
        (FORWARD, None),
        pytest.param("return compiled(self, x)", None, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
        ("state = torch.randn((16, 8))\nreturn torch.rand(size=(16, 8)) * self.cell(x, state)", None),
        (FORWARD.replace("self.cell(x, ", "self.cell(x, 0 * "), "error is"),
        ("return self.cell(x)", "error is"),
        (
            FORWARD.replace("len(x)", "1"),
            r"torch.randn of \(1, 8\) in forward\(\): the problem's forward\(\) draws 2 of",
        ),
        (FORWARD + " + torch.rand(16, 8)", "the problem's forward"),
    ],
)
def test_a_candidate_gets_what_the_problem_draws(tmp_path: Path, candidate: str, failure: str | None) -> None:
    recorded, spec, mine = adapted(tmp_path, candidate)
    names = [fact.name for fact in recorded.tensors if fact.role == "input"]
    assert names == ["x", "drawn_in_forward_0", "drawn_in_forward_1"]
    assert recorded.settings == {"mode": "constructed", "drawn": True}
    assert "are inputs" in recorded.notes[0]
    trial = Trial(spec)
    with trial.example() as example:
        prepared = mine.prepare(trial.params, {name: example[name] for name in names})

    def program(**tensors: Any) -> Any:
        return mine.run(**{name: tensors[name] for name in names}, **prepared)

    messages = [
        judged.failure for call in calls(5, trial.kinds, 2) if (judged := trial.judge(0, program, call)).failure
    ]
    assert bool(messages) == bool(failure)
    assert not failure or re.search(failure, messages[0]), messages[0]
    assert torch.randn(3).shape == (3,)  # the factories are themselves again
