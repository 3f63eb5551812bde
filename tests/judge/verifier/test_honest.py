"""Honest programs that keep to the contract, and programs that leave something out of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.bench import Benchmark, Tolerance  # noqa: E402
from aisp_mcp.bench.training import TrainingBenchmark, train  # noqa: E402
from aisp_mcp.judge.functions import pair  # noqa: E402
from aisp_mcp.judge.mutants.trial import Call, Trial  # noqa: E402
from aisp_mcp.judge.options import Options  # noqa: E402
from aisp_mcp.judge.presets import PRESETS  # noqa: E402
from aisp_mcp.judge.protocol.draws.rng import MODES, CallRng  # noqa: E402
from aisp_mcp.judge.protocol.module_loader import load_spec  # noqa: E402
from aisp_mcp.judge.verifier.evaluation import evaluate_jittered  # noqa: E402
from aisp_mcp.store import machine_secret  # noqa: E402

pytestmark = [pytest.mark.torch]
DRAWS = 2


def failures(spec: type[Benchmark], program: Any, draws: int = DRAWS) -> list[str]:
    """Messages about a program over calls on all kinds of inputs."""
    trial = Trial(spec())
    judged = [trial.judge(0, program, Call(7919 * draw + 13, mode)) for draw in range(draws) for mode in MODES]
    return [one.failure for one in judged if one.failure]


class Distances(Benchmark):
    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(96, 64), "y": rng.randn(80, 64)}

    def run(self, x: Any, y: Any) -> Any:
        return (x[:, None] - y[None]).square().sum(2).sqrt()


class Sums(Benchmark):
    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(64, 4096)}

    def run(self, x: Any) -> Any:
        return x.sum(1)


class Mean(Benchmark):
    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(1 << 17)}

    def run(self, x: Any) -> Any:
        return x.square().mean()


def in_order(x: Any) -> Any:
    """The sum of each row, term after term."""
    return torch.from_numpy(x.numpy().cumsum(axis=1)[:, -1].copy())


def eight_lanes(x: Any) -> Any:
    return in_order(x.square().view(-1, 8).T.contiguous()).sum() / x.numel()


HONEST = {
    "distances by a product": (Distances, lambda x, y: torch.cdist(x, y)),
    "terms in order": (Sums, in_order),
    "eight lanes": (Mean, eight_lanes),
}


@pytest.mark.parametrize("name", HONEST)
def test_another_order_of_operations_is_not_accused(name: str) -> None:
    spec, program = HONEST[name]
    assert failures(spec, program) == []


@pytest.mark.parametrize("spec", [Distances, Sums, Mean])
def test_narrower_operands_are_refused_all_the_same(spec: type[Benchmark]) -> None:
    def narrow(**tensors: Any) -> Any:
        return spec().run(**{name: tensor.half().float() for name, tensor in tensors.items()})

    assert failures(spec, narrow, draws=1)


class Momentum(Benchmark):
    in_place = ("state",)

    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"weight": rng.randn(64, 64), "grad": rng.randn(64, 64), "state": rng.randn(64, 64)}

    def run(self, weight: Any, grad: Any, state: Any) -> Any:
        return weight - 0.1 * state.mul_(0.9).add_(grad)


def stored(weight: Any, grad: Any, state: Any) -> Any:
    torch.add(grad, state, alpha=0.9, out=state)
    return weight - 0.1 * state


def not_stored(weight: Any, grad: Any, state: Any) -> Any:
    return weight - 0.1 * (0.9 * state + grad)


def stored_in_half(weight: Any, grad: Any, state: Any) -> Any:
    new = 0.9 * state + grad
    state.copy_(new.bfloat16())
    return weight - 0.1 * new


def test_what_is_left_in_an_input_is_an_output() -> None:
    assert failures(Momentum, stored) == []
    for wrong in (not_stored, stored_in_half):
        found = failures(Momentum, wrong)
        assert len(found) >= DRAWS
        assert "what is left in input 'state' on plain inputs" in found[0]


def test_scratch_memory_and_returned_inputs_may_hold_anything_afterwards() -> None:
    class Scratch(Momentum):
        scratch = ("state",)

    class Returned(Benchmark):
        in_place = ("x",)

        def inputs(self, rng: Any) -> dict[str, Any]:
            return {"x": rng.randn(64, 64)}

        def run(self, x: Any) -> Any:
            return x.relu_()

    assert failures(Scratch, not_stored) == []
    assert failures(Returned, lambda x: torch.relu(x)) == []


def test_a_specification_can_ask_for_nan_and_infinity() -> None:
    class Means(Benchmark):
        def inputs(self, rng: Any) -> dict[str, Any]:
            return {"x": rng.randn(64, 256, nan=0.02)}

        def run(self, x: Any) -> Any:
            return x.nanmean(1)

    assert failures(Means, lambda x: x.nansum(1) / (x == x).sum(1)) == []
    assert len(failures(Means, lambda x: x.mean(1))) == DRAWS * len(MODES)
    planted = CallRng("cpu", 3).randn(64, 64, nan=0.05, inf=0.1)
    shares = [float(found.double().mean()) for found in (planted.isnan(), planted == torch.inf, planted == -torch.inf)]
    assert shares == pytest.approx([0.05, 0.05, 0.05], abs=0.02)


class Narrow(TrainingBenchmark):
    def model(self) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).bfloat16()

    def batch(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(32, 8, dtype="bfloat16"), "y": rng.randint(0, 4, 32)}

    def loss(self, model: Any, **batch: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(batch["x"]).float(), batch["y"])

    def optimizer(self, parameters: Any) -> Any:
        return torch.optim.AdamW(parameters, lr=1e-3, betas=(1 - 2**-4, 1 - 2**-10))


def test_a_model_in_bfloat16_can_be_trained() -> None:
    assert failures(Narrow, Narrow().run) == []


def test_training_on_gradients_of_the_step_before_is_refused() -> None:
    spec: Any = load_spec(Path("benchmarks/ch13/baseline_training_quality.py"), "small")

    def stale(**tensors: Any) -> Any:
        gradients: list[list[Any]] = []

        def step(model: Any, optimizer: Any, batch: dict[str, Any]) -> Any:
            optimizer.zero_grad(set_to_none=True)
            loss = spec.loss(model, **batch)
            loss.backward()
            parameters = list(model.parameters())
            gradients.append([parameter.grad for parameter in parameters])
            for parameter, gradient in zip(parameters, gradients[-2:][0], strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
            return loss

        return train(spec.model(), spec.optimizer, step, tensors, state=False)

    failure = str(Trial(spec).judge(0, stale, Call(11, "plain")).failure)
    # Which of the two is further off depends on the held-out batches, whose seed is secret.
    assert "the change of the weights is off" in failure or "the loss on held-out data" in failure


class Doubled(Benchmark):
    tolerance = Tolerance(approximate=0.01)

    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(64, 64)}

    def run(self, x: Any) -> Any:
        return 2 * x


@pytest.mark.parametrize(
    ("battery", "fresh", "accepted"),
    [(0.8, 1.5, True), (0.3, 1.9, True), (0.3, 2.1, False), (0.99, 2.1, False), (1.1, 0.1, False)],
)
def test_fresh_inputs_decide_as_the_battery_did(battery: float, fresh: float, accepted: bool) -> None:
    """battery, fresh: the error there, in units of what the contract allows."""
    trial = Trial(Doubled())
    judged = [
        trial.judge(0, lambda x, share=share: 2 * x * (1 + 0.01 * share), Call(3, "plain", battery=at == 0))
        for at, share in enumerate((battery, fresh))
    ]
    assert (not any(one.failure for one in judged)) == accepted
    other = trial.judge(1, lambda x: 2 * x * (1 + 0.01 * 1.5), Call(3, "plain"))
    assert "at the edge of the tolerance" in str(other.failure)  # no battery has decided about another program


class Loss(Benchmark):
    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(64, 2048), "y": rng.randn(64, 2048)}

    def run(self, x: Any, y: Any) -> Any:
        return torch.nn.functional.mse_loss(x, y)


class Groups(Benchmark):
    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(64, 1024)}

    def run(self, x: Any) -> Any:
        return torch.nn.functional.group_norm(x[:, :, None], 8)[:, :, 0]


def by_moments(x: Any) -> Any:
    parts = x.view(-1, 128)
    mean = parts.mean(1, keepdim=True)
    variance = parts.square().mean(1, keepdim=True) - mean.square()
    return ((parts - mean) * torch.rsqrt(variance + 1e-5)).view(x.shape)


@pytest.mark.parametrize(
    ("spec", "program", "seed"),
    [
        # A few large squares come first, and of each small one that follows, the partial sum loses the same part.
        (Loss, lambda x, y: eight_lanes((x - y).flatten()), 218),
        (Loss, lambda x, y: eight_lanes((x - y).flatten()), 219),
        # The groups rise steadily, so that the squared mean is much larger than the variance.
        (Groups, by_moments, 457),
        (Groups, by_moments, 554),
    ],
)
def test_unlucky_inputs_accuse_no_honest_program(spec: type[Benchmark], program: Any, seed: int) -> None:
    judged = Trial(spec()).judge(0, program, Call(seed, "plain", battery=True))
    assert judged.failure is None


def test_what_sums_in_order_may_do_hides_no_missing_term() -> None:
    def all_but_a_thousandth(x: Any, y: Any) -> Any:
        return (x - y).flatten()[131:].square().sum() / x.numel()

    assert len(failures(Loss, all_but_a_thousandth, draws=1)) >= len(MODES) - 1


class Centred(Benchmark):
    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(64, 256)}

    def run(self, x: Any) -> Any:
        return x - x.mean(1, keepdim=True)


def test_fresh_inputs_do_not_change_what_the_battery_finds() -> None:
    """Equal numbers cancel to nothing, and the outputs of other calls tell which errors count there."""

    def error(offset: float, fresh: list[Call]) -> float:
        trial = Trial(Centred())
        for call in (*fresh, Call(5, "plain", battery=True)):
            trial.judge(0, Centred().run, call)
        return trial.judge(0, lambda x: Centred().run(x) + offset, Call(6, "constant", battery=True)).error

    offsets = [step * 1e-6 for step in range(1, 30, 2)]
    alone = [error(offset, []) for offset in offsets]
    assert alone[0] == 0.0 < alone[-1]
    assert [error(offset, [Call(seed, "plain") for seed in range(8)]) for offset in offsets] == alone


def test_a_battery_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    secret = machine_secret.read(tmp_path / "home")
    options = Options(PRESETS["quick"], "small", "cpu", tmp_path, secret=secret)
    file = tmp_path / "baseline_x.py"
    file.write_text("one")
    seed = options.battery_seed(file)
    assert seed == replace(options, secret=machine_secret.read(tmp_path / "home")).battery_seed(file)
    assert seed != replace(options, size="large").battery_seed(file)
    assert seed != replace(options, secret=machine_secret.read(tmp_path / "other")).battery_seed(file)
    file.write_text("two")
    assert seed != options.battery_seed(file)
    assert (tmp_path / "home" / "battery-secret").stat().st_mode & 0o777 == 0o600


def test_a_battery_of_two_functions_is_the_same_in_every_run(tmp_path: Path) -> None:
    options = Options(PRESETS["quick"], "small", "cpu", tmp_path)
    for name in ("slow", "fast", "faster"):
        (tmp_path / f"{name}.py").write_text("def f(xs):\n    return sorted(xs)\n")
    seeds = set()
    for number, (candidate, n) in enumerate((("fast", 9), ("fast", 9), ("faster", 9), ("fast", 18))):
        files = (str(tmp_path / f"{name}.py") for name in ("slow", candidate))
        plan = pair.plan(pair.Request(*files, f"xs=list(randint(0, 9, {n}))"))
        seeds.add(options.battery_seed(pair.write(plan, tmp_path / f"run{number}").baseline))
    assert len(seeds) == 2


def test_noise_passes_operations_that_are_not_arithmetic() -> None:
    """An optimiser marks its steps for profilers by operations of another namespace."""

    def step() -> Any:
        weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
        weight.grad = torch.full((4,), 2.0, dtype=torch.float64)
        torch.optim.SGD([weight], lr=0.1).step()
        return weight.detach()

    moved = evaluate_jittered(step, 1e-7, 64.0, 3)
    assert 0.0 < float((moved - 0.8).abs().max()) < 1e-6


@pytest.mark.parametrize("masked", [torch.add, lambda scores, mask: torch.addmm(mask, scores, torch.eye(8).double())])
def test_noise_leaves_the_infinite_values_of_a_mask(masked: Any) -> None:
    scores = torch.randn(8, 8, dtype=torch.float64)
    mask = torch.full((8, 8), -torch.inf, dtype=torch.float64).triu(1)
    right = (scores + mask).softmax(-1)
    moved = evaluate_jittered(lambda: masked(scores, mask).softmax(-1), 1e-7, 64.0, 3)
    assert 0.0 < float((moved - right).abs().max()) < 1e-6
    assert bool((moved.triu(1) == 0).all())


class NarrowProduct(Benchmark):
    """Sums of products in bfloat16, returned in float32."""

    def inputs(self, rng: Any) -> dict[str, Any]:
        return {"x": rng.randn(32, 256), "w": rng.randn(256, 32)}

    def run(self, x: Any, w: Any) -> Any:
        return (x.bfloat16() @ w.bfloat16()).float()


def test_errors_of_a_narrow_type_excuse_no_answer_of_twice_the_size() -> None:
    """On adversarial inputs, 64 times these errors would be more than the output."""
    for mode in ("exact", "spikes"):
        trial = Trial(NarrowProduct())
        judged = [trial.judge(0, lambda x, w: 2 * (x @ w), Call(17 + draw, mode)) for draw in range(DRAWS)]
        assert all(each.failure for each in judged)
        assert not trial.judge(1, lambda x, w: x @ w, Call(5, mode)).failure
