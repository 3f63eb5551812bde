"""Placement of workers: cores, environment and folders, constructed in the same way for baseline and candidate, and a
check during a round that a worker's threads keep to their cores.
"""

from __future__ import annotations

import os
import random
import select
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from aisp_mcp.judge.parent.processes import procfs
from aisp_mcp.judge.parent.processes.cluster.nodes import Node
from aisp_mcp.judge.parent.processes.confined import Placement, prefer
from aisp_mcp.judge.protocol.layout import HEAP_BYTES
from aisp_mcp.process import forbidden, isolation
from aisp_mcp.process.isolation import Level
from aisp_mcp.process.python import search_path
from aisp_mcp.process.run import run

MIN_MEMORY, MEMORY_SHARE = 8 << 30, 0.7  # a worker's address space in bytes, or this share of free memory

# What a worker may see of the user's environment. Everything else, secrets above all, stays with the parent.
KEEP = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CUDA_HOME",
    "TORCH_CUDA_ARCH_LIST",
    "CC",
    "CXX",
    "NCCL_NVLS_ENABLE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_TF32_OVERRIDE",
    "AISP_JOB_ID",
)
# glibc's allocator returns memory to the kernel and takes it again depending on what happens to be at the top of
# the heap: the same program then runs at two speeds, a factor of three apart, by chance. All workers
# keep the memory they once had.
ALLOCATOR = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_MMAP_THRESHOLD_": str(HEAP_BYTES),  # the largest that glibc accepts
    "MALLOC_TOP_PAD_": str(64 << 20),
}
# Where memory decides, freed memory must be returned at once: blocks retained by the allocator, and their arrangement,
# made two processes of one program differ by a third.
LEAN_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": str(128 << 10), "MALLOC_TOP_PAD_": "0"}
# torch.compile on a CPU first compiles its own header, for a quarter of a minute, into a temporary folder, which
# is not copied to workers: each process would do it again, even one that finds all its kernels.
COMPILER = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
OWN = "own"  # each process's folder as it sees it, in its own file system
_DOWNWARDS: tuple[Level, ...] = ("L3", "L2", "L1", "L0")
EXTENSIONS = "TORCH_EXTENSIONS_DIR"  # where torch.utils.cpp_extension keeps the libraries that it has compiled
# Caches of the driver and of compilers.
KERNELS = ("CUDA_CACHE_PATH", "TRITON_CACHE_DIR", EXTENSIONS)
INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"  # of torch.compile
BYTECODE = "BYTECODE"
COMPILE_CACHES = (*KERNELS, INDUCTOR, BYTECODE)
KEEP_PREFIX = ("TORCH_SYMM_MEM_", "NVSHMEM_")


def measuring_cpus(ranks: int = 1) -> frozenset[int]:
    """The cores for workers: all available ones but a few.

    The parent and the verifier keep one, or four on a machine with eight or more cores, but each rank of a program gets
    its own core.
    """
    allowed = sorted(os.sched_getaffinity(0))
    reserved = max(min(1 if len(allowed) < 8 else 4, len(allowed) - ranks), 0)
    return frozenset(allowed[reserved:] or allowed)


def worker_cpus(threads: int, ranks: int = 1) -> frozenset[int]:
    """The cores of each program: all measured ones, or `threads` of them. The last ones to be taken are those usually
    reserved for parent and verifier.
    """
    measured = measuring_cpus(ranks)
    others = os.sched_getaffinity(0) - measured
    return frozenset([*sorted(measured), *sorted(others, reverse=True)][: threads or len(measured)])


def aside(measured: frozenset[int]) -> AbstractContextManager[None]:
    """Keep this thread, and processes that it starts meanwhile, off the measured cores, if there are others."""
    allowed = os.sched_getaffinity(0)
    return inside(allowed - measured or allowed)


