"""Write two functions and a line of inputs as a pair of benchmark files that the judge can measure."""

from __future__ import annotations

import ast
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.candidate_needs import DECLARED, compilers, requirements
from aisp_mcp.judge.functions import inputs, makers, neighbours, sources
from aisp_mcp.judge.functions.inputs import Argument
from aisp_mcp.judge.functions.makers import Draw
from aisp_mcp.judge.functions.sources import Source
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.protocol.values import MADE_N

HOST = ("array", "list", "value")  # forms of inputs in host memory
OWN = "own"  # folder of the user's generator and checker
CONVERSIONS = ("as_array", "as_list", "as_value")
_BASELINE = '''"""{summary}"""

import torch

from aisp_mcp.bench import {api}
from aisp_mcp.judge.candidate.calling import {calling}

_function = {load}


def _arguments({names}):
    return {arguments}


_steps = {steps}(_arguments, _function, {is_copied})


class Pair(Benchmark):
{answers}{changed}{sizes}    def inputs(self, rng):
{verifier}        return {{
{draws}        }}

    def run(self, {names}):
        return {returned}

    run.steps = _steps
'''
_CANDIDATE = '''"""{summary}"""

from aisp_mcp.judge.candidate.calling import {calling}

{requires}
_function = {load}


def _arguments({names}):
    return {arguments}


_steps = {steps}(_arguments, _function, {is_copied})


def run({names}):
    return {returned}


run.steps = _steps
'''


@dataclass(frozen=True)
class Request:
    """Two functions, as sources.read() takes them, and the inputs of both, as inputs.read() takes them.

    sizes: other values for numbers that the inputs name. name: of the target, if its user gave one. make, check:
    `file.py:function` of a generator of arguments and of a checker of answers. rtol, atol: for floats in answers.
    grows: larger sizes may be tried where calls are too short to time.
    """

    baseline: str
    candidate: str
    inputs: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    make: str | None = None
    check: str | None = None
    rtol: float | None = None
    atol: float | None = None
    grows: bool = True

    @property
    def has_values(self) -> bool:
        """Return True if answers are judged as Python values."""
        return any(item is not None for item in (self.make, self.check, self.rtol, self.atol))


@dataclass(frozen=True)
class Plan:
    """A pair that can be written. device: the one that the inputs require, or empty for the machine's. make, check: the
    user's own, which no candidate sees. has_values: as in Request, or an input is a Python value. rtol, atol: as there.
    """

    baseline: Source
    candidate: Source
    arguments: Sequence[Argument]
    device: str
    make: Source | None = None
    check: Source | None = None
    has_values: bool = False
    rtol: float | None = None
    atol: float | None = None

    @property
    def target(self) -> str:
        return f"{self.baseline.title}:{self.baseline.name or 'run'}"

    @property
    def variant(self) -> str:
        name, title = self.candidate.name, self.candidate.title
        return title if name == self.baseline.name or not name else name

    @property
    def fixed(self) -> list[str]:
        """Inputs that have the same values in every call."""
        return [label for label, draw in _draws(self.arguments).items() if draw.fixed]

    @property
    def chosen_by_candidate(self) -> str:
        """The library of the inputs if the candidate's file decides it, and not as the baseline's alone would."""
        chosen = library(self.baseline, self.candidate)
        return "" if chosen == library(self.baseline, self.baseline) else chosen

    @property
    def is_copied(self) -> bool:
        """Return True if an argument is no view of its input."""
        return any(draw.form in ("list", "number", "value") for draw in _draws(self.arguments).values())

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
    if not request.inputs.strip() and not request.make and baseline.parameters and baseline.parameters.required:
        raise missing_inputs(baseline)
    if request.make:
        arguments = _made(request)
    else:
        arguments = inputs.read(request.inputs, library(baseline, candidate), request.sizes)
    return with_arguments(request, baseline, candidate, arguments)


def library(baseline: Source, candidate: Source) -> Literal["torch", "numpy"]:
    """Whose makers the inputs name without a prefix: the baseline's library, or the candidate's if it has none. Where
    neither has one, loops take elements of arrays, which are numbers; what has no loop calls methods of tensors.
    """
    return baseline.library or candidate.library or ("numpy" if baseline.has_loop else "torch")


