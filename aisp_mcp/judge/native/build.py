"""Compile C++ and CUDA C++ candidates: a trusted step, before any process of a comparison runs the candidate's code.

The compiler runs isolated, on a copy of the one file, so a candidate cannot include other files in its library.
Libraries are cached per user, by a hash of source, flags, compiler and target: a second run compiles nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

from aisp_mcp.errors import BenchmarkError, Unavailable
from aisp_mcp.judge.native.call import HEADER, LIBRARY
from aisp_mcp.judge.native.launch_header import LANGUAGES, HeaderError, read
from aisp_mcp.process import isolation, python
from aisp_mcp.process.run import run
from aisp_mcp.system.gpu import nvml

BUILD_S, VERSION_S = 300.0, 30.0
FIRST_LINES = 8  # of a compiler's messages in an error
FACTS = "build.json"
HOST_FLAGS = ("-O3", "-march=native", "-std=c++20", "-fPIC", "-shared", "-pthread", "-Wall")
CUDA_FLAGS = ("-O3", "-std=c++17", "-lineinfo", "-Xptxas=-v")
_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def is_native(path: Path) -> bool:
    """Return True for a file that must be compiled."""
    return path.suffix in LANGUAGES


def compiler(suffix: str) -> Path | None:
    """The compiler for files with that suffix, or None.

    C++: g++ or c++ on the PATH. CUDA: nvcc in the bin folder of CUDA_HOME or CUDA_PATH, on the PATH, or in
    /usr/local/cuda/bin.
    """
    if suffix == ".cpp":
        program = shutil.which("g++") or shutil.which("c++")
        return Path(program) if program else None
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    search_path = os.pathsep.join(
        [*(f"{home}/bin" for home in homes), os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    )
    program = shutil.which("nvcc", path=search_path)
    return Path(program) if program else None


def lacks(path: Path, device: str) -> str | None:
    """The reason why this candidate cannot be measured here, in words; None if it can."""
    if path.suffix == ".cpp" and device == "cuda":
        return "a measurement on a CPU: a C++ candidate does not run on a GPU"
    if path.suffix == ".cu" and device != "cuda":
        return "1 CUDA device(s)"
    if compiler(path.suffix) is None:
        return "the compiler g++" if path.suffix == ".cpp" else "the compiler nvcc (CUDA_HOME, PATH, /usr/local/cuda)"
    return None


def device_target() -> str:
    """Architecture of the GPU that workers get, such as sm_90a. Raises Unavailable NO_GPU."""
    devices = {str(gpu.index): gpu for gpu in nvml.read().gpus}
    devices |= {str(gpu.uuid): gpu for gpu in devices.values()}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    gpu = devices.get(visible) or next(iter(devices.values()), None)
    if gpu is None or gpu.compute_capability is None:
        raise Unavailable("NO_GPU", "The compute capability of the GPU cannot be read.", "See `aisp doctor`.")
    return architecture(gpu.compute_capability)


def architecture(capability: str) -> str:
    """The compiler's name of a compute capability: 9.0 has the instructions of sm_90a, and 10.x likewise."""
    number = capability.replace(".", "")
    return f"sm_{number}a" if number.startswith(("90", "10")) else f"sm_{number}"


