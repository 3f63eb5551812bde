"""KernelBench: `Model` and `ModelNew` are modules, `get_inputs()` and `get_init_inputs()` make their arguments.

Field names: ScalingIntelligence/KernelBench, README. A problem is a file that defines Model and get_inputs; a candidate
is a file that defines ModelNew. A candidate's own get_inputs is never called.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.suites.adapters import base, runtime
from aisp_mcp.suites.adapters.base import Constants, Problem

NAME = "kernelbench"
PROBLEM = "problem.py"
_KEPT = 4  # modules with static tensors of their own: the verifier's, in both precisions


def find(path: Path, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """The problems of a file or folder, with candidates that lie beside them or are named."""
    trees = {file: base.parse(file) for file in base.python_files(path)}
    problems = {file: tree for file, tree in trees.items() if {"Model", "get_inputs"} <= base.defined(tree)}
    near = [file for file, tree in trees.items() if "ModelNew" in base.defined(tree)]
    owned = base.owned([file.stem for file in problems], list(candidates or near))
    return [_problem(file, tree, owned[file.stem], constants) for file, tree in problems.items()]


def _problem(file: Path, tree: Any, candidates: Sequence[Path], constants: Constants) -> Problem:
    files = {PROBLEM: base.read_text(file)}
    reference = {"constants": dict(constants)}
    found = {}
    for candidate in candidates:
        if "ModelNew" not in base.defined(base.parse(candidate)):
            raise BenchmarkError("NO_MODEL_NEW", f"{candidate.name} defines no ModelNew.", "See docs/adapters.md.")
        name = base.variant(candidate.stem, file.stem)
        files[f"{name}.py"] = base.read_text(candidate)
        found[name] = {"file": f"{name}.py", **reference}
    summary = base.first_line(tree, f"KernelBench problem {file.stem}.")
    return Problem(NAME, base.identifier(file.stem), summary, files, reference, found)


class Reference(runtime.Reference):
    """Model, with the static tensors that the harness gives it."""

    def __init__(self, folder: Path, constants: Constants | None = None, arguments: Any = None) -> None:
        super().__init__(folder, arguments)
        self.problem = runtime.load(folder / PROBLEM, "kernelbench_problem", constants)
        self._modules: list[tuple[Any, Any]] = []

    def draw(self) -> Any:
        """Positional arguments of forward."""
        return list(self.problem.get_inputs())

    def named(self, arguments: Any, tensors: dict[str, Any]) -> Any:
        """Name tensors by forward's own parameters where they have names."""
        known = [
            name
            for name, one in inspect.signature(self.problem.Model.forward).parameters.items()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ][1:]
        names = known + [f"input_{at}" for at in range(len(known), len(arguments))]
        return [runtime.dissect(value, name, tensors) for name, value in zip(names, arguments, strict=False)]

    def make(self, kind: Any) -> Any:
        """A module of the class, made with the problem's arguments."""
        made: Any = getattr(self.problem, "get_init_inputs", list)()
        return kind(**made) if isinstance(made, dict) else kind(*made)

    def state(self) -> dict[str, Any]:
        """Parameters and buffers, named as in the module's state_dict."""
        return dict(self.make(self.problem.Model).state_dict())

    def learnt(self) -> frozenset[str]:
        """Parameters; buffers are not learnt."""
        return frozenset(name for name, _ in self.make(self.problem.Model).named_parameters())

    def run(self, **tensors: Any) -> Any:
        """Call Model with these inputs and static tensors."""
        import torch

        with torch.no_grad():
            return self._module(tensors)(*runtime.build(self.arguments, tensors))

    def _module(self, tensors: Mapping[str, Any]) -> Any:
        """The module of these static tensors: made once, since they stay the same objects."""
        static = {name: tensor for name, tensor in tensors.items() if name not in self._inputs()}
        first = next(iter((static or tensors).values()))
        for kept, module in self._modules:
            if kept is first or (not static and (kept.dtype, kept.device) == (first.dtype, first.device)):
                return module
        module = loaded(self.make(self.problem.Model), static, tensors)
        self._modules = [*self._modules, (first, module)][-_KEPT:]
        return module

    @lru_cache(maxsize=1)  # noqa: B019 (one reference lives as long as its process)
    def _inputs(self) -> frozenset[str]:
        return frozenset(runtime.slots(self.arguments))


def loaded(module: Any, static: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """The module with these parameters and buffers, in their precision. Raises BenchmarkError PARAMETERS_DIFFER."""
    floating = [one for one in (*static.values(), *inputs.values()) if one.is_floating_point()]
    module = module.to(device=next(iter(inputs.values())).device)
    if floating and floating[0].element_size() > 1:
        module = module.to(dtype=floating[0].dtype)
    own = {name: tuple(one.shape) for name, one in module.state_dict().items()}
    if own != (given := {name: tuple(one.shape) for name, one in static.items()}):
        lacks = sorted(given.items() - own.items())
        more = sorted(own.items() - given.items())
        raise BenchmarkError(
            "PARAMETERS_DIFFER",
            f"The candidate's parameters are not the baseline's by name and shape: lacks {lacks}, adds {more}.",
            "Give ModelNew the parameters of Model; derive others from them in forward().",
        )
    module.load_state_dict(static)
    return module


class Candidate:
    """ModelNew: made with the problem's arguments, given the harness's parameters by name."""

    def __init__(self, folder: Path, file: str, arguments: Any, constants: Constants | None = None) -> None:
        self.reference = Reference(folder, constants, arguments)
        self.kind = runtime.load(folder / file, "kernelbench_candidate").ModelNew

    def prepare(self, params: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
        """Make the module; it takes the place of its parameters."""
        return {"module": loaded(self.reference.make(self.kind), params, {**example, **params} or example)}

    def run(self, module: Any, **tensors: Any) -> Any:
        """Call ModelNew with these inputs."""
        import torch

        with torch.no_grad():
            return module(*runtime.build(self.reference.arguments, tensors))