def with_arguments(request: Request, baseline: Source, candidate: Source, arguments: Sequence[Argument]) -> Plan:
    """The plan of the request's two functions, called with these arguments. Raises UsageError BAD_INPUTS, NO_INPUTS."""
    own = {name: _own(name, spec) for name, spec in (("make", request.make), ("check", request.check)) if spec}
    for source in () if request.make else (baseline, candidate):
        _call(source, baseline, arguments)  # raises if they do not match
    if not _draws(arguments):
        message = "No input is random: without new inputs, a candidate could return a cached answer."
        raise UsageError("NO_INPUTS", message, _random_example(arguments) or _example(baseline))
    # What a graph or a text leads to often has other keys or another length, and no tensor shows its arithmetic.
    has_values = request.has_values or any(draw.form == "value" for draw in _draws(arguments).values())
    if has_values and candidate.suffix != ".py":
        raise UsageError("BAD_CANDIDATE", f"{candidate.title} is compiled, and gets tensors alone.", "Use --inputs.")
    device = "cpu" if has_values else _device(arguments)
    return Plan(
        baseline,
        candidate,
        arguments,
        device,
        make=own.get("make"),
        check=own.get("check"),
        has_values=has_values,
        rtol=request.rtol,
        atol=request.atol,
    )


def _own(option: str, spec: str) -> Source:
    """The user's generator or checker. Raises NotFound NO_FUNCTION, UsageError AMBIGUOUS_FUNCTION."""
    source = sources.one(spec)
    if source.suffix != ".py" or source.path is None:
        raise UsageError(
            "BAD_OWN_FILE", f"--{option} names a function of a Python file.", f"Such as {option}.py:{option}."
        )
    return source


def _made(request: Request) -> list[Argument]:
    """The size that a generator gets, and what it makes. Raises UsageError BAD_INPUTS."""
    given = inputs.read(request.inputs, "torch", request.sizes) if request.inputs.strip() else []
    if any(argument.name != "n" or not isinstance(argument.number, int) for argument in given) or len(given) > 1:
        raise UsageError(
            "BAD_INPUTS", "With --make, the inputs are what it makes; only n is left.", '--inputs "n=1000"'
        )
    n = given[0] if given else Argument("n", str(MADE_N), {}, request.sizes.get("n", MADE_N))
    assert n.number is not None
    draw = Draw("made.call({make}, rng.seed(), self.n)", "value", (makers.Number(n.number, "self.n"),))
    return [n, Argument(None, "made", {"made": draw})]


# By Python's type of an argument: what draws such values.
MAKERS = {str: "text(8)", int: "randint(0, 1000)", float: "uniform(0, 1)", list: "list(rand(1000))"}


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
    form = MAKERS[list] if source.library is None else "randn(4096,64)"
    annotated = source.parameters.annotations if source.parameters else {}
    by_type = {kind.__name__: maker for kind, maker in MAKERS.items()}
    example = ", ".join(f"{name}={by_type.get(annotated.get(name, ''), form)}" for name in names or ["x"])
    others = "randn(4096,64) for tensors" if source.library is None else "randint(0,100,4096), rand(…)"
    return f'Describe them: --inputs "{example}". Also {others}, 3, True; see docs/functions.md.'


def _random_example(arguments: Sequence[Argument]) -> str:
    """The hint with a maker in place of each constant of the arguments, by its kind."""
    shown = []
    for argument in arguments:
        try:
            value = ast.literal_eval(argument.text)
        except (ValueError, SyntaxError):  # a name of a size
            value = argument.number
        maker = MAKERS.get(type(value), argument.text)
        shown.append(f"{argument.name}={maker}" if argument.name else maker)
    if not shown:
        return ""
    return f'Draw them anew: --inputs "{", ".join(shown)}"; or write a generator, --make gen.py:make.'


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
    own = {
        role: _own_copy(source, chapter.parent / OWN)
        for role, source in (("make", chosen.make), ("check", chosen.check))
        if source
    }
    values = [label for label, draw in draws.items() if draw.form == "value"]
    on_host = chosen.device == "" and any(draw.device == "cpu" for draw in draws.values())
    return _BASELINE.format(
        summary=f"{chosen.target}.",  # no candidate: its inputs depend on this text
        api=", ".join(["Answers", "Benchmark"] if chosen.has_values else ["Benchmark", *(["Host"] if on_host else [])]),
        answers=_answers_text(chosen, own.get("check")),
        verifier="        from aisp_mcp.judge.verifier.inputs import made\n\n" if values else "",
        load=_load(chosen.baseline, chapter, "baseline"),
        changed=f"    in_place = {changed!r}\n" if changed else "",
        sizes="".join(f"    {name} = {value!r}\n" for name, value in sizes.items()) + ("\n" if sizes else ""),
        draws="".join(
            f"            {label!r}: {_drawn(label, draw, on_host, own.get('make', ''))},\n"
            for label, draw in draws.items()
        ),
        **_calls(chosen, chosen.baseline),
    )


