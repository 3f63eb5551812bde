"""Load a specification or a candidate from its file. Called only inside the verifier and the workers."""

from __future__ import annotations

import hashlib
import importlib
import importlib.abc
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import aisp_mcp
from aisp_mcp.bench import Answers, Benchmark, DistributedBenchmark, File, Folder, Host, sizes
from aisp_mcp.judge.protocol import failed_builds
from aisp_mcp.judge.protocol.layout import FILE, HOST, PATH_BYTES, TensorSpec, dense_strides, is_dense
from aisp_mcp.judge.protocol.messages import CALLING

BASELINE, CANDIDATE, COMMON = "aisp_baseline", "aisp_candidate", "_common"  # names of the modules
_OWN = re.compile(r"^\s+(?:make|check)\b[^=\n]*=\s*[\"']([^\"'\n]+\.py):\w+[\"']", re.MULTILINE)
OWN_BUILD = "build_directory"  # of torch.utils.cpp_extension, in the text of a program that chooses it
PROBLEM_FILES = ("problem.py", "reference.py", "task.py", "utils.py")  # of adapted problems
# Folders of the standard library, of installed packages and of this one.
LIBRARIES = tuple(
    {f"{path}/" for path in (*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), *aisp_mcp.__path__)}
)
# Files that mark a project's top folder, and the number of levels to search upwards for them.
PROJECT_MARKS, PROJECT_DEPTH = (".git", "pyproject.toml", "setup.py"), 6


def unusable(code: str, message: str, hint: str | None = None) -> Exception:
    """A BenchmarkError. Its class is imported here, so that a candidate's process has it only after an error."""
    from aisp_mcp.errors import BenchmarkError

    return BenchmarkError(code, message, hint)


def users_line(error: BaseException) -> str:
    """File and line of the innermost call in the user's own code, such as `fast.py:3`; empty if there is none."""
    frames = traceback.walk_tb(error.__traceback__)
    own = [(Path(frame.f_code.co_filename), line) for frame, line in frames]
    own = [(path, line) for path, line in own if path.suffix == ".py" and not str(path).startswith(LIBRARIES)]
    return f"{own[-1][0].name}:{own[-1][1]}" if own else ""


