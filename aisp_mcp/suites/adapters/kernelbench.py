"""KernelBench: `Model` and `ModelNew` are modules, `get_inputs()` and `get_init_inputs()` make their arguments.

Field names: ScalingIntelligence/KernelBench, README. A problem is a file that defines Model and get_inputs; a candidate
is a file that defines ModelNew, or a class ModelNew in the problem's own file. In the layout of KernelBench-Hard the
problem is reference.py, its sizes are the rows of shapes.py, and a solution defines Model itself. A candidate's own
get_inputs is never called.
"""

from __future__ import annotations

import ast
import copy
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate import adapted
from aisp_mcp.judge.candidate.seeding import handed_out, noted
from aisp_mcp.suites.adapters import base
from aisp_mcp.suites.adapters.base import Constants, Problem
from aisp_mcp.suites.adapters.torch_modules import first_values, rules, sizes
from aisp_mcp.suites.adapters.torch_modules.first_values import NewModule, loaded, under_one_seed
from aisp_mcp.suites.adapters.torch_modules.sizes import PROBLEM
from aisp_mcp.suites.adapters.torch_modules.slicing import needed_by

NAME = "kernelbench"
DRAWN = "drawn_in_forward"
_KEPT = 4  # modules with their own static tensors: the verifier's, in both precisions


def find(path: Path, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """The problems of a file or folder, with candidates that are named, or found in these files or next to them.

    Raises BenchmarkError NO_MODEL_NEW for a candidate without a model, AMBIGUOUS for a file with two readings.
    """
    trees = {file: base.parse(file) for file in base.python_files(path)}
    problems = {file: tree for file, tree in trees.items() if sizes.is_problem(tree)}
    if problems and all(map(sizes.is_backward, problems.values())):
        sizes.refuse_backward(next(iter(problems)))
    problems = {file: tree for file, tree in problems.items() if not sizes.is_backward(tree)}
    reference = next((file for file in problems if file.stem == "reference"), None)
    if reference is not None:  # with this file, the folder is one problem, and solutions define Model as it does
        near = [file for file, tree in trees.items() if file.stem.startswith("solution")]
        return _of_shapes(reference, problems[reference], list(candidates) or near, constants)
    near = [file for file, tree in trees.items() if "ModelNew" in base.defined(tree)]
    if not candidates:
        _refuse_ambiguous([file for file in near if file in problems], list(problems))
    owned = base.owned([file.stem for file in problems], list(candidates) or [f for f in near if f not in problems])
    return [
        each
        for file, tree in problems.items()
        for each in _of_configurations(Found(file, tree, owned[file.stem], own=not candidates), constants)
    ]


def _of_configurations(parts: Found, constants: Constants) -> list[Problem]:
    """One problem per set of values for its parameters, named after its folder if a file there gives them."""
    rows = sizes.configurations(parts.file)
    name = base.identifier(parts.file.resolve().parent.name if rows[0] else parts.file.stem)
    names = [name if len(rows) == 1 else f"{name}_{at}" for at in range(len(rows))]
    return [problem(replace(parts, given=row), each, constants) for each, row in zip(names, rows, strict=True)]


def _refuse_ambiguous(both: Sequence[Path], problems: Sequence[Path]) -> None:
    """Refuse a file with Model, ModelNew and get_inputs next to the problem whose name begins its own. Raises
    AMBIGUOUS.
    """
    for file in both:
        for other in problems:
            if other != file and file.stem.startswith(other.stem):
                raise BenchmarkError(
                    "AMBIGUOUS",
                    f"{file.name} can be read as a candidate of {other.name} (by its ModelNew), or as a separate "
                    "problem with its own candidate (by its Model, get_inputs and ModelNew).",
                    f"Name it as the candidate of {other.name}, or give {file.name} alone as the path.",
                )


@dataclass(frozen=True)
class Found:
    """A problem's file and the files of its candidates.

    own: include the file's own ModelNew. shaped: the layout is reference.py and solution.py, in which a solution's
    class is called Model. given: values of parameters of get_inputs and Model.
    """

    file: Path
    tree: Any
    candidates: Sequence[Path]
    own: bool = True
    shaped: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)


