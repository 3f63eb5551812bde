"""Problems of other suites under this harness: find, record in a child process, write a pair, measure, disclose."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from aisp_mcp.errors import BenchmarkError, UsageError
from aisp_mcp.judge.placement import usable_level
from aisp_mcp.process import isolation, python
from aisp_mcp.process.run import run
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Failure
from aisp_mcp.suites import selection
from aisp_mcp.suites.adapters import algotune, base, formats, writing
from aisp_mcp.suites.adapters.base import Problem, Recorded, TensorFacts
from aisp_mcp.suites.adapters.recording.recorder import MARK
from aisp_mcp.suites.adapters.records import Adapted, AdaptedInput, AdaptedProblem
from aisp_mcp.system.gpu import nvml

RECORD_S = 300.0  # time-out of one recording
ALL = "*"


@dataclass(frozen=True)
class AdaptRequest:
    """Arguments of adapt(). source: a path, or FORMAT:PATH. constants: sizes to change, by name.

    recipe: inputs that the problem's own code draws whatever their distribution; ALL for every input. tolerance: of the
    judge, or the one that the problem declares. mode: of a problem's modules.
    """

    source: str
    format: str | None = None
    candidates: Sequence[Path] = ()
    constants: base.Constants = field(default_factory=dict)
    recipe: Sequence[str] = ()
    tolerance: Literal["own", "problem"] = "own"
    mode: Literal["constructed", "eval"] = "constructed"


def constants(texts: Sequence[str]) -> dict[str, int | float | list[int | float]]:
    """Numbers, or lists of them, by name, from texts such as N=256 or sizes=[64,64]. Raises UsageError BAD_SIZES."""
    values: dict[str, int | float | list[int | float]] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            values[name.strip()] = number_or_list(json.loads(value))
        except (ValueError, TypeError):
            hint = "Write name=value, such as N=256 or layer_sizes=[64,64]."
            raise UsageError("BAD_SIZES", f"{text[:60]!r} gives no number.", hint) from None
    return values


def number_or_list(value: Any) -> int | float | list[int | float]:
    """The value, with whole numbers as integers. Raises TypeError for anything but numbers and lists of them."""
    if isinstance(value, list):
        return [number_or_list(each) for each in value]  # type: ignore[misc]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    return int(value) if float(value).is_integer() else value


def adapt(ctx: Context, request: AdaptRequest, folder: Path) -> Adapted:
    """Write a pair of files for every problem.

    Raises as formats.find, BenchmarkError if none can be recorded, and UsageError NO_INPUT, NO_PAIRS.
    """
    candidates, failed = _usable(request)
    problems = find(request, candidates)
    if problems[0].format == algotune.NAME:
        message = "AlgoTune tasks have no tensors that a pair of files could declare: they are measured as they are."
        raise UsageError("NO_PAIRS", message, "aisp bench run --from algotune:PATH")
    done = []
    for at, problem in enumerate(problems):
        ctx.progress(at, len(problems), f"recording {problem.name}")
        try:
            done.append(_write(problem, folder / problem.format, request))
        except BenchmarkError as error:
            failed.append(Failure(target=problem.name, code=error.code, message=error.message, hint=error.hint))
    if not done and len(failed) == 1:
        raise BenchmarkError(failed[0].code, f"{failed[0].target}: {failed[0].message}", failed[0].hint)
    inputs = {tensor.name for problem in done for tensor in problem.inputs if tensor.role == "input"}
    if unknown := [name for name in request.recipe if name != ALL and name not in inputs]:
        raise UsageError(
            "NO_INPUT", f"No problem has the input {unknown[0]!r}.", f"Known: {', '.join(sorted(inputs))}."
        )
    return Adapted(format=problems[0].format, folder=str(folder), problems=done, failed=failed)


def find(request: AdaptRequest, candidates: Sequence[Path]) -> list[Problem]:
    """The problems at the request's path. Raises as formats.find, and UsageError NO_MODE."""
    named, path = formats.split(request.source)
    problems = formats.find(path, request.format or named, candidates, request.constants)
    return problems if request.mode == "constructed" else [_in_evaluation(problem) for problem in problems]


def _in_evaluation(problem: Problem) -> Problem:
    """The problem with all modules in evaluation mode. Raises UsageError NO_MODE."""
    if problem.format != "kernelbench":
        message = f"{problem.name} has the format {problem.format}: only KernelBench problems are modules with a mode."
        raise UsageError("NO_MODE", message, "Leave out the mode.")
    mode = {"mode": "eval"}
    candidates = {name: {**arguments, **mode} for name, arguments in problem.candidates.items()}
    disclosed = (*problem.disclosed, "the module is in evaluation mode, as requested")
    return replace(problem, reference={**problem.reference, **mode}, candidates=candidates, disclosed=disclosed)


def _usable(request: AdaptRequest) -> tuple[list[Path], list[Failure]]:
    """The candidates that can be read, and why the others cannot. Raises BenchmarkError where none of them can."""
    usable, failed = [], list[Failure]()
    for file in request.candidates if len(request.candidates) > 1 else ():
        try:
            find(request, [file])
            usable.append(file)
        except BenchmarkError as error:
            failed.append(Failure(target=file.name, code=error.code, message=error.message, hint=error.hint))
    return (usable, failed) if usable else (list(request.candidates), [])


