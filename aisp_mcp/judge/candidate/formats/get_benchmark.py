"""Classes of the older harness: `get_benchmark()` returns an object with setup, benchmark_fn and teardown.

The harness overwrites the attributes that the payload names as inputs before every call, and reads the output's
attribute after it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from aisp_mcp.judge.candidate import adapted
from aisp_mcp.judge.candidate.adapted import Constants
from aisp_mcp.judge.protocol.module_loader import unusable

STAND_IN = "core"  # the package such classes import their base class from


class Reference(adapted.Reference):
    """One object of the class, its attributes overwritten before every call. some_constants: see adapted.load()."""

    some_constants = False

    def __init__(self, folder: Path, file: str, constants: Constants | None = None, arguments: Any = None) -> None:
        super().__init__(folder, arguments)
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.append(_Finder())
        self.module = adapted.load(folder / file, f"benchmark_{Path(file).stem}", constants, self.some_constants)
        self.bench: Any = None
        self.attributes: dict[str, str] = {}
        self.output: str | None = None
        self.buffer: Any = None  # what the output's attribute held before the first call

    @property
    def goal(self) -> str:
        """The metric that decides."""
        goal = getattr(self.bench, "get_optimization_goal", lambda: "speed")()
        return goal if goal in ("speed", "memory", "throughput", "latency") else "speed"

    def start(self) -> dict[str, Any]:
        """Set a new object up and call it once; returns its inputs. Raises BenchmarkError."""
        self.bench = self.module.get_benchmark()
        self.bench.setup()
        before = {name: value for name, value in vars(self.bench).items() if _is_tensor(value)}
        self.bench.benchmark_fn()
        payload = self._payload()
        inputs = {name: tensor for name, tensor in dict(payload["inputs"]).items() if _is_tensor(tensor)}
        modules = self._parameters()
        self.attributes = {}
        for name, tensor in inputs.items():
            if any(_same(tensor, module) for module in modules.values()):
                continue
            attribute = next(
                (attribute for attribute, value in before.items() if _same(value, tensor)),
                name if name in before else "",
            )
            if not attribute:
                raise unusable(
                    "NO_ATTRIBUTE",
                    f"The payload's input '{name}' is not an attribute of the object: the harness cannot replace it.",
                    "Keep inputs as attributes, and pass them to _set_verification_payload as they are.",
                )
            self.attributes[name] = attribute
        attributes = (
            attribute
            for attribute, value in vars(self.bench).items()
            if _is_tensor(value) and _same(value, payload["output"])
        )
        self.output = next(attributes, None)
        self.buffer = before.get(self.output or "")
        self.own_output = payload["output"].detach().clone()
        return {name: before[attribute] for name, attribute in self.attributes.items()}

    def _payload(self) -> Mapping[str, Any]:
        self.bench.capture_verification_payload()
        payload = getattr(self.bench, "_verification_payload", None)
        if payload is None:
            raise unusable(
                "NO_PAYLOAD",
                "capture_verification_payload() named neither inputs nor output: there is nothing to verify.",
                "Call self._set_verification_payload(inputs={...}, output=...) there.",
            )
        return payload if isinstance(payload, dict) else vars(payload)

    def _parameters(self) -> dict[str, Any]:
        """State of the modules among the attributes, by attribute and name."""
        import torch

        modules = {name: value for name, value in vars(self.bench).items() if isinstance(value, torch.nn.Module)}
        return {f"{at}.{name}": value for at, module in modules.items() for name, value in module.state_dict().items()}

    def draw(self) -> Any:
        """Inputs by the payload's names."""
        return self.start()

    def named(self, arguments: Any, tensors: dict[str, Any]) -> Any:
        """The payload's own names."""
        return {name: adapted.dissect(argument, name, tensors) for name, argument in arguments.items()}

    def state(self) -> dict[str, Any]:
        """Parameters and buffers of the object's modules."""
        if self.bench is None:
            self.start()
        return {name: tensor.detach().clone() for name, tensor in self._parameters().items()}

    def notes(self) -> tuple[str, ...]:
        """Attributes that the payload does not name."""
        known = {*self.attributes.values(), self.output}
        others = [name for name, value in vars(self.bench).items() if _is_tensor(value) and name not in known]
        messages = (
            [f"tensors that baseline and candidate each create in setup(): {', '.join(sorted(others))}"]
            if others
            else []
        )
        if self.output is None:
            messages.append("the output is not an attribute: capture_verification_payload() is part of the timed call")
        if self.buffer is not None:
            messages.append("the output's buffer is allocated anew for every call of baseline and candidate")
        return tuple(messages)

    def run(self, **tensors: Any) -> Any:
        """Overwrite the inputs, call benchmark_fn, read the output."""
        if self.bench is None:
            self.start()
        static = {name: tensor for name, tensor in tensors.items() if name not in self.attributes}
        if static:
            self._load(static)
        return self.call(**{name: tensors[name] for name in self.attributes})

    def _load(self, static: Mapping[str, Any]) -> None:
        """Give the object's modules these parameters, unless they already have them. Raises BenchmarkError."""
        first = next(iter(static.values()))
        if getattr(self, "_given", None) is first:
            return
        self._given = first
        for at in sorted({name.partition(".")[0] for name in static}):
            own = {name.partition(".")[2]: value for name, value in static.items() if name.startswith(f"{at}.")}
            module = getattr(self.bench, at, None)
            if module is None or {*own} != {*module.state_dict()}:
                raise unusable("PARAMETERS_DIFFER", f"The object has no module '{at}' with the baseline's parameters.")
            adapted.set_state(module, own)

    def call(self, **inputs: Any) -> Any:
        import torch

        with torch.no_grad():
            for name, attribute in self.attributes.items():
                setattr(self.bench, attribute, inputs[name])
            if self.buffer is not None:  # every call has its own output, in baseline and candidate
                wide = (
                    any(tensor.dtype == torch.float64 for tensor in inputs.values()) and self.buffer.is_floating_point()
                )
                fresh = torch.empty_like(self.buffer, dtype=torch.float64 if wide else None)
                setattr(self.bench, str(self.output), fresh)
            self.bench.benchmark_fn()
            return getattr(self.bench, self.output) if self.output else self._payload()["output"]


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _same(value: Any, other: Any) -> bool:
    return value is other or (value.data_ptr() == other.data_ptr() and value.shape == other.shape and value.numel() > 0)