def problem(parts: Found, name: str, constants: Constants) -> Problem:
    """The problem of a file. Only the parts that Model and its inputs need are executed as the baseline."""
    names = ("Model", "get_inputs", "get_input_groups", "get_init_inputs")
    text, disclosed = base.read_text(parts.file), list[str]()
    files, candidates = {PROBLEM: text}, {}
    settings = _settings(parts, constants)
    if "get_inputs" not in base.defined(parts.tree):
        cases, sentence = sizes.case(parts.file, settings["constants"].pop(sizes.GROUP, None))
        files |= cases
        disclosed.append(sentence)
    if "ModelNew" in base.defined(parts.tree):
        files[PROBLEM], reached = needed_by(parts.tree, names)
        if "ModelNew" in reached:
            raise BenchmarkError(
                "AMBIGUOUS", f"In {parts.file.name}, Model uses ModelNew: the baseline is not separate."
            )
        if parts.own:
            files["own.py"], candidates["own"] = text, {"file": "own.py", "kind": "ModelNew", **settings}
            disclosed.append(f"baseline and candidate were taken from the same file, {parts.file.name}")
    for candidate in parts.candidates:
        variant = base.variant(candidate.stem, parts.file.stem)
        beside = base.sidecars(candidate, parts.file)
        path = f"{variant}/{candidate.name}" if beside else f"{variant}.py"
        files[path] = base.read_text(candidate)
        files |= {f"{variant}/{name}": text for name, text in beside.items()}
        candidates[variant] = {"file": path, **_entry(candidate, parts), **settings}
        disclosed += [f"{candidate.name} is judged with the files that it names: {', '.join(beside)}"] if beside else []
    summary = base.first_line(parts.tree, f"KernelBench problem {parts.file.stem}.")
    return Problem(NAME, name, summary, files, settings, candidates, disclosed=tuple(disclosed))


def _settings(parts: Found, constants: Constants) -> dict[str, Any]:
    """Keyword arguments of Reference. Values of parameters are not those of names at the top level."""
    named = sizes.parameters(parts.tree) - adapted.assigned(parts.tree).keys()
    given = {**parts.given, **{name: value for name, value in constants.items() if name in named}}
    settings: dict[str, Any] = {"constants": {name: value for name, value in constants.items() if name not in named}}
    return settings | ({"given": given} if given else {}) | ({"mode": "eval"} if parts.shaped else {})


def _entry(candidate: Path, parts: Found) -> dict[str, str]:
    """Name of the candidate's class, or of the function that it replaces, as an argument of Candidate. Raises
    BenchmarkError NOT_PYTHON, NO_MODEL_NEW or AMBIGUOUS.
    """
    tree = base.parse_candidate(candidate)
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    names = base.defined(tree)
    if parts.shaped and {"Model", "ModelNew"} <= classes:
        raise BenchmarkError(
            "AMBIGUOUS",
            f"{candidate.name} defines two classes: Model, which a solution.py is judged by, and ModelNew, which a "
            "KernelBench candidate is.",
            "Rename the class that is not to be judged.",
        )
    entries = {"ModelNew": "kind", "Model": "kind"}
    if replaced := sizes.function(parts.tree):
        entries[replaced] = "function"
    if name := next((name for name in entries if name in names), None):
        return {entries[name]: name}
    message = f"{candidate.name} defines {' and '.join(f'no {name}' for name in entries)}."
    raise BenchmarkError("NO_MODEL_NEW", message, "See docs/adapters.md.")


