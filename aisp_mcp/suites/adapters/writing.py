"""Text of the pair of files that an adapted problem becomes."""

from __future__ import annotations

import json
import pprint
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.judge.candidate_needs import CUDA, DECLARED, NVCC, compilers, requirements
from aisp_mcp.suites.adapters.base import VALUES_ALONE, Problem, Recorded, TensorFacts
from aisp_mcp.suites.adapters.origin import Origin

_BASELINE = '''"""{summary}

Adapted from the format {format}. Values: {values}.
"""

from pathlib import Path

from aisp_mcp.judge.candidate.formats.{format} import Reference
{slot}from aisp_mcp.bench import Benchmark{tolerance_class}

reference = Reference(
    Path(__file__).parent / "_{name}",
    **{reference},
    arguments={arguments},
)
{origin}


class {title}(Benchmark):
    goal = "{goal}"
    in_place = scratch = {in_place}
    layout = "{layout}"
{tolerance}
{params}    def inputs(self, rng):
{recipe}        return {{
{inputs}        }}

    run = reference.run
'''
_PARAMS = """    def params(self, rng):
{recipe}        return {{
{tensors}        }}

"""
_CANDIDATE = '''"""{summary}{compiles}"""

from pathlib import Path

from aisp_mcp.judge.candidate.formats.{format} import Candidate
{slot}{requires}
candidate = Candidate(
    Path(__file__).parent / "_{name}",
    **{candidate},
    arguments={arguments},
)
prepare = candidate.prepare
run = candidate.run
'''


def files(
    problem: Problem, recorded: Recorded, allowed: float | None = None, disclosed: Sequence[str] = ()
) -> dict[str, str]:
    """Text by file name: one baseline, and one file per candidate. allowed: the problem's own tolerance, if it is to be
    used. disclosed: what verdicts say about the problem.
    """
    tolerance = _tolerance(recorded, allowed)
    names = ", ".join(name for name in ("Buffer", "Slot") if f"{name}(" in recorded.arguments)
    slot = f"from aisp_mcp.judge.candidate.adapted import {names}\n" if names else ""
    facts = {"format": problem.format, "name": problem.name, "arguments": recorded.arguments, "slot": slot}
    params = [tensor for tensor in recorded.tensors if tensor.role == "param"]
    inputs = [tensor for tensor in recorded.tensors if tensor.role == "input"]
    baseline = _BASELINE.format(
        **facts,
        origin=_origin(problem, inputs, disclosed),
        summary=_plain(problem.summary),
        values="drawn by the harness, see docs/adapters.md",
        reference=_literal({**problem.reference, **recorded.settings}),
        tolerance=tolerance,
        tolerance_class=", Tolerance" if tolerance else "",
        title="".join(word.capitalize() for word in f"problem_{problem.name}".split("_")),
        goal=recorded.goal,
        layout="any" if problem.format in VALUES_ALONE else "values",
        in_place=repr(tuple(recorded.in_place)),
        params=_PARAMS.format(recipe=_recipe(params, "static"), tensors=_lines(params)) if params else "",
        recipe=_recipe(inputs, "recipe"),
        inputs=_lines(inputs),
    )
    written = {f"baseline_{problem.name}.py": baseline}
    for name, arguments in problem.candidates.items():
        texts = _texts(problem, name, str(arguments.get("file")))
        neighbours = {part for file in problem.files for part in Path(file).with_suffix("").parts}
        given = neighbours.union(problem.stand_ins)
        text = _CANDIDATE.format(
            **facts,
            summary=f"{name} of {problem.name}.",
            candidate=_literal({**arguments, **recorded.settings}),
            compiles=compilers("\n".join(texts.values())),
            requires=f"\n{DECLARED} = {_requirements(texts, given)!r}",
        )
        written[f"optimized_{problem.name}_{name}.py"] = text
    for name, (suffix, text) in problem.native.items():
        written[f"optimized_{problem.name}_{name}{suffix}"] = text
    return written


