"""Recognition of formats, distributions, generated text, and what is refused. Nothing is measured here."""

from __future__ import annotations

import ast
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import adapter_support as support
import foreign_kernelbench as kernelbench
import foreign_others as others
import pytest

from aisp_mcp.errors import BenchmarkError, Refused, UsageError
from aisp_mcp.judge.candidate import adapted, seeding
from aisp_mcp.judge.candidate.adapted import replace_constants
from aisp_mcp.suites.adapters import algotune, formats, own_form, runtime, writing
from aisp_mcp.suites.adapters.base import Problem, Recorded, TensorFacts
from aisp_mcp.suites.adapters.flashinfer import axis_sizes
from aisp_mcp.suites.adapters.recording import distributions, recorder
from aisp_mcp.suites.adapters.tools import AdaptParams, aisp_benchmark_adapt

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")


def record(problem: Problem, folder: Path) -> Recorded:
    """Record in this process, as the child does."""
    for name, text in problem.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    reference: Any = formats.load(problem.format)
    return recorder.record(reference.Reference(folder, **problem.reference))


def how(recorded: Recorded) -> dict[str, str]:
    return {tensor.name: tensor.how for tensor in recorded.tensors}


def only(path: Path, **options: Any) -> Problem:
    (problem,) = formats.find(path, None, options.get("candidates", ()), options.get("constants", {}))
    return problem


def test_every_format_is_recognised_by_its_files(tmp_path: Path) -> None:
    folders = {
        "kernelbench": support.kernelbench_folder(tmp_path),
        "flashinfer": support.flashinfer_folder(tmp_path, "gemm"),
        "gpumode": support.gpumode_folder(tmp_path, "vectoradd"),
        "get_benchmark": support.write(tmp_path / "classes", others.CLASSES),
        "pytest_benchmark": support.write(tmp_path / "pytest", others.PYTEST),
    }
    found = {name: formats.find(folder, None, (), {}) for name, folder in folders.items()}
    assert {name: {problem.format for problem in problems} for name, problems in found.items()} == {
        n: {n} for n in folders
    }
    assert {one.name: sorted(one.candidates) for one in found["kernelbench"]}["conv"] == ["cheat_zeros", "honest"]
    assert sorted(one.name for one in found["pytest_benchmark"]) == ["softmax", "total"]
    assert {"cheat_cached", "cheat_untouched", "honest"} <= set(found["flashinfer"][0].candidates)
    assert found["gpumode"][0].summary == "Add two vectors."
    assert formats.split("kernelbench:/a/b.py") == ("kernelbench", Path("/a/b.py"))
    assert formats.split("/a:b") == (None, Path("/a:b"))


def test_a_problem_is_recorded_with_its_parameters(tmp_path: Path) -> None:
    file = support.write(tmp_path / "one", {"mlp": kernelbench.PROBLEMS["mlp"]}) / "mlp.py"
    recorded = record(only(file, constants={"N": 128}), tmp_path / "out")
    shapes = {tensor.name: tensor.shape for tensor in recorded.tensors}
    assert shapes["x"] == (64, 128)
    assert shapes["first.weight"] == (128, 128)
    assert how(recorded)["x"] == how(recorded)["first.weight"] == "uniform"
    assert recorded.spread == ("norm.weight", "norm.bias")
    assert recorded.arguments == "[Slot('x')]"


def test_seeds_set_by_the_problem_are_replaced(tmp_path: Path) -> None:
    recorded = record(only(support.gpumode_folder(tmp_path, "vectoradd")), tmp_path / "out")
    assert recorded.seeded
    assert recorded.in_place == ()
    assert "Buffer(" in recorded.arguments
    assert how(recorded)["input_0"] == "normal"


def test_structured_inputs_stay_with_the_recipe(tmp_path: Path) -> None:
    recorded = record(only(support.flashinfer_folder(tmp_path, "ragged")), tmp_path / "out")
    assert how(recorded) == {"x": "normal", "ends": "recipe"}