def _calls(chosen: Plan, source: Source) -> dict[str, object]:
    """The parts of a program that call the user's function."""
    draws = _draws(chosen.arguments)
    names = ", ".join(draws)
    passed = "" if chosen.make else ", ".join(_call(source, chosen.baseline, chosen.arguments))
    steps = "ValueSteps" if chosen.has_values else "Steps"
    converted = sorted({name for name in CONVERSIONS if f"{name}(" in passed})
    uses = {"function", steps, *(["answered"] if chosen.has_values else ["tensors", "in_default_type"]), *converted}
    uses.add("made_arguments" if chosen.make else "arguments")
    given = ", ".join(f"{name}={name}" for name in draws)
    return {
        "calling": ", ".join(sorted(uses, key=lambda name: (name.islower(), name))),
        "names": names,
        "arguments": "made_arguments(made)" if chosen.make else f"arguments({passed})",
        "steps": steps,
        "is_copied": chosen.is_copied,
        "returned": f"answered(_steps, {given})"
        if chosen.has_values
        else f"tensors(in_default_type(_function)({passed}))",
    }


def _answers_text(chosen: Plan, check: str | None) -> str:
    """How answers are judged, as an attribute of the specification."""
    if not chosen.has_values:
        return ""
    parts = [f"check={check}"] if check else []
    parts += [
        f"{name}={value!r}" for name, value in (("rtol", chosen.rtol), ("atol", chosen.atol)) if value is not None
    ]
    return f"    answers = Answers({', '.join(parts)})\n"


def _own_copy(source: Source, folder: Path) -> str:
    """A copy of the user's generator or checker with what it imports, as (file, function) in a program."""
    assert source.path is not None
    copy = folder / source.path.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(source.text, "utf-8")
    neighbours.copy(source.path, copy.parent)
    return repr((str(copy), source.name))


def hidden(chosen: Plan, folder: Path) -> tuple[Path, ...]:
    """What no candidate may read: the user's generator and checker, and their copies."""
    own = [source.path for source in (chosen.make, chosen.check) if source and source.path]
    return (folder / OWN, *own) if own else ()


def _drawn(label: str, draw: Draw, on_host: bool, make: str) -> str:
    if draw.form == "value":
        return f"made.frame({label!r}, {draw.source.replace('{make}', make[1:-1])})"
    return f"Host({draw.source})" if on_host and draw.device == "cpu" else draw.source


def _candidate_text(chosen: Plan, chapter: Path) -> str:
    source = chosen.candidate
    compiles = compilers(source.text)
    own_modules = {path.stem for path in source.path.parent.iterdir()} if source.path else set[str]()
    return _CANDIDATE.format(
        summary=f"{source.title}:{source.name}.{compiles}",
        requires=f"{DECLARED} = {requirements(source.text, own_modules)!r}",
        load=_load(source, chapter, "candidate"),
        **_calls(chosen, source),
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
    host = [draw for draw in draws if draw.form in HOST or draw.device == "cpu"]
    cuda = [draw for draw in draws if draw.device == "cuda"]
    if cuda and any(draw.form in HOST for draw in draws):
        raise UsageError("BAD_INPUTS", "Arrays and lists are in host memory, not on cuda.", "Use torch.randn there.")
    if cuda:
        return "cuda"
    arrays = any(draw.form in HOST for draw in draws)
    return "cpu" if arrays or len(host) == len(draws) else ""