def _origin(problem: Problem, inputs: Sequence[TensorFacts], disclosed: Sequence[str]) -> str:
    """The statement that says where the problem came from."""
    fixed = tuple(tensor.name for tensor in inputs if tensor.how == "fixed")
    return Origin(problem.format, fixed, tuple(disclosed)).line()


def _texts(problem: Problem, name: str, file: str) -> dict[str, str]:
    """Text of a candidate's file, and of those in the folder that has the candidate's name, by path."""
    near = (path for path in problem.files if Path(path).parent == Path(name))
    return {path: problem.files[path] for path in (file, *near) if path in problem.files}


def _requirements(texts: Mapping[str, str], neighbours: Collection[str]) -> tuple[str, ...]:
    needs = [need for path, text in texts.items() if path.endswith(".py") for need in requirements(text, neighbours)]
    needs += [CUDA, NVCC] if any(path.endswith(".cu") for path in texts) else []
    return tuple(dict.fromkeys(needs))


def _tolerance(recorded: Recorded, allowed: float | None) -> str:
    """The line that declares the tolerance, if it is not the default."""
    values: dict[str, Any] = {"absolute": allowed, "approximate": allowed} if allowed is not None else {}
    if recorded.indices:
        values["indices"] = {name: tuple(where) for name, where in recorded.indices.items()}
    text = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return f"    tolerance = Tolerance({text})\n" if text else ""


def _plain(text: str) -> str:
    """One line that can be part of a docstring."""
    clean = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return clean.replace("\\", "/").replace('"', "'")[:100]


def _literal(values: Mapping[str, Any]) -> str:
    return pprint.pformat(json.loads(json.dumps(dict(values))), width=100, sort_dicts=False)


def _recipe(tensors: list[TensorFacts], name: str) -> str:
    own = any(tensor.how in ("recipe", "fixed") for tensor in tensors)
    return f"        own = reference.{name}(rng)\n" if own else ""


def _lines(tensors: list[TensorFacts]) -> str:
    return "".join(f"            {tensor.name!r}: {expression(tensor)},\n" for tensor in tensors)


def expression(tensor_facts: TensorFacts) -> str:
    """The draw of one tensor, in terms of the harness's rng."""
    if tensor_facts.how in ("recipe", "fixed"):
        return f"own[{tensor_facts.name!r}]"
    if tensor_facts.how == "permutation":
        return f"rng.permutation({tensor_facts.shape[0]})"
    shape = (
        [tensor_facts.shape[axis] for axis in tensor_facts.order] if tensor_facts.order else list(tensor_facts.shape)
    )
    sizes = "".join(f", {size}" for size in shape)
    text = _values(tensor_facts, sizes)
    if tensor_facts.order:
        back = [tensor_facts.order.index(axis) for axis in range(len(tensor_facts.order))]
        text = f"({text}).permute({', '.join(map(str, back))})"
    return text


def _values(tensor_facts: TensorFacts, sizes: str) -> str:
    dtype = "" if tensor_facts.dtype == "float32" else f', dtype="{tensor_facts.dtype}"'
    first = sizes.removeprefix(", ")
    if tensor_facts.how == "booleans":
        return f"rng.bernoulli({tensor_facts.numbers[0]}{sizes})"
    if tensor_facts.how == "integers":
        first_value, limit = (int(number) for number in tensor_facts.numbers)
        kind = "" if tensor_facts.dtype == "int64" else f', dtype="{tensor_facts.dtype}"'
        return f"rng.randint({first_value}, {limit}{sizes}{kind})"
    if tensor_facts.how == "uniform":
        low, high = tensor_facts.numbers
        return _scaled(f"rng.rand({(first + dtype).removeprefix(', ')})", (high - low) / 2, (high + low) / 2)
    mean, sd = tensor_facts.numbers
    return _scaled(f"rng.randn({(first + dtype).removeprefix(', ')})", sd, mean)


def _scaled(text: str, factor: float, offset: float) -> str:
    text += "" if factor == 1 else f" * {factor:.6g}"
    return text + ("" if offset == 0 else f" + {offset:.6g}" if offset > 0 else f" - {-offset:.6g}")