def test_scalars_and_expressions_of_a_definition(tmp_path: Path) -> None:
    problem = only(support.flashinfer_folder(tmp_path, "gemm"))
    assert record(problem, tmp_path / "out").arguments == "[Slot('A'), Slot('B'), 0.5]"
    assert problem.reference["axes"] == {"M": 256, "N": 64, "H": 128}
    with pytest.raises(BenchmarkError, match="no size"):
        axis_sizes({"E": {"type": "expr", "expression": "__import__('os')"}}, {})
    with pytest.raises(BenchmarkError, match="'M' has no size"):
        axis_sizes({"M": {"type": "var"}}, {})


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ({"test_it": others.CLOSURE}, "NO_INPUTS"),
        ({"test_it": "def test_it(benchmark, tmp_path):\n    benchmark(len, [])\n"}, "NO_INPUTS"),
        ({"test_it": "def test_it(benchmark, other):\n    benchmark(len, [])\n"}, "NO_BENCHMARK_CALL"),
        ({"baseline_rows": others.DERIVED}, "DERIVED_STATE"),
        ({"drop": kernelbench.problem("Dropout.", "return torch.dropout(x, 0.5, True)", "torch.randn(N, N)")}, "NOT_D"),
        ({"vary": kernelbench.problem("Sizes.", "return x", "torch.randn(int(torch.randint(1, 999, ())))")}, "SHAPES"),
        ({"text": kernelbench.problem("Text.", "return 'a'", "torch.randn(N)")}, "BAD_OUTPUT"),
        ({"odd": kernelbench.problem("Odd.", "return x", "torch.randn(N), object()", arguments="x, y")}, "BAD_INPUTS"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_a_reason(tmp_path: Path, texts: dict[str, str], code: str) -> None:
    problem = only(support.write(tmp_path / "in", texts))
    with pytest.raises(BenchmarkError) as caught:
        record(problem, tmp_path / "out")
    assert caught.value.code.startswith(code)


def test_wrong_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no readable file or folder at"):
        formats.find(tmp_path / "missing", None, (), {})
    with pytest.raises(BenchmarkError, match="no problem of a known format"):
        formats.find(support.write(tmp_path / "plain", {"a": "x = 1\n"}), None, (), {})
    folder = support.flashinfer_folder(tmp_path, "gemm")
    (folder / "solution_cu.json").write_text(others.solution("cu", "", language="cuda"))
    with pytest.raises(BenchmarkError, match="written in cuda"):
        formats.find(folder, None, [folder / "solution_cu.json"], {})
    (problem,) = formats.find(folder, None, (), {})
    assert "written in cuda" in problem.unused[-1]
    escaping = json.loads(others.SOLUTIONS["gemm"]["honest"])
    escaping |= {"name": "escaping", "sources": [{"path": "../main.py", "content": ""}]}
    (folder / "solution_cu.json").write_text(json.dumps(escaping))
    with pytest.raises(BenchmarkError, match="leaves its folder"):
        formats.find(folder, None, (), {})


def test_distributions_with_known_answers() -> None:
    draw = torch.Generator().manual_seed(1)

    def twice(make: Any) -> tuple[str, tuple[float, ...]]:
        return distributions.fit(make(), make())

    assert twice(lambda: torch.randn(200, 50, generator=draw)) == ("normal", (0.0, 1.0))
    assert twice(lambda: torch.rand(200, 50, generator=draw)) == ("uniform", (0.0, 1.0))
    assert twice(lambda: torch.randint(0, 10, (5000,), generator=draw)) == ("integers", (0.0, 10.0))
    assert twice(lambda: torch.randperm(100, generator=draw)) == ("permutation", ())
    assert twice(lambda: torch.rand(5000, generator=draw) < 0.25)[0] == "booleans"
    assert twice(lambda: torch.arange(100.0))[0] == "fixed"
    assert twice(lambda: torch.ones(100))[0] == "fixed"
    for structured in (
        lambda: torch.randn(64, 64, generator=draw).tril(),
        lambda: torch.rand(64, 64, generator=draw).softmax(1),
        lambda: torch.randn(4096, generator=draw).sort().values,
        lambda: torch.randn(4096, generator=draw).cumsum(0),
        lambda: torch.randn(4096, generator=draw).exp(),
        lambda: torch.randn(8, generator=draw),
    ):
        assert twice(structured)[0] == "recipe"


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (("normal", (0.0, 1.0), ()), "rng.randn(4, 6)"),
        (("normal", (1.0, 0.5), ()), "rng.randn(4, 6) * 0.5 + 1"),
        (("uniform", (0.0, 1.0), ()), "rng.rand(4, 6) * 0.5 + 0.5"),
        (("uniform", (-1.0, 1.0), (1, 0)), "(rng.rand(6, 4)).permute(1, 0)"),
        (("integers", (0.0, 9.0), ()), 'rng.randint(0, 9, 4, 6, dtype="float32")'),
        (("booleans", (0.25,), ()), "rng.bernoulli(0.25, 4, 6)"),
        (("recipe", (), ()), "own['x']"),
    ],
)
def test_draws_as_text(fact: tuple[str, tuple[float, ...], tuple[int, ...]], text: str) -> None:
    kind, numbers, order = fact
    assert writing.expression(TensorFacts("x", "input", "float32", (4, 6), kind, numbers, order)) == text


