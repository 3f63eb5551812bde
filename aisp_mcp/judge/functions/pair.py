"""Write two functions and a line of inputs as a pair of benchmark files that the judge can measure."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.candidate_needs import DECLARED, compilers, requirements
from aisp_mcp.judge.functions import inputs, neighbours, sources
from aisp_mcp.judge.functions.inputs import Argument
from aisp_mcp.judge.functions.makers import Draw
from aisp_mcp.judge.functions.sources import Source
from aisp_mcp.judge.pair import Pair

_BASELINE = '''"""{summary}"""

import torch

from aisp_mcp.bench import Benchmark{host}
from aisp_mcp.judge.candidate.calling import Steps, arguments, as_array, as_list, function, tensors

_function = {load}


def _arguments({names}):
    return arguments({passed})


class Pair(Benchmark):
{changed}{sizes}    def inputs(self, rng):
        return {{
{draws}        }}

    def run(self, {names}):
        return tensors(_function({passed}))

    run.steps = Steps(_arguments, _function, {is_copied})
'''
_CANDIDATE = '''"""{summary}"""

from aisp_mcp.judge.candidate.calling import Steps, arguments, as_array, as_list, function, tensors

{requires}
_function = {load}


def _arguments({names}):
    return arguments({passed})


def run({names}):
    return tensors(_function({passed}))


run.steps = Steps(_arguments, _function, {is_copied})
'''


@dataclass(frozen=True)
class Request:
    """Two functions, as sources.read() takes them, and the inputs of both, as inputs.read() takes them.

    sizes: other values for numbers that the inputs name. name: of the target, if its user gave one.
    """

    baseline: str
    candidate: str
    inputs: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Plan:
    """A pair that can be written. device: the one that the inputs require, or empty for the machine's. disclosed:
    sentences.
    """

    baseline: Source
    candidate: Source
    arguments: Sequence[Argument]
    device: str

    @property
    def target(self) -> str:
        """The name of the pair's target."""
        return f"{self.baseline.title}:{self.baseline.name or 'run'}"

    @property
    def variant(self) -> str:
        """The candidate's name."""
        name, title = self.candidate.name, self.candidate.title
        return title if name == self.baseline.name or not name else name

    @property
    def fixed(self) -> list[str]:
        """Inputs that have the same values in every call."""
        return [label for label, draw in _draws(self.arguments).items() if draw.fixed]

    @property
    def is_copied(self) -> bool:
        """Return True if an argument is no view of its input."""
        return any(draw.form in ("list", "number") for draw in _draws(self.arguments).values())

    @property
    def sizes(self) -> dict[str, int]:
        """Integers by name that shapes are made of."""
        named = inputs.sizes(self.arguments)
        return {name: value for name, value in named.items() if isinstance(value, int) and value > 1}

    @property
    def elements(self) -> int:
        """Elements of all inputs of one call."""
        return sum(math.prod(int(size.value) for size in draw.shape) for draw in _draws(self.arguments).values())


def plan(request: Request) -> Plan:
    """Read everything that can be wrong. Raises UsageError BAD_INPUTS, NO_INPUTS, and as sources.pair."""
    baseline, candidate = sources.pair(request.baseline, request.candidate)
    if baseline.suffix != ".py":
        raise UsageError("BAD_BASELINE", "The baseline must be a Python function.", "Swap the two files.")
    if not request.inputs.strip() and baseline.parameters and baseline.parameters.required:
        raise missing_inputs(baseline)
    arguments = inputs.read(request.inputs, "numpy" if baseline.uses_numpy else "torch", request.sizes)
    return with_arguments(baseline, candidate, arguments)


def with_arguments(baseline: Source, candidate: Source, arguments: Sequence[Argument]) -> Plan:
    """The plan of two functions that are called with these arguments. Raises UsageError BAD_INPUTS, NO_INPUTS."""
    for source in (baseline, candidate):
        _call(source, baseline, arguments)  # raises if they do not match
    if not _draws(arguments):
        message = "No input is random: without new inputs, a candidate could return a cached answer."
        raise UsageError("NO_INPUTS", message, _example(baseline))
    return Plan(baseline, candidate, arguments, _device(arguments))


def missing_inputs(baseline: Source) -> UsageError:
    """The error for functions without inputs, with an example that names the function's own parameters."""
    names = ", ".join(baseline.parameters.positional) if baseline.parameters else ""
    message = f"{baseline.title}:{baseline.name}({names}) needs inputs to be called with."
    return UsageError("NO_INPUTS", message, _example(baseline), [])


def _example(source: Source) -> str:
    names = (
        [name for name in source.parameters.positional if name in source.parameters.required]
        if source.parameters
        else []
    )
    example = ", ".join(f"{name}=randn(4096,64)" for name in names) or "x=randn(4096,64)"
    return f'Describe them: --inputs "{example}". Also randint(0,100,4096), rand(…), 3, True; see docs/functions.md.'


def write(chosen: Plan, folder: Path) -> Pair:
    """Write the pair and copies of the sources below the folder."""
    chapter = folder / "functions"
    chapter.mkdir(parents=True, exist_ok=True)
    spec = chapter / "baseline_pair.py"
    spec.write_text(_baseline_text(chosen, chapter), "utf-8")
    candidate = chosen.candidate
    path = chapter / f"optimized_pair{candidate.suffix}"
    text = candidate.text if candidate.suffix != ".py" else _candidate_text(chosen, chapter)
    path.write_text(text, "utf-8")
    return Pair(chosen.target, spec, chosen.variant, path)


