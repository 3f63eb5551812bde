"""The judge as a library: two functions and a line of inputs, without a server, a home folder or a job."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.judge import comparison
from aisp_mcp.judge.comparison import Report
from aisp_mcp.judge.functions import identity, pair
from aisp_mcp.judge.functions.pair import Plan, Request
from aisp_mcp.judge.options import Options, Policy
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.records import Comparison, Flag, Skip
from aisp_mcp.system.gpu import nvml


def compare(
    baseline: str,
    candidate: str,
    inputs: str = "",
    *,
    preset: str = "default",
    sizes: Mapping[str, int] | None = None,
    isolation: str = "auto",
    margin: float | None = None,
    make: str | None = None,
    check: str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    folder: Path | str | None = None,
    report: Report = lambda *_: None,
) -> Comparison:
    """Measure two functions and judge whether the candidate is faster than the baseline.

        >>> comparison = compare("slow.py:f", "fast.py:f", inputs="x=randn(1000)")
        >>> print(comparison)  # its sentence; comparison.verdict, .ratio, .interval and .flags are the evidence

    baseline, candidate: `file.py:function`, `package.module:function`, or the text of a file. inputs: how to draw the
    arguments of each call, see docs/functions.md; sizes: other values for numbers that they name. make, check, rtol,
    atol: a generator of arguments and a checker of answers, as `file.py:function`, and tolerances. preset: quick,
    default or release. isolation: auto, or L0 to L3. margin: the smallest difference that counts, as a fraction.
    folder: for the log of all raw measurements, comparison.log_path; by default a temporary one that lasts as long as
    this process. report(done, total, message) is called as replicates finish.

    Raises UsageError for a call that is wrong (BAD_INPUTS, NO_INPUTS, NO_FUNCTION), BenchmarkError if the baseline
    cannot be measured, Unavailable NEEDS if this machine lacks what the pair needs, and nothing for other errors of the
    candidate: these are its verdict.
    """
    request = Request(baseline, candidate, inputs, sizes or {}, make=make, check=check, rtol=rtol, atol=atol)
    plan = pair.plan(request)
    device = plan.device or nvml.benchmark_device()
    where = Path(tempfile.mkdtemp(prefix="pair-", dir=folder or _temporary())).resolve()
    size, policy = "default" if device == "cuda" else "small", Policy(pair.hidden(plan, where))
    options = Options(PRESETS[preset], size, device, where, isolation, margin, policy=policy)
    result = comparison.compare(pair.write(plan, where), options, report)
    if isinstance(result, Skip):
        raise Unavailable(result.code, f"{result.target} was not measured: it needs {result.missing}.")
    return disclosed(result, request, plan)


def disclosed(result: Comparison, request: Request, plan: Plan) -> Comparison:
    """The comparison with the inputs that were asked for, and a warning about those that are the same in every call."""
    sizes = {"sizes": dict(plan.sizes)} if plan.sizes else {}
    function = identity.of_baseline(plan.baseline.text, plan.baseline.name)
    own = [source.text for source in (plan.make, plan.check) if source]
    own += filter(None, [plan.chosen_by_candidate])  # the same text of inputs makes others for other candidates
    inputs = ", ".join([*map(repr, own), request.inputs])
    known_by = identity.of_target(plan.target, function, inputs, request.name)
    facts = {"inputs": request.inputs, "baseline_function": function, "identity": known_by}
    update: dict[str, Any] = {"disclosed": {**result.disclosed, **facts, **sizes}}
    if plan.fixed:
        message = f"The candidate may know these inputs, which are the same in every call: {', '.join(plan.fixed)}."
        flag = Flag(code="inputs_not_fresh", severity="warn", message=message, evidence={"inputs": plan.fixed})
        update["flags"] = [*result.flags, flag]
    return result.model_copy(update=update)


@cache
def _temporary() -> str:
    folder = tempfile.mkdtemp(prefix="aisp-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
