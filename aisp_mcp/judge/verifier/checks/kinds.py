"""The kinds of contracts, and how a specification declares each."""

from __future__ import annotations

from enum import StrEnum

from aisp_mcp.bench import Benchmark
from aisp_mcp.bench.training import TrainingBenchmark


class Kind(StrEnum):
    """Kind of contract: the rule that decides whether an output is right. contracts.py has one checker for each."""

    DISTRIBUTION = "distribution"  # the output is a random draw
    QUALITY = "quality"  # of an approximate training
    FORMAT = "format"  # operands may be rounded to a low-precision format
    VALUES = "values"  # any Python values, compared with the baseline's or by the user's own checker
    ELEMENTS = "elements"  # each element is compared with the reference


def kind_of(spec: Benchmark) -> Kind:
    """The kind of a specification's contract."""
    if spec.answers is not None:
        return Kind.VALUES
    if spec.tolerance.stochastic:
        return Kind.DISTRIBUTION
    if isinstance(spec, TrainingBenchmark) and spec.quality:
        return Kind.QUALITY
    return Kind.FORMAT if spec.tolerance.format else Kind.ELEMENTS
