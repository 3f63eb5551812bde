"""Training as a benchmark: some optimiser steps from a state drawn by the harness, as one pure function.

A baseline subclasses TrainingBenchmark and defines `model`, `batch`, `loss` and `optimizer`; inputs, run and reference
follow. Candidates get the same tensors by name and may use `train` with another optimiser or step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from aisp_mcp.bench.benchmark import Benchmark, Rng, Tolerance

WEIGHT, COUNTER = "weight.", "step"
DISTURBANCE = 0.02  # of the initial weights; usual for the initialisation of a transformer
POSITIVE = ("sq", "sum")  # parts of the names of optimiser states that contain squares
MAX_STEPS_BEFORE = 1000

Step = Callable[[Any, Any, dict[str, Any]], Any]


@dataclass(frozen=True)
class Quality:
    """Contract of approximate training: the result is judged by its loss, and weights are not compared one by one.

    update: allowed distance of the weights' whole change from that in float64, as a share of it (Frobenius norm). It
    must be below the share of a single step, or a skipped step would pass; the harness tries that and refuses the
    specification. loss: allowed error of each reported loss, in standard deviations of the true losses over the steps.
    spreads: how much higher than the baseline's the float64 loss on held-out data may be, in standard deviations of the
    baseline over different batches. seeds: number of baselines that give this deviation. batches: number of held-out
    batches.
    """

    update: float = 0.05
    loss: float = 0.25
    spreads: float = 1.0
    seeds: int = 8
    batches: int = 8


def train(
    model: Any, optimizer: Callable[[Iterable[Any]], Any], step: Step, tensors: Mapping[str, Any], state: bool = True
) -> dict[str, Any]:
    """Run one optimiser step for each batch in `tensors`, named as TrainingBenchmark names them.

    model: a module whose parameter values are replaced. optimizer: makes an optimiser from parameters. step: takes
    (model, optimizer, batch) and returns the loss. state: whether the optimiser's tensors are part of the result.
    Returns loss of shape [steps], weights, and state, in separate memory.
    """
    import torch

    parameters = dict(model.named_parameters())
    states = _states(tensors, parameters)
    for name, parameter in parameters.items():
        parameter.grad = None
        parameter.data = tensors[WEIGHT + name].clone()
    instance = optimizer(parameters.values())
    for name, parameter in parameters.items() if states else ():
        instance.state[parameter] = {key: tensors[f"{key}.{name}"].clone() for key in states}
        instance.state[parameter] |= {COUNTER: tensors[COUNTER].clone()} if COUNTER in tensors else {}
    batches = {name: tensor for name, tensor in tensors.items() if not is_state(name, parameters)}
    steps = len(next(iter(batches.values())))
    losses = [step(model, instance, {name: tensor[at] for name, tensor in batches.items()}) for at in range(steps)]
    outputs = {"loss": torch.stack([loss.detach() for loss in losses])}
    outputs |= {WEIGHT + name: parameter.detach() for name, parameter in parameters.items()}
    returned = states if state else ()
    return outputs | {f"{key}.{name}": instance.state[of][key] for key in returned for name, of in parameters.items()}


def plain_step(loss: Callable[..., Any]) -> Step:
    """The usual step, for a loss that takes (model, **batch): gradients, then the optimiser."""

    def step(model: Any, optimizer: Any, batch: dict[str, Any]) -> Any:
        optimizer.zero_grad(set_to_none=True)
        value = loss(model, **batch)
        value.backward()
        optimizer.step()
        return value

    return step


def is_state(name: str, parameters: Iterable[str]) -> bool:
    """Return True if an input is a weight or optimizer state, not a tensor of a batch."""
    return name == COUNTER or name.partition(".")[2] in parameters


def _states(tensors: Mapping[str, Any], parameters: Mapping[str, Any]) -> list[str]:
    """Names of the optimiser's tensors, such as exp_avg."""
    split = [name.partition(".") for name in tensors]
    kinds = dict.fromkeys(kind for kind, _, rest in split if rest in parameters and kind + "." != WEIGHT)
    return [*kinds]