def test_sizes_are_replaced_in_the_text() -> None:
    tree = replace_constants(ast.parse("N = 4096\nM = N * 2\nshape = (4096,)\n"), {"N": 8, "shape": 4})
    assert ast.unparse(tree) == "N = 8\nM = N * 2\nshape = (4,)"
    with pytest.raises(BenchmarkError, match="K"):
        replace_constants(tree, {"K": 1})


def test_a_pair_is_written_for_the_user_to_keep(cli_here: Any, tmp_path: Path) -> None:
    names = ("mlp", "mlp_honest")
    every = kernelbench.PROBLEMS | kernelbench.HONEST
    folder = support.write(tmp_path / "in", {name: every[name] for name in names})
    done = cli_here("bench", "adapt", str(folder), "--to", str(tmp_path / "out"), "--set", '{"N": 64}', "--json")
    answer = json.loads(done.stdout)
    assert answer["status"] == "ok", answer
    (problem,) = answer["result"]["problems"]
    assert problem["variants"] == ["kernelbench:mlp_honest"]
    assert "parameters of one value, drawn around it: norm.weight, norm.bias" in problem["disclosed"]
    text = (tmp_path / "out" / "kernelbench" / "baseline_mlp.py").read_text()
    assert "'x': rng.rand(64, 64) * 0.5 + 0.5," in text
    assert (tmp_path / "out" / "kernelbench" / "_mlp" / "problem.py").read_text() == kernelbench.PROBLEMS["mlp"]


def test_pairs_of_earlier_versions_still_run() -> None:
    for name in sorted({*formats.NAMES} - {algotune.NAME}):  # whose tasks have never been written as pairs
        today, earlier = (import_module(f"{folder}.{name}") for folder in own_form.FORMATS)
        assert (earlier.Reference, earlier.Candidate) == (today.Reference, today.Candidate)
    assert (runtime.Slot, runtime.Buffer) == (adapted.Slot, adapted.Buffer)


@pytest.mark.parametrize("folder", own_form.FORMATS)
def test_candidates_in_their_own_form_are_known_in_either_version(tmp_path: Path, folder: str) -> None:
    (tmp_path / "baseline_sum.py").write_text(
        f"from {folder}.gpumode import Reference\n"
        'reference = Reference(Path(__file__).parent / "_sum", **{"given": {}}, arguments=Slot("input"))\n'
    )
    text = own_form.with_run("def custom_kernel(data):\n    return data.sum()\n", tmp_path / "baseline_sum.py")
    assert "from aisp_mcp.judge.candidate.formats.gpumode import Candidate\n" in text
    assert ast.parse(text)


def test_an_assistant_writes_only_where_it_may(ctx: Any, tmp_path: Path) -> None:
    folder = support.write(tmp_path / "in", {"mlp": kernelbench.PROBLEMS["mlp"]})
    with pytest.raises(Refused, match="outside every folder"):
        aisp_benchmark_adapt(AdaptParams(path=str(folder), to=str(tmp_path / "out")), ctx)
    assert not (tmp_path / "out").exists()


def test_a_recipe_leaves_no_seeds_for_later(tmp_path: Path) -> None:
    """torch notes a seed, with the whole stack, for a GPU that is not there yet: recipes run for every timed call."""
    queued = len(torch.cuda._queued_calls)
    before = torch.get_rng_state()
    for _ in range(3):
        with seeding.seeded(7) as draws:
            torch.manual_seed(1)
            drawn = torch.rand(4), numpy.random.default_rng(3).random(4)
        assert draws.seeded
    with seeding.seeded(7):
        again = torch.rand(4), numpy.random.default_rng(3).random(4)
    assert torch.equal(drawn[0], again[0])
    assert (drawn[1] == again[1]).all()
    assert torch.equal(torch.get_rng_state(), before)
    assert len(torch.cuda._queued_calls) == queued or torch.cuda.is_available()
