"""FlashInfer-Trace and SOL-ExecBench: a definition's reference, a workload's inputs, and a solution's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aisp_mcp.judge.candidate import adapted

_RANDOM_INTEGERS = (-1024, 1024)  # of 16 bits and more; narrower types use their whole range


class Reference(adapted.Reference):
    """The definition's reference, with the workload's inputs. outputs: for solutions that write to them."""

    def __init__(
        self,
        folder: Path,
        inputs: Mapping[str, Any],
        axes: Mapping[str, int],
        entry: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        arguments: Any = None,
    ) -> None:
        super().__init__(folder, arguments)
        self.inputs, self.axes, self.entry, self.outputs = inputs, axes, entry, outputs
        self.module = adapted.load(folder / "reference.py", "flashinfer_reference")

    def draw(self) -> Any:
        """Inputs by name: random ones, scalars, and custom ones by the definition's own function."""
        import torch

        scalars = {name: tensor.get("value") for name, tensor in self.inputs.items() if tensor["shape"] is None}
        custom = {}
        if any(tensor.get("type") == "custom" for tensor in self.inputs.values()):
            custom = dict(getattr(self.module, str(self.entry))({**self.axes, **scalars}, torch.device("cpu")))
        drawn = {
            name: _random(tensor) for name, tensor in self.inputs.items() if name not in custom and name not in scalars
        }
        return {**scalars, **drawn, **custom}

    def named(self, arguments: Any, tensors: dict[str, Any]) -> Any:
        """Positional arguments in the definition's order, named as there."""
        return [adapted.dissect(arguments[name], name, tensors) for name in self.inputs]

    def run(self, **tensors: Any) -> Any:
        return self.module.run(*adapted.build(self.arguments, tensors))


def _random(spec: Mapping[str, Any]) -> Any:
    import torch

    dtype, shape = getattr(torch, spec["dtype"]), spec["shape"]
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        low, high = (limits.min, limits.max) if limits.bits == 8 else _RANDOM_INTEGERS
        return torch.randint(low, high, shape, dtype=dtype)
    return torch.randn(shape).to(dtype)


class Candidate:
    """A solution's function, or its name in a file; its outputs are allocated if it takes them as arguments."""

    def __init__(
        self,
        folder: Path,
        file: str = "",
        function: str | Callable[..., Any] = "run",
        arguments: Any = None,
        outputs: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(function, str):
            function = getattr(adapted.load(folder / file, "flashinfer_solution"), function)
        self.function: Any = function
        self.arguments, self.outputs = arguments, outputs

    def prepare(self, params: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
        """Return nothing: there are no static tensors."""
        return params

    def run(self, **tensors: Any) -> Any:
        given = adapted.build(self.arguments, tensors)
        if self.outputs is None:
            return self.function(*given)
        import torch

        device = next(iter(tensors.values())).device
        outputs = [
            torch.empty(output["shape"], dtype=getattr(torch, output["dtype"]), device=device)
            for output in self.outputs.values()
        ]
        self.function(*given, *outputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