class TrainingBenchmark(Benchmark):
    """`steps` optimiser steps: weights and state in, loss trajectory, weights and state out.

    Inputs of a call, all drawn anew: "weight.NAME" of each parameter; "exp_avg.NAME" and the like of each tensor of the
    optimiser, and its "step"; the tensors of `batch` with a leading dimension of `steps`. Outputs: "loss" of shape
    [steps], and weights and state under their names. Buffers of a module are constants. quality: None, or the contract
    of approximate training; the state is then not an output.
    """

    steps: int = 4
    quality: ClassVar[Quality | None] = None
    tolerance: ClassVar[Tolerance] = Tolerance(per_step=("out.loss",))

    def model(self) -> Any:
        """The module to train; the harness perturbs its initialisation."""
        raise NotImplementedError

    def task(self, rng: Rng) -> dict[str, Any]:
        """Secrets that all batches of one call share, such as the weights of a teacher. Arguments of `batch`."""
        return {}

    def batch(self, rng: Rng, **task: Any) -> dict[str, Any]:
        """Tensors of one batch."""
        raise NotImplementedError

    def loss(self, model: Any, **batch: Any) -> Any:
        """The loss of a batch, a tensor without dimensions."""
        raise NotImplementedError

    def optimizer(self, parameters: Iterable[Any]) -> Any:
        """A torch optimiser over these parameters."""
        raise NotImplementedError

    def step(self, model: Any, optimizer: Any, batch: dict[str, Any]) -> Any:
        """One optimiser step; returns the loss before it."""
        return plain_step(self.loss)(model, optimizer, batch)

    def inputs(self, rng: Rng) -> dict[str, Any]:
        import torch

        batches = self.batches(rng, self.task(rng), self.steps)
        weights = self._weights(rng)
        sizes = self._gradients(weights, batches)
        state = {
            f"{kind}.{name}": self._state(rng, kind, weights[name], sizes[name])
            for kind in self._optimizer_tensors()
            if kind != COUNTER
            for name in weights
        }
        if COUNTER in self._optimizer_tensors():
            state[COUNTER] = rng.randint(1, MAX_STEPS_BEFORE, 1)[0].to(torch.float32)
        return {WEIGHT + name: kind for name, kind in weights.items()} | state | batches

    def batches(self, rng: Rng, task: dict[str, Any], count: int) -> dict[str, Any]:
        """This many batches, stacked."""
        import torch

        drawn = [self.batch(rng, **task) for _ in range(count)]
        return {name: torch.stack([batch[name] for batch in drawn]) for name in drawn[0]}

    def run(self, **tensors: Any) -> dict[str, Any]:
        kind = next(tensor for name, tensor in tensors.items() if name.startswith(WEIGHT))
        return train(self._module(kind), self.optimizer, self.step, tensors, state=self.quality is None)

    def evaluate(self, weights: Mapping[str, Any], batches: Mapping[str, Any]) -> float:
        """Mean loss of these batches with these weights, named as outputs are; no gradients."""
        import torch

        model = self._module(next(iter(weights.values())))
        for name, parameter in model.named_parameters():
            parameter.data = weights[WEIGHT + name]
        count = len(next(iter(batches.values())))
        with torch.no_grad():
            losses = [self.loss(model, **{name: batch[at] for name, batch in batches.items()}) for at in range(count)]
        return math.fsum(map(float, losses)) / count

    def _module(self, kind: Any) -> Any:
        """The module on a tensor's device, in its type; made once for each."""
        modules = vars(self).setdefault("_modules", {})
        key = kind.dtype, kind.device
        if key not in modules:
            modules[key] = self.model().to(kind.device).to(kind.dtype)
        return modules[key]

    def _optimizer_tensors(self) -> list[str]:
        """Names of the optimiser's tensors for each parameter, found by one step on zeros."""
        import torch

        if "_names" not in vars(self):
            spot = torch.nn.Parameter(torch.zeros(2))
            optimizer = self.optimizer([spot])
            spot.grad = torch.zeros(2)
            optimizer.step()
            self._names = [name for name, value in optimizer.state[spot].items() if isinstance(value, torch.Tensor)]
        return self._names

    def _weights(self, rng: Rng) -> dict[str, Any]:
        """Weights as the module initialises itself from a secret seed, with an unstructured perturbation."""
        import torch

        devices = [rng.device] if rng.device != "cpu" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(int(rng.randint(0, 1 << 62, 1)))
            model = self.model().to(rng.device)
        return {
            name: (parameter.detach() + DISTURBANCE * rng.randn(*parameter.shape, scale=1.0, shift=0.0)).to(
                parameter.dtype
            )
            for name, parameter in model.named_parameters()
        }

    def _gradients(self, weights: dict[str, Any], batches: dict[str, Any]) -> dict[str, float]:
        """Root mean squares of gradients, from the first call that this process draws: the scale of
        optimiser states.
        """
        if "_sizes" not in vars(self):
            model = self._module(next(iter(weights.values())))
            for name, parameter in model.named_parameters():
                parameter.grad, parameter.data = None, weights[name]
            self.loss(model, **{name: tensor[0] for name, tensor in batches.items()}).backward()
            named = model.named_parameters()
            self._sizes = {name: float(tensor.grad.square().mean().sqrt()) + 1e-12 for name, tensor in named}
            model.zero_grad(set_to_none=True)
        return self._sizes

    @staticmethod
    def _state(rng: Rng, kind: str, weight: Any, size: float) -> Any:
        """A tensor of the optimiser: squares of the size of the gradients', or means of about a tenth of their size."""
        drawn = rng.rand(*weight.shape, scale=(0.5, 1.0))
        if any(part in kind for part in POSITIVE):
            return drawn.square_().add_(0.5).mul_(size**2).to(weight.dtype)
        return drawn.mul_(0.1 * size).to(weight.dtype)