class Candidate(Reference):
    """The other class, set up once; its inputs are overwritten before every call."""

    some_constants = True

    def prepare(self, params: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
        """Set the object up and load the baseline's parameters. Raises BenchmarkError INPUTS_DIFFER."""
        self.start()
        if {*self.attributes} != {*example}:
            raise unusable(
                "INPUTS_DIFFER",
                f"The candidate's payload names {sorted(self.attributes)}, the baseline's {sorted(example)}.",
            )
        if params:
            self._load(params)
        return {}

    def run(self, **inputs: Any) -> Any:
        """Overwrite the inputs, call benchmark_fn, read the output."""
        return self.call(**inputs)


class BaseBenchmark:
    """Replacement for the older harness's base classes if that package is not installed."""

    def __init__(self, *_: Any, **__: Any) -> None:
        import torch

        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def __getattr__(self, name: str) -> Any:
        if name in _HOOKS:
            return _nothing
        raise AttributeError(name)

    def _nvtx_range(self, *_: Any, **__: Any) -> Any:
        import contextlib

        return contextlib.nullcontext()

    def _set_verification_payload(self, **payload: Any) -> None:
        self._verification_payload = payload


_HOOKS = ("setup", "teardown", "_synchronize", "register_workload_metadata", "capture_verification_payload")


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


class _StandIn(ModuleType):
    """Any module of the older package: classes derived from BaseBenchmark, and functions without effect."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not name[:1].isupper():
            return _nothing
        return BaseBenchmark if name == "BaseBenchmark" else type(name, (BaseBenchmark,), {})


class _Finder:
    """Offer stand-ins for modules of the older package."""

    def find_spec(self, name: str, *_: Any) -> Any:
        """A spec for core and its submodules."""
        import importlib.machinery

        if name.partition(".")[0] != STAND_IN:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        """An empty stand-in."""
        module = _StandIn(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is executed."""