def build(source: Path, target: str) -> tuple[Path, dict[str, Any]]:
    """(library, facts) of a candidate, compiled now or by an earlier build. target: native or sm_*.

    Raises BenchmarkError BAD_HEADER or COMPILE_FAILED, and Unavailable if isolation is not available.
    """
    program, text = compiler(source.suffix), source.read_text("utf-8")
    if program is None:
        raise BenchmarkError("COMPILE_FAILED", f"{source.name}: {lacks(source, 'cuda')} is missing.")
    try:
        launch = read(text, source.suffix)
    except HeaderError as error:
        hint = "See docs/native.md for the header of a C++ or CUDA candidate."
        raise BenchmarkError("BAD_HEADER", f"{source.name}: {error}.", hint) from None
    flags = (*_flags(source.suffix, target), *launch.flags)
    facts: dict[str, Any] = {
        "language": LANGUAGES[source.suffix],
        "compiler": version(program),
        "flags": list(flags),
        "target": target,
        "source_sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    key = hashlib.sha256(json.dumps([facts, str(program), _processor(target)]).encode()).hexdigest()
    folder = cache_folder() / key[:32]
    if (known := _cached(folder)) is not None:
        return folder / LIBRARY, known
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="build-") as temporary:
        work = Path(temporary, "work")
        work.mkdir()
        messages = _compile([str(program), *flags], source.name, text, work)
        sha = hashlib.sha256((work / LIBRARY).read_bytes()).hexdigest()
        facts |= {"library_sha256": sha, "kernels": list(kernels(messages))}
        (work / HEADER).write_text(json.dumps(asdict(launch)), "utf-8")
        (work / FACTS).write_text(json.dumps(facts), "utf-8")
        try:
            work.rename(folder)
        except OSError:  # another process has built the same library meanwhile
            if _cached(folder) is None:
                shutil.rmtree(folder)
                work.rename(folder)
    return folder / LIBRARY, facts


def cache_folder() -> Path:
    """Folder of compiled libraries."""
    return Path(platformdirs.user_cache_dir("aisp", appauthor=False)) / "native"


def _cached(folder: Path) -> dict[str, Any] | None:
    """Facts of a library from an earlier build, if it is unchanged."""
    try:
        facts: dict[str, Any] = json.loads((folder / FACTS).read_text("utf-8"))
        same = hashlib.sha256((folder / LIBRARY).read_bytes()).hexdigest() == facts["library_sha256"]
    except (OSError, ValueError, KeyError):
        return None
    return facts if same else None


def _flags(suffix: str, target: str) -> tuple[str, ...]:
    if suffix == ".cpp":
        return HOST_FLAGS
    number = target.removeprefix("sm_")
    return (*CUDA_FLAGS, f"-gencode=arch=compute_{number},code={target}", "--shared", "-Xcompiler=-fPIC")


def _compile(command: list[str], name: str, text: str, work: Path) -> str:
    """Compile inside `work`; return the compiler's messages. Raises BenchmarkError COMPILE_FAILED."""
    (work / name).write_text(text, "utf-8")
    argv = [*command, "-o", LIBRARY, name]
    env = {key: os.environ[key] for key in ("PATH", "HOME", "CUDA_HOME", "LD_LIBRARY_PATH") if key in os.environ}
    env |= python.search_path(os.environ, os.getcwd())  # the sandbox is a module of this package
    wrapped = isolation.wrap(argv, isolation.probe().level, writable=[work])
    done = run(wrapped, timeout_s=BUILD_S, env={**env, "TMPDIR": str(work), "LC_ALL": "C"}, cwd=work)
    messages = done.stderr + done.stdout
    if done.ok and (work / LIBRARY).is_file():
        return messages
    first = "\n".join(messages.strip().splitlines()[:FIRST_LINES])
    reason = f"did not finish within {BUILD_S:g} s" if done.timed_out else f"ended with {done.returncode}"
    hint = f"The command was: {' '.join([Path(command[0]).name, *argv[1:]])}"
    raise BenchmarkError("COMPILE_FAILED", f"{name}: the compiler {reason}:\n{first}", hint)


@cache
def version(program: Path) -> str:
    """The line of a compiler's --version that contains its release."""
    lines = run([program, "--version"], timeout_s=VERSION_S).stdout.strip().splitlines()
    return next((line for line in lines if "release" in line), lines[0] if lines else program.name)


def _processor(target: str) -> str:
    """Names of the processor's instruction sets, which -march=native depends on."""
    if target != "native":
        return ""
    lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def kernels(messages: str) -> Iterator[dict[str, Any]]:
    """Registers, spills and shared memory of each kernel, as ptxas prints them."""
    parts = _ENTRY.split(messages)[1:]
    for name, target, words in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        spills, used, shared = _SPILLS.search(words), _USED.search(words), _SHARED.search(words)
        yield {
            "name": name,
            "target": target,
            "registers": int(used[1]) if used else None,
            "spill_stores_bytes": int(spills[2]) if spills else None,
            "spill_loads_bytes": int(spills[3]) if spills else None,
            "shared_bytes": int(shared[1]) if shared else 0,
        }