def _of_shapes(file: Path, tree: Any, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """One problem per row of SHAPES in shapes.py, or a single one; the tolerance is that of problem.yaml."""
    shapes = sizes.shapes_of(file.with_name("shapes.py"), tree)
    rows = list({str(row): row for row in ({**shape, **constants} for shape in shapes)}.values())
    name, parts = base.identifier(file.resolve().parent.name), Found(file, tree, candidates, shaped=bool(shapes[0]))
    allowed, forbidden = rules.read(file.with_name("problem.yaml"))
    names = [name if len(rows) == 1 else f"{name}_{at}" for at in range(len(rows))]
    problems = [problem(parts, each, row) for each, row in zip(names, rows, strict=True)]
    return [replace(each, tolerance=allowed, forbidden=forbidden) for each in problems]


class Reference(adapted.Reference):
    """The problem's Model, with the static tensors that the harness gives it.

    mode: "constructed" leaves modules in their initial mode, "no_dropout" ends the training mode of dropout layers
    only, "eval" that of the whole module. drawn: tensors that forward() draws are inputs. given: values of parameters
    of get_inputs and Model. alike: modules are made under one seed, so that what they draw and do not register is the
    same everywhere.
    """

    def __init__(
        self,
        folder: Path,
        constants: Constants | None = None,
        arguments: Any = None,
        mode: str = "constructed",
        drawn: bool = False,
        given: Mapping[str, Any] | None = None,
        alike: bool = False,
    ) -> None:
        super().__init__(folder, arguments)
        self.given = given or {}
        self.mode, self.drawn, self.alike, self._first = mode, drawn, alike, mode
        self._has_tables: bool | None = None  # until a module is made
        self._normalises_in_training = False
        self.problem = sizes.load(folder / PROBLEM, constants)
        # With the name of a tensor, and the tensor or its type and device, which tell their parameters.
        self._modules: list[tuple[str, Any, tuple[Any, Any], Any]] = []
        self._pattern = self._made_alike() if alike else None

    def draw(self) -> Any:
        """Positional arguments of forward, and a dict of the tensors that it draws itself, if these are inputs."""
        import torch

        arguments = sizes.drawn(self.problem, self.given)
        if not self.drawn:
            return arguments
        with torch.no_grad(), noted() as draws:
            module = self.make(self.problem.Model)
            draws.clear()  # what the module draws when it is made is not drawn in a call
            module(*arguments)
        return [*arguments, {str(at): tensor for at, tensor in enumerate(draws)}]

    def named(self, arguments: Any, tensors: dict[str, Any]) -> Any:
        """Name tensors after forward's parameters, if they have names."""
        known = [
            name
            for name, parameter in inspect.signature(self.problem.Model.forward).parameters.items()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ][1:]
        names = known + [f"input_{at}" for at in range(len(known), len(arguments))]
        names[len(arguments) - 1 :] = [DRAWN] if self.drawn else names[len(arguments) - 1 :]
        return [adapted.dissect(value, name, tensors) for name, value in zip(names, arguments, strict=False)]

    def make(self, kind: Any) -> Any:
        """Make a module of the class with the problem's arguments, in this object's mode."""
        import torch

        own = partial(sizes.accepted, self.problem.Model, self.given)
        arguments: Any = getattr(self.problem, "get_init_inputs", own)()
        module = kind(**arguments) if isinstance(arguments, dict) else kind(*arguments)
        if self.mode == "eval":
            return module.eval()
        for layer in module.modules() if self.mode == "no_dropout" else ():
            if isinstance(layer, torch.nn.modules.dropout._DropoutNd):
                layer.eval()
        return module

    def settle(self) -> dict[str, Any] | None:
        """Make modules alike, then end the training mode of dropout layers, then of the whole module, so that calls can
        be repeated. If none of these is enough, begin again with the tensors that forward() draws as inputs.
        """
        modes = ("constructed", "no_dropout", "eval")
        if not self.alike and self.mode == self._first and not self.drawn:
            self.alike = True
        elif self.mode != modes[-1]:
            self.mode, self.alike = modes[modes.index(self.mode) + 1], False
        elif not self.drawn:
            self.mode, self.drawn, self.alike = self._first, True, False
        else:
            return None
        self._modules, self._pattern = [], self._made_alike() if self.alike else None
        self._inputs.cache_clear()
        chosen = {"alike": self.alike, "drawn": self.drawn}
        return {"mode": self.mode, **{name: value for name, value in chosen.items() if value}}

    def _made_alike(self) -> Any:
        """The module to copy: made in float64, it would draw other numbers."""
        import torch

        device, make = "cuda" if torch.cuda.is_available() else "cpu", partial(self.make, self.problem.Model)
        return adapted.on_device(lambda: under_one_seed(make, device), device)

    def notes(self) -> tuple[str, ...]:
        """Disclose modes that change the outputs or that the problem does not set itself, and inputs that it draws."""
        what = {"no_dropout": "dropout layers are", "eval": "the module is"}.get(self.mode)
        notes = [f"{what} in evaluation mode, because calls in training mode are random"]
        notes = notes if what and self.mode != self._first else []
        if self._normalises_in_training:
            notes.append(base.TRAINING)
        if self.alike:
            notes.append("tensors that the module draws when it is made, and does not register, are always the same")
        if self.drawn:
            notes.append(
                "tensors that forward() draws with torch.randn or torch.rand are inputs; a candidate gets them where "
                "it draws tensors of the same shapes in the same order"
            )
        return tuple(notes)

    def state(self) -> dict[str, Any]:
        """Parameters and buffers, named as in the module's state_dict."""
        return dict(self.make(self.problem.Model).state_dict())

    def learnt(self) -> frozenset[str]:
        """Parameters, and the running statistics that norms in evaluation mode use; other buffers are not learnt."""
        module = self.make(self.problem.Model)
        statistics = {
            f"{path}.{name}".removeprefix(".")
            for path, layer in module.named_modules()
            for name in ("running_mean", "running_var")
            if not layer.training and getattr(layer, name, None) is not None
        }
        return frozenset(statistics).union(name for name, _ in module.named_parameters())

    def run(self, **tensors: Any) -> Any:
        """Call Model with these inputs and static tensors."""
        import torch

        with torch.no_grad():
            return _called(self._module(tensors), adapted.build(self.arguments, tensors), self.drawn)

    def _module(self, tensors: Mapping[str, Any]) -> Any:
        """The module of these static tensors, made only once, because they stay the same objects."""
        for name, earlier, kind, module in self._modules:  # every call of the baseline pays for this
            first = tensors[name]
            if (earlier and earlier() is first) or (earlier is None and kind == (first.dtype, first.device)):
                return module
        static = {name: tensor for name, tensor in tensors.items() if name not in self._inputs()}
        name, first = next(iter((static or tensors).items()))
        with adapted.unwatched() if self._has_tables is False else nullcontext():
            made = (
                copy.deepcopy(self._pattern)
                if self._pattern is not None
                else adapted.on_device(lambda: self.make(self.problem.Model), str(first.device))
            )
            module = loaded(NewModule(made), static, tensors)
        self._has_tables = adapted.has_tables(module)
        self._normalises_in_training = any(
            layer.training and getattr(layer, "running_var", None) is not None for layer in module.modules()
        )
        kept = weakref.ref(first, self._forget) if static else None  # an input may have gigabytes
        self._modules = [*self._modules, (name, kept, (first.dtype, first.device), module)][-_KEPT:]
        return module

    def _forget(self, first: Any) -> None:
        """Drop the module of static tensors that are gone; it has copies of them."""
        self._modules = [entry for entry in self._modules if entry[1] is not first]

    @lru_cache(maxsize=1)  # noqa: B019 (one reference lives as long as its process)
    def _inputs(self) -> frozenset[str]:
        return frozenset(adapted.slots(self.arguments))


def _called(module: Any, arguments: list[Any], drawn: bool, **more: Any) -> Any:
    """Call the module. drawn: the last argument is what its forward() draws."""
    if not drawn:
        return module(*arguments, **more)
    with handed_out([*arguments[-1].values()]):
        return module(*arguments[:-1], **more)


def _loaded(folder: Path, file: str, name: str, constants: Constants) -> Any:
    """The class or function of that name in a candidate's file."""
    taken_over = _copied(folder / file, folder / PROBLEM, constants)
    return getattr(adapted.load(folder / file, "kernelbench_candidate", taken_over), name)


def _copied(candidate: Path, problem: Path, constants: Constants) -> dict[str, Any]:
    """The constants that a candidate's file has copied from the problem: changed sizes apply there as well."""
    files = [ast.parse(file.read_text("utf-8")) if constants else ast.Module([], []) for file in (candidate, problem)]
    own, given = map(adapted.assigned, files)
    same = {name for name in own.keys() & given.keys() if ast.dump(own[name]) == ast.dump(given[name])}
    return {name: value for name, value in constants.items() if name in same}


class Candidate:
    """ModelNew, or a solution's Model: made with the problem's arguments, given the harness's parameters by name.

    kind: the class, or its name in the file. function: instead, one that the problem's Model is to call as `fn`.
    """

    def __init__(
        self,
        folder: Path,
        file: str = "",
        arguments: Any = None,
        constants: Constants | None = None,
        kind: str | type = "ModelNew",
        mode: str = "constructed",
        drawn: bool = False,
        given: Mapping[str, Any] | None = None,
        alike: bool = False,
        function: str | Callable[..., Any] | None = None,
    ) -> None:
        self.reference = Reference(folder, constants, arguments, mode, drawn, given)
        self._arguments, self._drawn, self._alike = arguments, drawn, alike
        own: Any = function or kind
        own = _loaded(folder, file, own, constants or {}) if isinstance(own, str) else own
        self.kind = self.reference.problem.Model if function else own
        self._more = {"fn": own} if function else {}

    def prepare(self, params: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
        """Make the module, which replaces its parameters."""
        device = str(next(iter({**example, **params}.values())).device)
        baseline, own = (partial(self.reference.make, kind) for kind in (self.reference.problem.Model, self.kind))
        new = first_values.make(baseline, own, params, device, self.kind, self._alike)
        return {"module": loaded(new, params, {**example, **params} or example)}

    def run(self, module: Any, **tensors: Any) -> Any:
        """Call the module with these inputs."""
        import torch

        with torch.no_grad():
            return _called(module, adapted.build(self._arguments, tensors), self._drawn, **self._more)