def _write(problem: Problem, folder: Path, request: AdaptRequest) -> AdaptedProblem:
    sources = folder / f"_{problem.name}"
    for name, text in problem.files.items():
        target_folder = sources / name
        target_folder.parent.mkdir(parents=True, exist_ok=True)
        target_folder.write_text(text, "utf-8")
    recorded = with_recipe(record(problem, sources), request.recipe)
    allowed = declared_tolerance(problem, recorded) if request.tolerance == "problem" else None
    disclosed = [*disclosures(recorded), *problem.disclosed]
    if allowed is not None:
        disclosed.append(f"compared with the problem's own tolerance, {allowed:g} absolute and relative")
    disclosed += [*(f"without effect here: {reason}" for reason in problem.unused)]
    texts = writing.files(problem, recorded, allowed, disclosed)
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    native = [f"{name}_{suffix.removeprefix('.')}" for name, (suffix, _) in problem.native.items()]
    return AdaptedProblem(
        target=f"{problem.format}:{problem.name}",
        variants=[f"{problem.format}:{problem.name}_{name}" for name in (*problem.candidates, *native)],
        files=[str(folder / name) for name in texts],
        inputs=[_input(tensor) for tensor in recorded.tensors],
        forbidden=list(problem.forbidden),
        disclosed=disclosed,
    )


def declared_tolerance(problem: Problem, recorded: Recorded) -> float:
    """The problem's tolerance for its outputs. Raises UsageError NO_TOLERANCE if it declares none for their dtype."""
    tolerances = [problem.tolerance[dtype] for dtype in recorded.outputs if dtype in problem.tolerance]
    if not tolerances:
        known = ", ".join(f"{dtype} ({value:g})" for dtype, value in problem.tolerance.items()) or "none"
        dtypes = ", ".join(dict.fromkeys(recorded.outputs))
        message = f"{problem.name} declares no tolerance for its outputs of {dtypes}; it declares {known}."
        raise UsageError("NO_TOLERANCE", message, "Leave out the tolerance, or use own.")
    return max(tolerances)


def with_recipe(recorded: Recorded, names: Sequence[str]) -> Recorded:
    """The record with these inputs drawn by the problem's own code, because a secret scale would break them."""
    fields = {
        tensor.name for tensor in recorded.tensors if tensor.role == "input" and (ALL in names or tensor.name in names)
    }
    tensors = (
        replace(tensor, how="recipe", numbers=(), order=())
        if tensor.name in fields and tensor.how != "fixed"
        else tensor
        for tensor in recorded.tensors
    )
    return replace(recorded, tensors=tuple(tensors))


def _input(tensor_facts: TensorFacts) -> AdaptedInput:
    return AdaptedInput(
        name=tensor_facts.name,
        role=tensor_facts.role,
        shape=list(tensor_facts.shape),
        dtype=tensor_facts.dtype,
        how=tensor_facts.how,
    )


def record(problem: Problem, sources: Path) -> Recorded:
    """Run the problem's recipe in an isolated child. Raises BenchmarkError RECORDING_FAILED, or as the recorder."""
    # A file among the arguments: the isolation shows its folder, which may be below one that it hides.
    facts = sources.resolve() / "reference.json"
    facts.write_text(json.dumps(dict(problem.reference)), "utf-8")
    argv = [*python.module("aisp_mcp.suites.adapters.recording.recorder"), problem.format, str(facts)]
    wrapped = isolation.wrap(argv, usable_level("auto", nvml.benchmark_device()), devices=True)
    done = run(wrapped, timeout_s=RECORD_S, cwd="/")
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        tail = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        reason = "took too long" if done.timed_out else tail
        raise BenchmarkError("RECORDING_FAILED", f"The recipe of {problem.name} could not be run: {reason}.")
    answer = json.loads(lines[-1].removeprefix(MARK))
    if "error" in answer:
        raise BenchmarkError(*answer["error"])
    return Recorded.parse(answer["recorded"])


def disclosures(recorded: Recorded) -> list[str]:
    """Sentences on what the harness could not make secret, fresh or adversarial."""
    groups = {how: [tensor.name for tensor in recorded.tensors if tensor.how == how] for how in ("fixed", "recipe")}
    lines = []
    if groups["fixed"]:
        lines.append(f"neither secret nor fresh, the same values in every call: {', '.join(groups['fixed'])}")
    if groups["recipe"]:
        lines.append(f"drawn by the problem's own code under a secret seed: {', '.join(groups['recipe'])}")
    if recorded.seeded:
        lines.append("the problem sets its own seeds; they are replaced by secret ones")
    if recorded.spread:
        lines.append(f"parameters of one value, drawn around it: {', '.join(recorded.spread)}")
    return [*lines, *recorded.notes]


def text_file(candidate: str, folder: Path, name: str) -> Path:
    """The path of a candidate; a candidate given as text, recognised by line breaks, is saved in the folder."""
    if "\n" not in candidate:
        return Path(candidate).expanduser()
    suffix = selection.language(candidate)
    path = folder / ("candidate.json" if name == "flashinfer" and suffix == ".py" else f"candidate{suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(candidate, "utf-8")
    return path