def _baseline_text(chosen: Plan, chapter: Path) -> str:
    draws = _draws(chosen.arguments)
    sizes = inputs.sizes(chosen.arguments)
    changed = tuple(label for label, draw in draws.items() if draw.in_place)
    on_host = chosen.device == "" and any(draw.device == "cpu" for draw in draws.values())
    return _BASELINE.format(
        summary=f"{chosen.target} against {chosen.candidate.title}:{chosen.candidate.name}.",
        host=", Host" if on_host else "",
        load=_load(chosen.baseline, chapter, "baseline"),
        changed=f"    in_place = {changed!r}\n" if changed else "",
        sizes="".join(f"    {name} = {value!r}\n" for name, value in sizes.items()) + ("\n" if sizes else ""),
        draws="".join(f"            {label!r}: {_drawn(draw, on_host)},\n" for label, draw in draws.items()),
        names=", ".join(draws),
        passed=", ".join(_call(chosen.baseline, chosen.baseline, chosen.arguments)),
        is_copied=chosen.is_copied,
    )


def _drawn(draw: Draw, on_host: bool) -> str:
    return f"Host({draw.source})" if on_host and draw.device == "cpu" else draw.source


def _candidate_text(chosen: Plan, chapter: Path) -> str:
    source = chosen.candidate
    compiles = compilers(source.text)
    neighbours = {path.stem for path in source.path.parent.iterdir()} if source.path else set[str]()
    return _CANDIDATE.format(
        summary=f"{source.title}:{source.name}.{compiles}",
        requires=f"{DECLARED} = {requirements(source.text, neighbours)!r}",
        load=_load(source, chapter, "candidate"),
        names=", ".join(_draws(chosen.arguments)),
        passed=", ".join(_call(source, chosen.baseline, chosen.arguments)),
        is_copied=chosen.is_copied,
    )


def _load(source: Source, chapter: Path, role: str) -> str:
    """The expression that loads the function, from copies: a run preserves the code it measured, and sees no other
    folder.
    """
    copy = chapter / f"{role}_source" / (source.path.name if source.path else "source.py")
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(source.text, "utf-8")
    folders = [copy.parent, *filter(None, [source.root, source.path and source.path.parent])]
    if source.module and source.root is not None:
        package = source.root / source.module.partition(".")[0]
        if package.is_dir():
            shutil.copytree(
                package,
                copy.parent / package.name,
                ignore=shutil.ignore_patterns("__pycache__", ".*"),
                dirs_exist_ok=True,
            )
    elif source.path is not None:
        neighbours.copy(source.path, copy.parent)
    texts = tuple(str(folder) for folder in dict.fromkeys(folders))
    return f"function({str(copy)!r}, {source.name!r}, {texts!r}, {source.module!r})"


def _call(source: Source, baseline: Source, arguments: Sequence[Argument]) -> list[str]:
    """The arguments of a call of this function. Raises UsageError BAD_INPUTS.

    Names are those of the baseline's parameters, or of both functions; a candidate with other names gets them by
    position.
    """
    params = source.parameters
    sized = {name for name in inputs.sizes(arguments)}
    if params is None:
        return [argument.text for argument in arguments if argument.name not in sized]
    texts: list[str] = []
    given: set[str] = set()
    for index, argument in enumerate(_passed(arguments, baseline, sized)):
        name = argument.name
        if name is None or not _takes(source, name):
            name = _by_position(source, baseline, argument, index)
        given.add(name)
        texts.append(argument.text if argument.name is None else f"{name}={argument.text}")
    if absent := sorted(params.required - given, key=[*params.positional, *params.keyword].index):
        raise UsageError(
            "BAD_INPUTS", f"{source.title}:{source.name} also needs {', '.join(absent)}.", _example(source)
        )
    return texts


def _passed(arguments: Sequence[Argument], baseline: Source, sized: set[str]) -> list[Argument]:
    """The arguments without those that are only sizes in shapes."""
    known = baseline.parameters
    names = {*known.positional, *known.keyword} if known else set[str]()
    return [argument for argument in arguments if argument.name not in sized or argument.name in names]


def _takes(source: Source, name: str) -> bool:
    params = source.parameters
    return params is None or params.open or name in (*params.positional, *params.keyword)


def _by_position(source: Source, baseline: Source, argument: Argument, index: int) -> str:
    """The parameter of this function at the argument's position in the baseline. Raises UsageError."""
    params, first = source.parameters, baseline.parameters
    assert params is not None
    if argument.name is not None and first is not None and argument.name in first.positional:
        index = first.positional.index(argument.name)
    elif argument.name is not None:
        known = ", ".join((*params.positional, *params.keyword)) or "nothing"
        message = f"{source.title}:{source.name} takes no argument {argument.name!r}."
        raise UsageError("BAD_INPUTS", message, f"It takes {known}.")
    if index < len(params.positional):
        return params.positional[index]
    if params.open:
        return f"argument {index}"
    message = f"{source.title}:{source.name} takes {len(params.positional)} arguments by position."
    raise UsageError("BAD_INPUTS", message, _example(source))


def _draws(arguments: Sequence[Argument]) -> dict[str, Draw]:
    return {label: draw for argument in arguments for label, draw in argument.draws.items()}


def _device(arguments: Sequence[Argument]) -> str:
    """The device that all inputs require: cpu for arrays and lists; empty if the machine's own will do."""
    draws = list(_draws(arguments).values())
    host = [draw for draw in draws if draw.form in ("array", "list") or draw.device == "cpu"]
    cuda = [draw for draw in draws if draw.device == "cuda"]
    if cuda and any(draw.form in ("array", "list") for draw in draws):
        raise UsageError("BAD_INPUTS", "Arrays and lists are in host memory, not on cuda.", "Use torch.randn there.")
    if cuda:
        return "cuda"
    arrays = any(draw.form in ("array", "list") for draw in draws)
    return "cpu" if arrays or len(host) == len(draws) else ""
