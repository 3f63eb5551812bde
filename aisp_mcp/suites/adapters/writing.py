"""Text of the pair of files that an adapted problem becomes."""

from __future__ import annotations

import json
import pprint
from collections.abc import Mapping
from typing import Any

from aisp_mcp.suites.adapters.base import Problem, Recorded, TensorFacts

_BASELINE = '''"""{summary}

Adapted from the format {format}. Values: {values}.
"""

from pathlib import Path

from aisp_mcp.suites.adapters.{format} import Reference
{slot}from aisp_mcp.bench import Benchmark

reference = Reference(
    Path(__file__).parent / "_{name}",
    **{reference},
    arguments={arguments},
)


class {title}(Benchmark):
    goal = "{goal}"
    in_place = {in_place}

{params}    def inputs(self, rng):
{recipe}        return {{
{inputs}        }}

    def run(self, **tensors):
        return reference.run(**tensors)
'''
_PARAMS = """    def params(self, rng):
{recipe}        return {{
{tensors}        }}

"""
_CANDIDATE = '''"""{summary}"""

from pathlib import Path

from aisp_mcp.suites.adapters.{format} import Candidate
{slot}
candidate = Candidate(
    Path(__file__).parent / "_{name}",
    **{candidate},
    arguments={arguments},
)
prepare = candidate.prepare
run = candidate.run
'''


def files(problem: Problem, recorded: Recorded) -> dict[str, str]:
    """Text by file name: one baseline, and one file per candidate."""
    slot = "from aisp_mcp.suites.adapters.runtime import Slot\n" if "Slot(" in recorded.arguments else ""
    said = {"format": problem.format, "name": problem.name, "arguments": recorded.arguments, "slot": slot}
    params = [one for one in recorded.tensors if one.role == "param"]
    inputs = [one for one in recorded.tensors if one.role == "input"]
    baseline = _BASELINE.format(
        **said,
        summary=_plain(problem.summary),
        values="drawn by the harness, see docs/adapters.md",
        reference=_literal(problem.reference),
        title="".join(word.capitalize() for word in f"problem_{problem.name}".split("_")),
        goal=recorded.goal,
        in_place=repr(tuple(recorded.in_place)),
        params=_PARAMS.format(recipe=_recipe(params, "static"), tensors=_lines(params)) if params else "",
        recipe=_recipe(inputs, "recipe"),
        inputs=_lines(inputs),
    )
    written = {f"baseline_{problem.name}.py": baseline}
    for name, arguments in problem.candidates.items():
        text = _CANDIDATE.format(**said, summary=f"{name} of {problem.name}.", candidate=_literal(arguments))
        written[f"optimized_{problem.name}_{name}.py"] = text
    for name, (suffix, text) in problem.native.items():
        written[f"optimized_{problem.name}_{name}{suffix}"] = text
    return written


def _plain(text: str) -> str:
    """One line that may stand in a docstring."""
    clean = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return clean.replace("\\", "/").replace('"', "'")[:100]


def _literal(values: Mapping[str, Any]) -> str:
    return pprint.pformat(json.loads(json.dumps(dict(values))), width=100, sort_dicts=False)


def _recipe(tensors: list[TensorFacts], name: str) -> str:
    own = any(one.how in ("recipe", "fixed") for one in tensors)
    return f"        own = reference.{name}(rng)\n" if own else ""


def _lines(tensors: list[TensorFacts]) -> str:
    return "".join(f"            {one.name!r}: {expression(one)},\n" for one in tensors)


def expression(one: TensorFacts) -> str:
    """The draw of one tensor, in terms of the harness's rng."""
    if one.how in ("recipe", "fixed"):
        return f"own[{one.name!r}]"
    if one.how == "permutation":
        return f"rng.permutation({one.shape[0]})"
    shape = [one.shape[axis] for axis in one.order] if one.order else list(one.shape)
    sizes = "".join(f", {size}" for size in shape)
    text = _values(one, sizes)
    if one.order:
        back = [one.order.index(axis) for axis in range(len(one.order))]
        text = f"({text}).permute({', '.join(map(str, back))})"
    return text


def _values(one: TensorFacts, sizes: str) -> str:
    dtype = "" if one.dtype == "float32" else f', dtype="{one.dtype}"'
    first = sizes.removeprefix(", ")
    if one.how == "booleans":
        return f"rng.bernoulli({one.numbers[0]}{sizes})"
    if one.how == "integers":
        first_value, limit = (int(number) for number in one.numbers)
        kind = "" if one.dtype == "int64" else f', dtype="{one.dtype}"'
        return f"rng.randint({first_value}, {limit}{sizes}{kind})"
    if one.how == "uniform":
        low, high = one.numbers
        return _scaled(f"rng.rand({first}{dtype})", (high - low) / 2, (high + low) / 2)
    mean, sd = one.numbers
    return _scaled(f"rng.randn({first}{dtype})", sd, mean)


def _scaled(text: str, factor: float, offset: float) -> str:
    text += "" if factor == 1 else f" * {factor:.6g}"
    return text + ("" if offset == 0 else f" + {offset:.6g}" if offset > 0 else f" - {-offset:.6g}")
