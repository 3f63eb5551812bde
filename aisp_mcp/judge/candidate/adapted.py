"""The part of an adapted problem that runs: in the recorder, the verifier and the workers, never in the server.

A generated specification contains a `Reference` of its format, a generated candidate a `Candidate`. Both get the
structure of the call's arguments, in which a `Slot` stands for each tensor that the harness provides by name.
"""

from __future__ import annotations

import ast
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from aisp_mcp.judge.candidate.seeding import seeded
from aisp_mcp.judge.protocol.module_loader import unusable

_SIMPLE = (int, float, bool, str, type(None))
_SEED_LIMIT = 1 << 62
T = TypeVar("T")
Constants = Mapping[str, int | float | list[int | float]]  # sizes to change, by name


class Slot:
    """Stands for one tensor among the arguments. array: the program expects a numpy array."""

    def __init__(self, name: str, array: bool = False) -> None:
        self.name, self.array = name, array

    def __repr__(self) -> str:
        return f"Slot({self.name!r}, array=True)" if self.array else f"Slot({self.name!r})"

    def take(self, tensors: Mapping[str, Any]) -> Any:
        """The tensor of that name, as the program expects it."""
        return tensors[self.name].numpy() if self.array else tensors[self.name]


class Buffer:
    """Stands for memory for an output among the arguments: new for every call, and not an input."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype = tuple(shape), dtype

    def __repr__(self) -> str:
        return f"Buffer({self.shape!r}, {self.dtype!r})"

    def make(self, tensors: Mapping[str, Any]) -> Any:
        """Memory on the device of the tensors; in float64 if the reference is computed in float64."""
        import torch

        return torch.empty(self.shape, dtype=self.kind(tensors), device=next(iter(tensors.values())).device)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def kind(self, tensors: Mapping[str, Any]) -> Any:
        """Its dtype among these tensors."""
        import torch

        dtype = getattr(torch, self.dtype)
        wide = dtype.is_floating_point and any(tensor.dtype == torch.float64 for tensor in tensors.values())
        return torch.float64 if wide else dtype


def build(arguments: Any, tensors: Mapping[str, Any]) -> Any:
    """The arguments with tensors in their slots, and with new buffers."""
    if isinstance(arguments, Slot):
        return arguments.take(tensors)
    if isinstance(arguments, Buffer):
        return arguments.make(tensors)
    if isinstance(arguments, tuple | list):
        return type(arguments)([build(item, tensors) for item in arguments])
    if isinstance(arguments, dict):
        return {key: build(item, tensors) for key, item in arguments.items()}
    return arguments


def slots(arguments: Any) -> list[str]:
    """Names of the tensors in a structure of arguments."""
    if isinstance(arguments, Slot):
        return [arguments.name]
    items = arguments.values() if isinstance(arguments, dict) else arguments
    return [name for item in items for name in slots(item)] if isinstance(arguments, tuple | list | dict) else []


def dissect(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    """The structure of a value, its tensors collected by name. Raises BenchmarkError BAD_INPUTS."""
    import torch

    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach()
        return Slot(name)
    if type(value).__module__ == "numpy" and hasattr(value, "__array_interface__"):
        tensors[name] = torch.as_tensor(value)
        return Slot(name, array=True)
    if isinstance(value, tuple | list):
        return type(value)([dissect(item, f"{name}_{index}", tensors) for index, item in enumerate(value)])
    if isinstance(value, dict):
        return {key: dissect(item, f"{name}_{key}", tensors) for key, item in value.items()}
    if isinstance(value, _SIMPLE):
        return value
    raise unusable(
        "BAD_INPUTS",
        f"The input '{name}' is a {type(value).__name__}: the harness gives tensors, numbers and texts only.",
        "Pass tensors or arrays as arguments.",
    )


class Reference:
    """A problem: its recipe for inputs, its static tensors, and its baseline. One subclass per format.

    arguments: the structure of the call; None in the recorder, which determines it.
    """

    otherwise: str | None = None  # how to measure what cannot be given secret inputs
    own_output: Any = None  # of the call that the problem made itself while drawing its inputs, if it did
    alike: bool = False  # what it draws itself, and keeps, is the same in every process

    def __init__(self, folder: Path, arguments: Any = None) -> None:
        self.folder, self.arguments = folder, arguments

    def draw(self) -> Any:
        """The arguments of one call, made by the problem's own code."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Static tensors by name, such as a module's parameters, made by the problem's own code."""
        return {}

    def learnt(self) -> frozenset[str]:
        """Names of the static tensors that are learnt: their initial values mean nothing."""
        return frozenset()

    def settle(self) -> dict[str, Any] | None:
        """Change how the problem is run so that it may become deterministic. Returns the keyword arguments of this
        class that do the same, or None if nothing is left to change.
        """
        return None

    def notes(self) -> tuple[str, ...]:
        """Facts to disclose that only running the problem reveals."""
        return ()

    def run(self, **tensors: Any) -> Any:
        raise NotImplementedError

    def recipe(self, rng: Any) -> dict[str, Any]:
        """Inputs as the problem's own code makes them, under a secret seed."""
        tensors: dict[str, Any] = {}
        with seeded(_seed(rng), rng.device):
            self.named(on_device(self.draw, rng.device), tensors)
        return {name: tensor.to(rng.device) for name, tensor in tensors.items()}

    def static(self, rng: Any) -> dict[str, Any]:
        """Static tensors as the problem's own code makes them, under a secret seed."""
        with seeded(_seed(rng), rng.device):
            return {name: tensor.detach().to(rng.device) for name, tensor in on_device(self.state, rng.device).items()}

    def named(self, arguments: Any, tensors: dict[str, Any]) -> Any:
        """Name the tensors of the arguments; returns their structure."""
        if isinstance(arguments, tuple | list):
            return type(arguments)([dissect(item, f"input_{at}", tensors) for at, item in enumerate(arguments)])
        return dissect(arguments, "input", tensors)


