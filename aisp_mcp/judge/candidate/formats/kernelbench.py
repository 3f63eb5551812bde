"""KernelBench: `Model` and `ModelNew` are modules, `get_inputs()` and `get_init_inputs()` make their arguments."""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import weakref
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from aisp_mcp.judge.candidate import adapted
from aisp_mcp.judge.candidate.adapted import Constants
from aisp_mcp.judge.candidate.formats import first_values
from aisp_mcp.judge.candidate.formats.first_values import NewModule, loaded, under_one_seed
from aisp_mcp.judge.candidate.seeding import handed_out, noted
from aisp_mcp.judge.protocol.messages import NEVER_RANDOM, STILL_RANDOM
from aisp_mcp.judge.protocol.module_loader import flatten, unusable

PROBLEM = "problem.py"
DRAWN = "drawn_in_forward"
TRAINING = "batch norms are in training mode, as constructed; --mode eval measures after eval()"  # a note
_DRAWS = 3  # calls that are compared; by chance, two may draw the same
_KEPT = 4  # modules with their own static tensors: the verifier's, in both precisions


class Reference(adapted.Reference):
    """The problem's Model, with the static tensors that the harness gives it.

    mode: "constructed" leaves modules in their initial mode, "no_dropout" ends the training mode of dropout layers
    only, "eval" that of the whole module. drawn: tensors that forward() draws are inputs. given: values of parameters
    of get_inputs and Model. alike: modules are made under one seed, so that what they draw and do not register is the
    same everywhere. random: calls are in the initial mode, which is why there is another one.
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
        random: bool = False,
    ) -> None:
        super().__init__(folder, arguments)
        self.given, self.random = given or {}, random
        self.mode, self.drawn, self.alike, self._first = mode, drawn, alike, mode
        self._has_tables: bool | None = None  # until a module is made
        self._normalises_in_training = False
        self.problem = _problem_module(folder / PROBLEM, constants)
        # With the name of a tensor, and the tensor or its type and device, which tell their parameters.
        self._modules: list[tuple[str, Any, tuple[Any, Any], Any]] = []
        self._pattern = self._made_alike() if alike else None

    def draw(self) -> Any:
        """Positional arguments of forward, and a dict of the tensors that it draws itself, if these are inputs."""
        import torch

        arguments = _arguments_of(self.problem, self.given)
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

        own = partial(_accepted, self.problem.Model, self.given)
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
        self.random = self.mode != self._first
        chosen = {"alike": self.alike, "drawn": self.drawn, "random": self.random}
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
        notes = notes if what and self.random else []
        if self._normalises_in_training:
            notes.append(TRAINING)
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


def _problem_module(path: Path, constants: Mapping[str, Any] | None) -> Any:
    """The problem's module. Raises BenchmarkError NO_CONSTANT, which names its parameters, too."""
    try:
        return adapted.load(path, "kernelbench_problem", constants)
    except Exception as error:
        is_unknown = getattr(error, "code", "") == "NO_CONSTANT"  # and not what the file itself raises
        names = parameters(ast.parse(path.read_text("utf-8"))) if is_unknown else ()
        if not names:
            raise
        hint = f"{getattr(error, 'hint', '')} Its functions have the parameters {', '.join(sorted(names))}."
        raise unusable("NO_CONSTANT", str(error), hint) from error


def parameters(tree: ast.Module) -> frozenset[str]:
    """Parameters of get_inputs, and of Model if the file does not say what it is made with."""
    names = {"get_inputs"} if "get_init_inputs" in adapted.defined(tree) else {"get_inputs", "__init__"}
    model = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    functions = [
        node for node in itertools.chain(tree.body, *model) if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    return frozenset(
        each.arg
        for function in functions
        for each in (*function.args.args, *function.args.kwonlyargs)
        if each.arg != "self"
    )


def _arguments_of(problem: Any, given: Mapping[str, Any]) -> list[Any]:
    """Arguments of a call, made by the problem's own code."""
    if hasattr(problem, "get_inputs"):
        return list(problem.get_inputs(**_accepted(problem.get_inputs, given)))
    return list(problem.get_input_groups()[0])


def _accepted(function: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are parameters of the function."""
    return {name: value for name, value in given.items() if name in inspect.signature(function).parameters}


def _called(module: Any, arguments: list[Any], drawn: bool, **more: Any) -> Any:
    """Call the module. drawn: the last argument is what its forward() draws."""
    if not drawn:
        return module(*arguments, **more)
    with handed_out([*arguments[-1].values()]):
        return module(*arguments[:-1], **more)


class Candidate:
    """ModelNew, or a solution's Model: made with the problem's arguments, given the harness's parameters by name.

    kind: the class, or its name in the file. function: instead, one that the problem's Model is to call as `fn`.
    random: the problem's calls as constructed are, and `mode` is the first in which they are not.
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
        random: bool = False,
    ) -> None:
        self.reference = Reference(folder, constants, arguments, mode, drawn, given)
        self._arguments, self._drawn, self._alike, self._random = arguments, drawn, alike, random
        own: Any = function or kind
        own = _loaded(folder, file, own, constants or {}) if isinstance(own, str) else own
        self.kind = self.reference.problem.Model if function else own
        self._more = {"fn": own} if function else {}

    def prepare(self, params: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
        """Make the module, which replaces its parameters. Raises BenchmarkError OTHER_RANDOMNESS."""
        if self._random:
            self._refuse_other_randomness(params, example)
        return {"module": self._made(params, example)}

    def _made(self, params: dict[str, Any], example: dict[str, Any]) -> Any:
        device = str(next(iter({**example, **params}.values())).device)
        baseline, own = (partial(self.reference.make, kind) for kind in (self.reference.problem.Model, self.kind))
        new = first_values.make(baseline, own, params, device, self.kind, self._alike)
        return loaded(new, params, {**example, **params} or example)

    def _refuse_other_randomness(self, params: dict[str, Any], example: dict[str, Any]) -> None:
        """Refuse a module that never varies as constructed, where the problem's does, or that varies in the mode that
        is judged, where the problem's does not: it is right in evaluation mode at most, for which the user can ask.
        """
        judged = self.reference.mode
        if self._varies(params, example):
            raise unusable("OTHER_RANDOMNESS", f"{STILL_RANDOM}: mode {judged}")
        self.reference.mode = "constructed"
        try:
            varies = self._varies(params, example)
        finally:
            self.reference.mode = judged
        if not varies:
            raise unusable("OTHER_RANDOMNESS", f"{NEVER_RANDOM}: mode {judged}")

    def _varies(self, params: dict[str, Any], example: dict[str, Any]) -> bool:
        """Return True if calls of a new module on equal inputs differ."""
        import torch

        module, outputs = self._made(params, example), list[list[Any]]()
        for seed in range(_DRAWS):
            torch.manual_seed(seed)
            inputs = {name: tensor.clone() for name, tensor in example.items()}
            outputs.append([tensor.clone() for _, tensor in flatten(self.run(module, **inputs))])
        first = outputs[0]
        pairs = (pair for each in outputs[1:] for pair in zip(first, each, strict=True))
        return not all(torch.allclose(one, other, equal_nan=True) for one, other in pairs)

    def run(self, module: Any, **tensors: Any) -> Any:
        import torch

        with torch.no_grad():
            return _called(module, adapted.build(self._arguments, tensors), self._drawn, **self._more)


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
