"""A calculation from the caller's values and the facts of a model and a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from aisp_mcp.errors import UsageError
from aisp_mcp.plan import lookup, parameters
from aisp_mcp.plan.calculate import formulas
from aisp_mcp.plan.gemm import WIDTH
from aisp_mcp.plan.records.architecture import Architecture
from aisp_mcp.plan.records.plan import Planned, Source
from aisp_mcp.records import Record

READ_ON = "2026-11-24"


class Calculation(Record):
    """The answer, and every step with its formula and numbers."""

    headline: str
    value: float
    unit: str
    steps: list[formulas.Line]


def answer(
    name: str,
    values: Sequence[str],
    model: str | None,
    gpu: str | None,
    dtype: str,
) -> Planned[Calculation]:
    """Answer a question. Raises UsageError UNKNOWN_VALUE, BAD_VALUE, MISSING_VALUE and those of the look-ups;
    Unavailable NO_PEAK.
    """
    question = formulas.questions()[name]
    given = parse(values)
    formulas.check(question, given)
    arch = lookup.architecture(model) if model else None
    facts = lookup.gpu(gpu) if gpu else None
    known = _of_model(arch) | {"element_bytes": WIDTH[dtype]}
    if facts is not None:
        lookup.require_dtype(facts, [dtype])
        known |= {"peak_tflops": facts.peak[dtype].dense, "bandwidth_gb_s": facts.memory.bandwidth_bytes_s / 1e9}
    if arch is not None and "seq" in given:
        lookup.require_context(arch, int(given["seq"]))
    usable = {key: value for key, value in known.items() if key in question.inputs()} | given
    _check_peak(question, usable)
    lines = formulas.solve(question, usable)
    line = formulas.headline(question, lines)
    return Planned[Calculation](
        answer=Calculation(
            headline=f"{line.name} = {line.numbers} = {line.value:.6g} {line.unit}".strip(),
            value=line.value,
            unit=line.unit,
            steps=lines,
        ),
        assumptions=[
            "Exact arithmetic: no band.",
            *(f"{key} = {value:.6g}" for key, value in (usable | given).items()),
        ],
        band={},
        not_modelled=["Everything that the formula ignores: it is a hand calculation, not a prediction for a machine."],
        definitions={key: formulas.bounds()[key].meaning for key in sorted(question.inputs())},
        check_here="aisp hw roofline",
        sources=[Source(what=question.source, as_of=READ_ON), *lookup.sources(facts, arch)],
    )


def parse(values: Sequence[str]) -> dict[str, float]:
    """NAME=NUMBER texts as numbers. Raises UsageError BAD_VALUE."""
    given_values: dict[str, float] = {}
    for text in values:
        name, equals, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not equals or not math.isfinite(value) or name.strip() in given_values:
            raise UsageError("BAD_VALUE", f"'{text[:60]}' is not NAME=NUMBER, once each.", "For example m=4096 n=1e4.")
        given_values[name.strip()] = value
    return given_values


def _of_model(arch: Architecture | None) -> dict[str, float]:
    if arch is None:
        return {}
    a = arch.attention
    return {
        "parameters": parameters.matmul(arch), "total": parameters.total(arch), "active": parameters.active(arch),
        "vocab": arch.vocab,
        "layers": a.layers, "hidden": a.heads * a.head_dim, "heads": a.heads,
        "kv_heads": a.kv_heads, "head_dim": a.head_dim,
    }  # fmt: skip


def _check_peak(question: formulas.Question, values: Mapping[str, float]) -> None:
    """Raise UsageError BAD_VALUE for a rate above the peak it is compared with."""
    if question.answer == ["mfu"] and values.get("tflops", 0) > values.get("peak_tflops", math.inf):
        text = f"{values['tflops']:g} TFLOP/s exceed the peak of {values['peak_tflops']:g}."
        raise UsageError("BAD_VALUE", text, "Check GPU and dtype: sparse peaks are twice the dense ones.")