def load_module(path: Path, name: str, bytecode: str | None = None) -> ModuleType:
    """Execute the file as a module. bytecode: folder for this file's bytecode, instead of `__pycache__`.

    Raises BenchmarkError UNREADABLE, or whatever the file itself raises.
    """
    if OWN_BUILD in source_text(path) and not os.access(path.parent, os.W_OK):
        path = _writable(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise unusable("UNREADABLE", f"{path.name} cannot be loaded as a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and torch.compile look their module up by name
    if bytecode is None:
        spec.loader.exec_module(module)
    else:
        exec(_code(spec.loader, name, bytecode), module.__dict__)
    return module


def _writable(path: Path) -> Path:
    """A copy of the file in a private folder of this process, where it may build what it loads, with links to all that
    is next to it. The folder has the same path in each process, so ninja knows what another one has built.
    """
    folder = Path(tempfile.gettempdir(), "beside", hashlib.sha256(str(path.parent).encode()).hexdigest()[:16])
    folder.mkdir(parents=True, exist_ok=True)
    for each in path.parent.iterdir():
        with suppress(FileExistsError):  # the folder of what was built
            (folder / each.name).symlink_to(each)
    copy = folder / path.name
    copy.unlink()
    shutil.copy2(path, copy)
    return copy


def _code(loader: Any, name: str, folder: str) -> Any:
    """Code of the module. Modules that it imports use the ordinary bytecode cache."""
    before = sys.pycache_prefix, sys.dont_write_bytecode
    sys.pycache_prefix, sys.dont_write_bytecode = folder, False
    try:
        return loader.get_code(name)
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before


class ProjectFinder(importlib.abc.MetaPathFinder):
    """Finds a project's own modules before installed ones of the same name, but never before the standard library."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = list(folders)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The top-level module of that name in the project, if it has one."""
        if path is not None or fullname in sys.stdlib_module_names:
            return None
        return PathFinder.find_spec(fullname, self.folders, target)


def project_folders(path: Path) -> list[Path]:
    """Folders with the modules of the project around a file: its `src`, and its own; empty outside of any project."""
    for folder in path.resolve().parents[:PROJECT_DEPTH]:
        if any((folder / name).exists() for name in PROJECT_MARKS):
            return [part for part in (folder / "src", folder) if part.is_dir()]
    return []


def _see_project(path: Path) -> None:
    """Make the modules of the project around the file importable in this process."""
    folders = [str(folder) for folder in project_folders(path)]
    if folders and not any(isinstance(finder, ProjectFinder) and finder.folders == folders for finder in sys.meta_path):
        sys.meta_path.insert(0, ProjectFinder(folders))


def load_common(path: Path) -> None:
    """Execute the file as the module `_common`, if it exists. Raises as load_module."""
    sys.modules.pop(COMMON, None)
    if path.is_file():
        load_module(path, COMMON)


def common_of(baseline: Path) -> Path:
    """The file next to a baseline that it and its candidates may import from."""
    return baseline.with_name(f"{COMMON}.py")


def problem_folder(baseline: Path) -> Path:
    """The folder of an adapted problem's own files, and of candidates that came with it; others have none."""
    return baseline.with_name(baseline.stem.removeprefix("baseline") or "_")


def source_text(path: Path) -> str:
    """The text of a program; empty for a compiled library, and if there is no such file."""
    return path.read_text("utf-8", errors="replace") if path.is_file() and path.suffix != ".so" else ""


def problem_files(baseline: Path) -> list[Path]:
    """The files in that folder that the specification runs or reads, without candidates."""
    folder = problem_folder(baseline)
    return [folder / name for name in PROBLEM_FILES if (folder / name).is_file()] + sorted(folder.glob("*.json"))


def own_files(baseline: Path) -> list[Path]:
    """The files of the generator and the checker that a specification's class names."""
    names = dict.fromkeys(_OWN.findall(source_text(baseline)))
    return [path for name in names if (path := baseline.parent / name).is_file()]


def load_candidate(path: Path, common: Path | None = None, bytecode: str | None = None) -> Any:
    """A candidate's module, or an equivalent that wraps its compiled library. Raises like load_module.

    common: the baseline author's `_common`, even if another file of that name is next to the candidate.
    """
    if path.suffix != ".so":
        _see_project(path)
        load_common(common or common_of(path))
        return load_module(path, CANDIDATE, bytecode)
    from aisp_mcp.judge.native import call

    return call.load(path)


def imported_by(work: Callable[[], object], room: int) -> list[str]:
    """Names of the modules that `work` imports, without members of listed packages, in at most `room` characters."""
    before = set(sys.modules)
    work()
    fresh = set(sys.modules) - before
    texts = list[str]()
    for name in sorted(name for name in fresh if name.rpartition(".")[0] not in fresh):
        room -= len(name) + 4
        if room > 0:
            texts.append(name)
    return texts


def import_all(names: Iterable[str]) -> None:
    """Import these modules; ignore those that cannot be imported."""
    for name in names:
        with suppress(Exception):
            importlib.import_module(name)


def load_spec(path: Path, size: str, bytecode: str | None = None) -> Benchmark:
    """The one Benchmark subclass that the baseline file defines, at that size (see bench/sizes.py).

    Raises BenchmarkError NOT_A_BENCHMARK when there is none or more than one, BAD_SIZE for an unknown attribute.
    """
    _see_project(path)
    load_common(common_of(path))
    module = load_module(path, BASELINE, bytecode)
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Benchmark) and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise unusable(
            "NOT_A_BENCHMARK",
            f"{path.name} defines {len(classes)} Benchmark subclasses; it must define one.",
            "See CONTRIBUTING.md, the recipe for a benchmark.",
        )
    benchmark, chosen = classes[0](), sizes.read(size)
    apply_size(benchmark, benchmark.sizes.get(chosen.preset, {}))  # type: ignore[call-overload]
    replace_sizes(benchmark, chosen)
    if any(own is not None for own in (benchmark.make, benchmark.check, benchmark.rtol, benchmark.atol)):
        take_values(benchmark, path)
    return benchmark


def take_values(benchmark: Benchmark, path: Path) -> None:
    """Let the answers of a specification that names a generator, a checker or a tolerance be any Python values. Raises
    BenchmarkError OWN_FILE, BAD_CONTRACT.
    """
    if benchmark.goal != "speed" or isinstance(benchmark, DistributedBenchmark):
        raise unusable("BAD_CONTRACT", "make, check, rtol and atol are for the speed of one process.")
    if benchmark.make is not None:
        benchmark.make = own_function(path, "make", benchmark.make)  # type: ignore[misc]
    check = None if benchmark.check is None else own_function(path, "check", benchmark.check)
    benchmark.answers = Answers(check and tuple(check.rsplit(":", 1)), benchmark.rtol, benchmark.atol)  # type: ignore
    calling = importlib.import_module(CALLING)
    benchmark.run = calling.with_values(benchmark.run, benchmark.make is not None)  # type: ignore[method-assign]


def own_function(baseline: Path, option: str, text: str) -> str:
    """The generator or checker of a specification, with the whole path of its file. Raises BenchmarkError OWN_FILE."""
    name, _, function = text.rpartition(":")
    file = baseline.parent / name
    if not function.isidentifier() or not name.endswith(".py") or not file.is_file():
        hint = f'Such as {option} = "{option}.py:{option}", of a file beside {baseline.name}.'
        raise unusable("OWN_FILE", f"{option} = {text!r} names no function of a Python file.", hint)
    return f"{file}:{function}"


def replace_sizes(benchmark: Benchmark, chosen: sizes.Sizes) -> None:
    """Set the caller's values, and transpose the inputs if the size says so. Raises BenchmarkError BAD_SIZE."""
    known = sizes.settable(benchmark)
    for name, value in chosen.values.items():
        if name not in known:
            hint = f"Its sizes are {', '.join(known)}." if known else None
            raise unusable("BAD_SIZE", f"{type(benchmark).__name__} has no size '{name}'.", hint)
        if type(value) is not type(known[name]):
            raise unusable("BAD_SIZE", f"The size '{name}' is {known[name]!r}; {value!r} is not of that type.")
        setattr(benchmark, name, value)
    if chosen.transposed:
        plain = benchmark.inputs
        benchmark.inputs = lambda rng: {name: _transposed(tensor) for name, tensor in plain(rng).items()}  # type: ignore[method-assign]


def _transposed(tensor: Any) -> Any:
    """The same values with the last two dimensions exchanged in memory."""
    return tensor.mT.contiguous().mT if getattr(tensor, "ndim", 0) > 1 else tensor


def apply_size(benchmark: Benchmark, values: Mapping[str, Any]) -> None:
    """Set the attributes of a size preset. Raises BenchmarkError BAD_SIZE for a name the class does not have."""
    for name, value in values.items():
        if not hasattr(type(benchmark), name):
            raise unusable("BAD_SIZE", f"A size preset sets '{name}', which {type(benchmark).__name__} does not have.")
        setattr(benchmark, name, value)


def copied(output: Any) -> Any:
    """The same structure with copied tensors; a tensor whose copy would have another type or layout is left
    as it is.
    """

    def copy(tensor: Any) -> Any:
        fresh = tensor.clone()
        return fresh if type(fresh) is type(tensor) and fresh.stride() == tensor.stride() else tensor

    return mapped(output, copy)


def mapped(output: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure with every tensor changed; a tuple becomes a list."""
    if isinstance(output, Mapping):
        return {key: mapped(value, change) for key, value in output.items()}
    if isinstance(output, tuple | list):
        return [mapped(value, change) for value in output]
    return change(output)


def flatten(output: Any) -> list[tuple[str, Any]]:
    """Name the tensors of an output: one tensor, or a tuple, list or dict of tensors (dict by sorted key)."""
    if isinstance(output, Mapping):
        return [(f"out.{key}", output[key]) for key in sorted(output)]
    if isinstance(output, tuple | list):
        return [(f"out.{index}", item) for index, item in enumerate(output)]
    return [("out", output)]


def contract(name: str, tensor: Any) -> TensorSpec:
    """The contract that a tensor of the specification fulfils.

    Strides that leave gaps or name an element twice (a slice, an expanded tensor) become contiguous ones. For a file,
    the contract of its path's bytes. Raises BenchmarkError BAD_TENSOR for anything but a dense tensor.
    """
    if isinstance(tensor, File | Folder):
        return TensorSpec(name, "uint8", (PATH_BYTES,), (1,), 1, FILE)
    if isinstance(tensor, Host):
        return replace(contract(name, tensor.tensor), kind=HOST)
    _require_dense(name, tensor)
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return TensorSpec(
        name=name,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=shape,
        stride=strides if is_dense(shape, strides) else dense_strides(shape, range(len(shape))),
        itemsize=tensor.element_size(),
        kind=f"{type(tensor).__module__}.{type(tensor).__qualname__}",
    )


def _require_dense(name: str, value: Any) -> None:
    """Refuse values that cannot be compared. Raises BenchmarkError BAD_TENSOR."""
    import torch

    if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized:
        return
    kind = str(value.layout) if isinstance(value, torch.Tensor) else type(value).__name__
    kind = "quantized" if isinstance(value, torch.Tensor) and value.is_quantized else kind
    message = f"{name!r} is {'a tensor of layout ' if '.' in kind else ''}{kind}, not a dense tensor."
    hint = (
        "run() returns a dense tensor of any bool, integer, floating-point or complex dtype, or one tuple, list or dict"
        " of such tensors; inputs() and params() give dicts of them."
    )
    raise unusable("BAD_TENSOR", message, hint)


def entry(setup: dict[str, Any], params: dict[str, Any], example: dict[str, Any]) -> Callable[..., Any]:
    """The function under test with its static tensors bound by name."""
    path, bytecode = Path(setup["path"]), setup.get("bytecode")
    if setup["baseline"]:
        run, static = load_spec(path, setup["size"], bytecode).run, params
    else:
        if failed_builds.EXTENSION.search(source_text(path)):
            failed_builds.remember()
        module = load_candidate(path, Path(setup["common"]), bytecode)
        prepare = getattr(module, "prepare", None)
        run, static = module.run, dict(prepare(params, example)) if prepare else params
    if not static:
        return run
    return lambda **inputs: run(**inputs, **static)