@contextmanager
def inside(cpus: Set[int]) -> Iterator[None]:
    """Put this thread, and processes that it starts meanwhile, on these cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def watching(measured: frozenset[int]) -> Iterator[None]:
    """Schedule the parent while it holds the clock: off the measured cores, and with the priority of the workers, so
    that their answers do not wait.
    """
    usual, of_session = os.getpriority(os.PRIO_PROCESS, 0), procfs.session_nice(os.getpid())
    with aside(measured):
        prefer([0])
        try:
            yield
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, usual)
            procfs.set_session_nice(os.getpid(), of_session)


def spare_cpus() -> int:
    """Cores reserved for the parent, the verifier and starting workers."""
    return len(os.sched_getaffinity(0)) - len(measuring_cpus())


def worker_env(
    folder: Path,
    threads: int,
    device: str,
    environ: Mapping[str, str] = os.environ,
    seen: Path | None = None,
    devices: int = 1,
) -> dict[str, str]:
    """A minimal environment with private caches below `folder`; CUDA_VISIBLE_DEVICES names at most `devices`.

    seen: the path of that folder as the process sees it, if different.
    """
    env = {k: v for k, v in environ.items() if k in KEEP or k.startswith(KEEP_PREFIX)}
    if "PYTHONPATH" in env:  # a worker has another working folder; a job has the same variable in this form
        env |= search_path(env, os.getcwd())
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCH_HOME", INDUCTOR, *KERNELS):
        (folder / name.lower()).mkdir(parents=True, exist_ok=True)
        env[name] = str((seen or folder) / name.lower())
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        env[name] = str(threads)
    env |= ALLOCATOR
    env["CUDA_VISIBLE_DEVICES"] = _visible_devices(environ, devices) if device == "cuda" else ""
    env |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    env |= COMPILER
    return env


def _visible_devices(environ: Mapping[str, str], count: int) -> str:
    if count == 1:
        return visible_device(environ)
    return ",".join(environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")[:count])


def other_devices(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> tuple[Path, ...]:
    """Device nodes of all GPUs except the one that workers get; none if that is unknown."""
    gpus = _gpus(root)
    chosen = _chosen(environ, gpus)
    return tuple(node for index, (node, _) in enumerate(gpus) if index != chosen) if chosen is not None else ()


def visible_device(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> str:
    """The GPU that workers get, as CUDA_VISIBLE_DEVICES names it: by its UUID if that is known, because its number is
    another one where the GPUs before it are hidden.
    """
    gpus = _gpus(root)
    chosen = _chosen(environ, gpus)
    uuid = "?" if chosen is None else gpus[chosen][1]
    return _first_visible(environ) if "?" in uuid else uuid  # drivers mask it for some users


def _gpus(root: Path) -> list[tuple[Path, str]]:
    """(device node, UUID) of the GPUs, in bus order, as workers count them."""
    found = []
    for folder in sorted((root / "proc/driver/nvidia/gpus").glob("*")):
        facts = dict(line.split(":", 1) for line in (folder / "information").read_text().splitlines() if ":" in line)
        node = root / f"dev/nvidia{facts.get('Device Minor', '').strip()}"
        if node.exists():
            found.append((node, facts.get("GPU UUID", "?").strip()))
    return found


def _first_visible(environ: Mapping[str, str]) -> str:
    return environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()


def _chosen(environ: Mapping[str, str], gpus: Sequence[tuple[Path, str]]) -> int | None:
    """Index of the first visible GPU; None if that is unknown."""
    visible = _first_visible(environ)
    if visible.isdigit():
        return int(visible) if int(visible) < len(gpus) else None
    named = [index for index, (_, uuid) in enumerate(gpus) if visible and uuid.startswith(visible)]
    return named[0] if len(named) == 1 else None


def usable_level(wish: str, device: str) -> Level:
    """The isolation to use: the requested level, or the best at which the device still answers.

    Raises Unavailable ISOLATION_LEVEL if the requested level is not available here.
    """
    level = isolation.demand(wish)
    if device != "cuda" or wish != "auto":
        return level
    return next(
        level_below
        for level_below in _DOWNWARDS
        if level_below <= level and (level_below == "L1" or _cuda_answers(level_below))
    )


@cache
def _cuda_answers(level: Level) -> bool:
    """Try to initialise the CUDA driver inside this level; some drivers need calls that Landlock forbids.

    The answer is remembered, because each job is a new process, and the attempt takes a second or two.
    """
    program = "import ctypes, sys; sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    argv = isolation.wrap([sys.executable, "-I", "-c", program], level, devices=True, hidden=other_devices())
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": visible_device()}
    question = f"CUDA at {level}, driver {_driver()}, device {env['CUDA_VISIBLE_DEVICES']}"
    return isolation.works_until_boot(question, lambda: run(argv, timeout_s=30, env=env).returncode == 0)


def _driver() -> str:
    with suppress(OSError):
        return Path("/sys/module/nvidia/version").read_text()
    return "unknown"


# The buffers of pseudo-terminals are memory of the kernel that belongs to no process.
TERMINALS = tuple(map(Path, ("/dev/ptmx", "/dev/pts/ptmx")))


@dataclass(frozen=True)
class PlacementFactory:
    """Creates a folder and an environment for each process of a comparison, so that none finds another's files.

    free_bytes: of memory, before any of them runs: all have the same limit. lean: for memory benchmarks: the allocator
    retains nothing, and memory that cannot be counted is forbidden. hidden: folders that no process of the comparison
    may read. ranks: processes of a worker, which share its cores and have one device each. variables: passed to these
    processes by the caller. network: they share the machine's. relays: on the other nodes of the comparison, each with
    equally many ranks of every program.
    """

    root: Path
    device: str
    level: Level
    cpus: frozenset[int]
    clean: bool = True
    lean: bool = False
    hidden: tuple[Path, ...] = ()
    ranks: int = 1
    variables: tuple[tuple[str, str], ...] = ()
    network: bool = False
    relays: tuple[Node, ...] = ()
    free_bytes: int = field(default_factory=lambda: os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))

    @property
    def cores(self) -> int:
        """Cores of a program on all nodes."""
        return len(self.cpus) + sum(node.cpus for node in self.relays)

    def make(self, name: str, replicate: int = 0, readable: tuple[Path, ...] = ()) -> Placement:
        """Placement of a process. replicate: its number; each replicate starts on the core after that of the previous
        one. readable: folders that it may read as they change.
        """
        folder, seen = self.root / name, self.root / name
        folder.mkdir()
        if self.level in isolation.NAMESPACES:
            seen = self.root / OWN
            seen.mkdir(exist_ok=True)
        env = worker_env(folder, max(len(self.cpus) // self.ranks, 1), self.device, seen=seen, devices=self.ranks)
        env |= {**(LEAN_ALLOCATOR if self.lean else {}), **dict(self.variables)}
        env = env if self.clean else {**os.environ, **env}
        cuda = self.device == "cuda"
        core = sorted(self.cpus)[replicate % len(self.cpus)]
        # CUDA reserves far more address space than it uses.
        memory_bytes = None if cuda else max(MIN_MEMORY, int(MEMORY_SHARE * self.free_bytes))
        hidden = (*self.hidden, *(other_devices() if cuda and self.ranks == 1 else ()))
        hidden += TERMINALS if self.lean else ()
        calls: tuple[str, ...] = forbidden.KEYRINGS if forbidden.has_filter() else ()
        calls += forbidden.UNACCOUNTED if self.lean else ()
        limits = hidden, memory_bytes, readable, self.network, calls
        return Placement(env, folder, seen, self.cpus, self.level, cuda, core, *limits)


WATCH_S = 2e-4, 8e-4  # between two checks


def bind(tasks: Iterable[int], cpus: Iterable[int]) -> None:
    """Bind the threads to these cores. Threads that have exited are skipped; the round will detect that."""
    for task in tasks:
        with suppress(OSError):
            os.sched_setaffinity(task, cpus)


def answers_before_next_look(pipe: int) -> bool:
    """Wait until the pipe has data, or until a random moment for the next check."""
    return bool(select.select([pipe], [], [], random.uniform(*WATCH_S))[0])


def foreign_cores(pids: list[int], cpus: Iterable[int]) -> list[int]:
    """Cores other than these that a thread of the processes may run on.

    A thread can change its own set at any time, and go back before the round ends, so this is checked during rounds
    too.
    """
    allowed = set[int]()
    for task in procfs.tasks(pids):
        with suppress(OSError):
            allowed |= os.sched_getaffinity(task)
    return sorted(allowed - set(cpus))