def set_state(module: Any, state: Mapping[str, Any], inputs: Mapping[str, Any] | None = None) -> None:
    """Give a module these parameters and buffers, in their own types. What else it holds, such as tables or memory for
    partial sums, keeps the type that it was made with, unless the call is computed in float64.
    """
    import torch

    if any(tensor.dtype == torch.float64 for tensor in (*state.values(), *(inputs or {}).values())):
        module.to(dtype=torch.float64)
        for layer in module.modules():
            plain = {name: value for name, value in vars(layer).items() if isinstance(value, torch.Tensor)}
            vars(layer).update({name: value.double() for name, value in plain.items() if value.is_floating_point()})
    own = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    for name, tensor in own:
        if name in state:
            tensor.data = tensor.data.to(state[name].dtype)
    module.load_state_dict(state, strict=False)


def has_tables(module: Any) -> bool:
    """Return True if the module holds floating-point numbers outside its state, such as a table of angles."""
    import torch

    def tensors(value: Any) -> Iterator[Any]:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, Mapping | list | tuple):
            for each in value.values() if isinstance(value, Mapping) else value:
                yield from tensors(each)

    state = {id(tensor) for tensor in module.state_dict(keep_vars=True).values()}
    held = (tensor for each in module.modules() for tensor in tensors(vars(each)))
    return any(tensor.is_floating_point() and id(tensor) not in state for tensor in held)


@contextmanager
def unwatched() -> Iterator[None]:
    """Run operations as they are, without the noise or the types of a mode that evaluates the baseline."""
    from torch._C import _len_torch_dispatch_stack
    from torch.utils._python_dispatch import _pop_mode_temporarily

    with ExitStack() as stack:
        for _ in range(_len_torch_dispatch_stack()):
            stack.enter_context(_pop_mode_temporarily())
        yield


def on_device(make: Callable[[], T], device: str) -> T:
    """Call a recipe with the device as the default for its new tensors, if that works; otherwise they are made on the
    CPU.

    Drawing hundreds of millions of values on a CPU takes longer than everything else.
    """
    if device == "cpu":
        return make()
    import torch

    try:
        with torch.device(device):
            return make()
    except Exception:  # raised by a recipe that mixes devices or uses numpy
        return make()


def _seed(rng: Any) -> int:
    return int(rng.randint(0, _SEED_LIMIT, 1))


def load(path: Path, name: str, constants: Mapping[str, Any] | None = None, some: bool = False) -> ModuleType:
    """Execute a file as a module, its folder first on the search path.

    constants: other values for names that the file assigns at its top level, see replace_constants(). some: ignore
    those that it does not assign, as in a candidate that is not a copy of the whole problem. Raises BenchmarkError
    NO_CONSTANT, and whatever the file itself raises.
    """
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise unusable("UNREADABLE", f"{path.name} cannot be loaded as a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # torch.compile and dataclasses look a module up by name
    if not constants:
        spec.loader.exec_module(module)
        return module
    tree = ast.parse(path.read_text("utf-8"))
    own = assigned(tree) if some else constants
    tree = replace_constants(tree, {name: value for name, value in constants.items() if name in own})
    exec(compile(tree, str(path), "exec"), vars(module))
    return module


def replace_constants(tree: ast.Module, constants: Mapping[str, Any]) -> ast.Module:
    """Give names that are assigned at the top level other values, whatever their expression, also within a tuple.

    A number given for a list or tuple of numbers fills one of the same length. Raises BenchmarkError NO_CONSTANT.
    """
    missing = set(constants)
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for name, value in _named_values(target, node.value):
                if name in constants:
                    _replace(node, value, constants[name])
                    missing.discard(name)
    if missing:
        raise unusable(
            "NO_CONSTANT",
            f"The file assigns nothing to {', '.join(sorted(missing))} at its top level.",
            f"It assigns {', '.join(sorted(assigned(tree))) or 'nothing'} there.",
        )
    return tree


def assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Names of simple values that the file assigns at its top level: numbers, lists of them, expressions."""
    values: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                values |= {name: value for name, value in _named_values(target, node.value) if _is_size(value)}
    return values


def defined(tree: ast.Module | None) -> set[str]:
    """Names of the functions and classes at the top level, and of everything assigned or imported there."""
    names: set[str] = set()
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _named_values(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Each name of an assignment with its own value: two for `height, width = 256, 256`."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for inner, each in zip(target.elts, value.elts, strict=False):
            yield from _named_values(inner, each)


def _is_size(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple | ast.List):
        return all(map(_is_size, value.elts))
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    return isinstance(value, ast.BinOp | ast.UnaryOp)


def _replace(statement: ast.Assign | ast.AnnAssign, old: ast.expr, value: Any) -> None:
    """Replace an expression of this statement by a value, or by as many copies of it as the old value has items."""
    if isinstance(old, ast.Tuple | ast.List):
        values = value if isinstance(value, list) else [value] * len(old.elts)
        replacement: ast.expr = type(old)([ast.Constant(each) for each in values], ast.Load())
    else:
        replacement = (
            ast.List([ast.Constant(each) for each in value], ast.Load())
            if isinstance(value, list)
            else ast.Constant(value)
        )

    class Exchange(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return ast.copy_location(replacement, node) if node is old else self.generic_visit(node)

    Exchange().visit(statement)
    ast.fix_missing_locations(statement)
