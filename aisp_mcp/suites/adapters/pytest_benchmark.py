"""pytest-benchmark: test functions with the fixture `benchmark`, which call `benchmark(function, *args, **kwargs)`.

The first such function of a file is the baseline, or the one named baseline or reference; the others are candidates.
A function of the same name in a candidate file is a candidate, too. Fixtures other than benchmark are not supported.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.suites.adapters import base, runtime
from aisp_mcp.suites.adapters.base import Constants, Problem

NAME = "pytest_benchmark"
PROBLEM = "problem.py"
_BASELINES = ("baseline", "reference", "naive")


def find(path: Path, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """One problem per file that holds a test with the fixture benchmark."""
    problems = []
    for file in base.python_files(path):
        tree = base.parse(file)
        tests = _tests(tree)
        if not tests or file in candidates:
            continue
        baseline = next((name for name in tests if any(word in name for word in _BASELINES)), tests[0])
        files = {PROBLEM: base.read_text(file)}
        found: dict[str, Any] = {} if candidates else {_short(name): {"file": PROBLEM, "test": name} for name in tests}
        found.pop(_short(baseline), None)
        for candidate in candidates:
            for name in _tests(base.parse(candidate)):
                variant = base.identifier(f"{candidate.stem}_{_short(name)}")
                files[f"{variant}.py"] = base.read_text(candidate)
                found[variant] = {"file": f"{variant}.py", "test": name}
        reference: dict[str, Any] = {"test": baseline, "constants": dict(constants)}
        found = {name: {**one, "constants": dict(constants)} for name, one in found.items()}
        summary = base.first_line(tree, f"{baseline} of {file.name}.")
        name = base.identifier(file.stem.removeprefix("test_"))
        unused = ("rounds, warm-up and calibration of pytest-benchmark", "assertions after the measured call")
        problems.append(Problem(NAME, name, summary, files, reference, found, unused=unused))
    return problems


def _short(test: str) -> str:
    return base.identifier(test.removeprefix("test_"))


def _tests(tree: ast.Module | None) -> list[str]:
    """Names of the tests that take the fixture."""
    return [
        node.name
        for node in (tree.body if tree else ())
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test")
        and any(arg.arg == "benchmark" for arg in (*node.args.args, *node.args.kwonlyargs))
    ]


class Recorder:
    """The fixture: notes the first call and returns what the function returns."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
        self.extra_info: dict[str, Any] = {}
        self.group: str | None = None
        self.name = self.fullname = "benchmark"

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls.append((function, args, kwargs))
        return function(*args, **kwargs)

    def pedantic(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        **_: Any,
    ) -> Any:
        """The same with arguments from a setup function; numbers of rounds have no effect."""
        made = setup() if setup else None
        args, kwargs = made if made else (args, kwargs or {})
        return self(target, *args, **kwargs)


def recorded(test: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Function and arguments that a test measures. Raises BenchmarkError."""
    others = [name for name, one in inspect.signature(test).parameters.items() if name != "benchmark"]
    if others:
        raise BenchmarkError(
            "OTHER_FIXTURES",
            f"The test needs the fixtures or parameters {', '.join(others)}; only benchmark is known here.",
            "Make the values inside the test.",
        )
    fixture = Recorder()
    test(benchmark=fixture)
    if len(fixture.calls) != 1:
        raise BenchmarkError("NO_BENCHMARK_CALL", f"The test called benchmark {len(fixture.calls)} times, not once.")
    return fixture.calls[0]


class Reference(runtime.Reference):
    """The function that the test measures."""

    def __init__(
        self, folder: Path, test: str, constants: Constants | None = None, file: str = PROBLEM, arguments: Any = None
    ) -> None:
        super().__init__(folder, arguments)
        some = file != PROBLEM
        self.test = getattr(runtime.load(folder / file, f"benchmarked_{Path(file).stem}", constants, some), test)
        self.function: Callable[..., Any] | None = None

    def draw(self) -> Any:
        """Arguments of one call, by position and by name."""
        self.function, args, kwargs = recorded(self.test)
        return {"args": list(args), "kwargs": kwargs}

    def named(self, arguments: Any, tensors: dict[str, Any]) -> Any:
        """Name tensors by the function's own parameters where they have names."""
        try:
            known = list(inspect.signature(self.function).parameters) if self.function else []
        except (TypeError, ValueError):  # a builtin
            known = []
        names = [name for name in known if name not in arguments["kwargs"]]
        names += [f"input_{at}" for at in range(len(names), len(arguments["args"]))]
        args = [runtime.dissect(one, name, tensors) for name, one in zip(names, arguments["args"], strict=False)]
        kwargs = {name: runtime.dissect(one, name, tensors) for name, one in arguments["kwargs"].items()}
        return {"args": args, "kwargs": kwargs}

    def run(self, **tensors: Any) -> Any:
        """Call the function; arrays come back as tensors."""
        if self.function is None:
            self.function = recorded(self.test)[0]
        given = runtime.build(self.arguments, tensors)
        return as_tensor(self.function(*given["args"], **given["kwargs"]))


def as_tensor(output: Any) -> Any:
    """numpy results as tensors over the same memory."""
    import torch

    if isinstance(output, tuple | list):
        return type(output)(as_tensor(one) for one in output)
    return torch.as_tensor(output) if type(output).__module__ == "numpy" else output


class Candidate(Reference):
    """The function that another test measures, on the baseline's arguments."""

    def __init__(self, folder: Path, file: str, test: str, arguments: Any, constants: Constants | None = None) -> None:
        super().__init__(folder, test, constants, file, arguments)

    def prepare(self, params: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
        """Find the function before it is timed."""
        self.function = recorded(self.test)[0]
        return params
