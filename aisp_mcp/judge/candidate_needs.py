"""Requirements of a candidate, read from its source, so that an unmet one is a skip and not a failure."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from aisp_mcp.judge.protocol.failed_builds import EXTENSION
from aisp_mcp.judge.protocol.messages import NEVER_RANDOM, NO_PARAMETERS, STILL_RANDOM

CUDA, NVCC = "cuda", "nvcc"  # needs other than names of packages
GPU_PACKAGES = ("triton", "tilelang", "cutlass", "helion", "thunderkittens", "cupy")  # compile only for GPUs
# In the text of a program.
COMPILER = re.compile(rf"compile|triton|jit|{EXTENSION.pattern}")
COMPILERS = re.compile(r"\b(torch\.compile|triton|torch\.jit|numba|load_inline)\b")  # as they are called
NO_PACKAGE = re.compile(r"ModuleNotFoundError: No module named '(\w+)[\w.]*'")
NO_HEADER = re.compile(r"fatal error: ([\w./+-]+): No such file or directory")  # of an extension
NO_COMPILER = re.compile(r"([\w./+-]*\bnvcc): (?:not found|No such file or directory)")
READ_ONLY = re.compile(r"OSError: \[Errno 30\][^']*'([^'\n]+)'")
OTHER_TARGET = re.compile(  # of ptxas and nvcc
    r"'[\w.:]{1,80}'[^\n]{0,80}? (?:not supported on|requires) \.target[^\n;]{0,60}|Unsupported gpu architecture '\w+'"
)
NO_KERNEL_IMAGE = "no kernel image is available for execution on the device"  # that need CUDA
NO_DEVICE = (
    "Torch not compiled with CUDA enabled",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver on your system",
)
_RANDOMNESS = {
    NEVER_RANDOM: "as constructed, in training mode, the problem's calls are random and the candidate's never vary",
    STILL_RANDOM: "calls of both are random as constructed, and the candidate's are with dropout layers off as well",
}
DECLARED = "REQUIRES"  # in a file that runs another one, a tuple of needs that its own imports do not show


def requirements(text: str, own_modules: Collection[str] = ()) -> tuple[str, ...]:
    """Packages that the file imports unconditionally at its top level, CUDA for a device, and NVCC for its compiler.

    own_modules: names of modules next to the file. A file that is not Python, or that changes the search path,
    has none.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == [DECLARED]:
            return tuple(str(name) for name in ast.literal_eval(node.value))
    if "sys.path" in text:
        return ()
    packages = [name for node in tree.body for name in _imported(node) if name not in own_modules]
    if any(name in GPU_PACKAGES for name in packages) or _has_device_code(tree):
        packages.append(CUDA)
    if _has_cuda_sources(tree):
        packages += [CUDA, NVCC]
    return tuple(dict.fromkeys(packages))


def compilers(text: str) -> str:
    """A sentence about the compilers that the text names, with a space before it; empty if it names none."""
    if not COMPILER.search(text):
        return ""
    names = sorted(set(COMPILERS.findall(text)))
    return f" It compiles code{' with ' if names else ''}{' and '.join(names)}."


def _imported(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module and node.module != "__future__":
        yield node.module.partition(".")[0]


def _has_device_code(tree: ast.Module) -> bool:
    """Return True if the file contains CUDA C++ with a kernel, or captures CUDA graphs unconditionally: then it runs
    only on a GPU, however it is compiled.
    """
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if any("__global__" in str(node.value) for node in texts if id(node) not in prose):
        return True
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return "CUDAGraph" in names and not names & {"is_available", "is_cuda", "device_count"}


def _has_cuda_sources(tree: ast.Module) -> bool:
    """Return True if load_inline gets CUDA C++: an argument other than an empty text or list."""
    return any(
        isinstance(node, ast.keyword)
        and node.arg == "cuda_sources"
        and not (
            isinstance(node.value, ast.Constant | ast.List)
            and not getattr(node.value, "value", None)
            and not getattr(node.value, "elts", None)
        )
        for node in ast.walk(tree)
    )


def lacks(path: Path, device: str, own: Iterable[Path] = ()) -> str | None:
    """The first requirement of this candidate that this machine does not meet, in words; None if all are met.

    own: other folders from which the candidate may import modules.
    """
    if path.suffix != ".py" or not path.is_file():
        return None
    folders = [folder for folder in (path.parent, *own) if folder.is_dir()]
    own_modules = {
        each.stem for folder in folders for each in folder.iterdir() if each.suffix == ".py" or each.is_dir()
    }
    try:
        names = requirements(path.read_text("utf-8"), own_modules)
    except ValueError:  # not text, or not a literal
        return None
    return next(filter(None, (_missing(name, device) for name in names)), None)


def told_by(message: str, device: str) -> str | None:
    """The missing need that a candidate's exception reveals, in words; None for any other exception."""
    if NO_KERNEL_IMAGE in message:
        return "a GPU of the architecture it was compiled for"
    if target := OTHER_TARGET.search(message):
        return f"a GPU, or a compiler, of another architecture: {target[0].strip()}"
    if device == "cpu" and any(words in message for words in NO_DEVICE):
        return "a CUDA device, which the candidate uses"
    if NO_PARAMETERS in message:
        differences = message.partition(NO_PARAMETERS)[2].lstrip(": ").rstrip(".")
        return f"parameters with the baseline's names and shapes, or drawn like them: {differences}"
    for begin, why in _RANDOMNESS.items():
        if begin in message:
            return f"--mode eval: {why}"
    if read_only := READ_ONLY.search(message):
        return f"a writable folder {read_only[1]}; below TMPDIR and TORCH_EXTENSIONS_DIR it can write"
    if compiler := NO_COMPILER.search(message):
        return f"the compiler {compiler[1]}, which the candidate's extension is built with"
    if header := NO_HEADER.search(message):
        return f"the header {header[1]}, which the candidate's extension includes"
    package = NO_PACKAGE.search(message)
    return f"the package {package[1]}, which the candidate imports" if package and not _is_there(package[1]) else None


def _is_there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _missing(name: str, device: str) -> str | None:
    if name == CUDA:
        return (
            None if device == "cuda" else "a CUDA device: the candidate compiles kernels or captures graphs for a GPU"
        )
    if name == NVCC:
        return None if _nvcc() else "the compiler nvcc (CUDA_HOME, PATH, /usr/local/cuda)"
    return None if _is_there(name) else f"the package {name}, which the candidate imports"


def _nvcc() -> bool:
    homes = filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"))
    return bool(shutil.which("nvcc") or any(Path(folder, "bin", "nvcc").is_file() for folder in homes))
