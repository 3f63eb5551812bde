"""Kernels that were compiled once are handed on to all processes of a program, and nothing else is. No GPU is needed: a
program that writes into the folders of its caches stands for a driver and, but for one test, a compiler.
"""

from __future__ import annotations

import json
import os
import signal
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness_support import HONEST, LEAST, judge, write_pair

from aisp_mcp.judge.candidate.main import LOADED
from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.parent import kernel_cache as kernels
from aisp_mcp.judge.parent.kernel_cache import Kernels
from aisp_mcp.judge.parent.processes.placement import KERNELS, PlacementFactory
from aisp_mcp.judge.parent.processes.process import WorkerProcess
from aisp_mcp.judge.parent.timing import driver
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.process import isolation
from aisp_mcp.process.isolation import Level

COMPILES = """
    import json, os
    from pathlib import Path
    def run(a, b):
        driver, compiler = (Path(os.environ[name]) for name in ("CUDA_CACHE_PATH", "TRITON_CACHE_DIR"))
        (driver / "4").mkdir()
        (driver / "4" / "e65b").write_bytes(b"machine code")
        one = compiler / "KEY"
        one.mkdir()
        (one / "product.cubin").write_bytes(b"a kernel")
        (one / "__grp__product.json").write_text(json.dumps({"child_paths": {"it": str(one / "product.cubin")}}))
        (one / "product.autotune.json").write_text("{}")
        os.symlink("/etc/hostname", one / "link")
        os.symlink("/etc", one / "folder")
        os.mkfifo(one / "pipe")
        own = Path(os.environ["HOME"]) / ".cache" / "extension"
        own.mkdir(parents=True)
        (own / "build.ninja").touch()
        (own / "extension.so").write_bytes(b"machine code")
        (Path(os.environ["HOME"]) / "notes").write_text("to my other processes")
        return a @ b
"""
HANDED = [
    "cuda_cache_path/4/e65b",
    "home/.cache/extension/build.ninja",
    "home/.cache/extension/extension.so",
    "triton_cache_dir/KEY/__grp__product.json",
    "triton_cache_dir/KEY/product.cubin",
]


def made(folder: Path, candidate: str, level: Level = "L1") -> tuple[Kernels, dict[int, Any]]:
    """Kernel caches for a candidate, and the workers of one replicate, of which only their placement is read."""
    where = PlacementFactory(folder, "cpu", level, frozenset({0}))
    verifier = where.make("verifier")
    (verifier.folder / "cuda_cache_path" / "of the baseline").touch()
    pair = write_pair(folder, candidate)
    kernels = Kernels(pair, Options(LEAST, "small", "cpu", folder), where, verifier, KERNELS)
    return kernels, {
        role: SimpleNamespace(placement=where.make(f"{role}"), loaded=lambda: True)
        for role in (Role.BASELINE, Role.BASELINE_REPEAT, Role.CANDIDATE)
    }


def files(worker: Any) -> list[str]:
    """Names of all but folders in a worker's folders for kernels, links and pipes as well."""
    root = worker.placement.folder
    names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted(name for name in names if name != "output.log")


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_a_program_compiles_once_and_all_its_processes_have_it(tmp_path: Path, level: Level) -> None:
    if level > isolation.probe().level:
        pytest.skip(f"{level} is not to be had here")
    kernels, workers = made(tmp_path, COMPILES, level)
    try:
        workers[Role.BASELINE].loaded = lambda: False
        kernels.begin()
        kernels.wait(workers.values(), 120.0)
        assert kernels.hand_on(workers) == len(HANDED)
    finally:
        kernels.close()
    assert files(workers[Role.CANDIDATE]) == HANDED
    assert files(workers[Role.BASELINE]) == files(workers[Role.BASELINE_REPEAT]) == ["cuda_cache_path/of the baseline"]
    place = workers[Role.CANDIDATE].placement
    [named] = json.loads((place.folder / HANDED[3]).read_text())["child_paths"].values()
    assert named == str(place.seen / HANDED[4])
    assert (place.folder / HANDED[4]).read_bytes() == b"a kernel"
    assert {place.env[name] for name in KERNELS} == {str(place.seen / name.lower()) for name in KERNELS}
    assert (place.seen == workers[Role.BASELINE].placement.seen) == (level != "L1")


@pytest.mark.parametrize(
    "candidate",
    [
        "import time\ndef run(a, b):\n    time.sleep(600)\n",
        "def run(a, b):\n    raise ValueError\n",
        "import nothing\n",
    ],
    ids=["takes long", "raises", "cannot be read"],
)
def test_nobody_waits_for_a_program_that_makes_nothing(
    tmp_path: Path, candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "GRACE_S", 0.01)
    one, workers = made(tmp_path, candidate)
    try:
        one.begin()
        workers[Role.BASELINE].loaded = lambda: "time" in candidate
        one.wait(workers.values(), 120.0)
        assert one._candidate.process.poll() is not None  # whoever takes long is ended: something is measured next
        assert one.hand_on(workers) == 0
    finally:
        one.close()
    assert files(workers[Role.CANDIDATE]) == []


def test_nobody_waits_where_the_baseline_built_nothing_and_no_compiler_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "GRACE_S", 600.0)
    one, workers = made(tmp_path, "import time\ndef run(a, b):\n    time.sleep(60)\n")
    (tmp_path / "verifier" / "cuda_cache_path" / "of the baseline").unlink()
    try:
        one.begin()
        one.wait(workers.values(), 120.0)
        assert one._candidate.process.poll() == -signal.SIGKILL  # it has not been waited for
    finally:
        one.close()


def test_nobody_waits_for_ever_for_workers_that_do_not_load(tmp_path: Path) -> None:
    kernels, workers = made(tmp_path, COMPILES)
    try:
        workers[Role.BASELINE].loaded = lambda: False
        kernels.wait(workers.values(), 0.01)  # of a program that was never let go
        assert kernels.hand_on(workers) == 0
    finally:
        kernels.close()


def test_workers_that_have_loaded_wait_for_a_compiler_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "GRACE_S", 0.0)
    one, workers = made(tmp_path, COMPILES + "    # triton\n")
    try:
        one.begin()
        one.wait(workers.values(), 120.0)
        assert one.hand_on(workers) == len(HANDED)
    finally:
        one.close()


BUILDS = """
    import os, subprocess, time
    def run(a, b):  # compile
        os.symlink("/bin/sleep", os.environ["HOME"] + "/nvcc")
        subprocess.run([os.environ["HOME"] + "/nvcc", "1"], check=True)
        open(os.environ["CUDA_CACHE_PATH"] + "/a kernel", "w").close()
        time.sleep({seconds})
        return a @ b
"""


@pytest.mark.parametrize(("seconds", "patience_s", "files"), [(0, 60.0, 1), (600, 0.1, 0)], ids=["builds", "hangs"])
def test_a_compiler_may_take_longer_than_a_program(
    tmp_path: Path, seconds: int, patience_s: float, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "COMPILING_S", patience_s)
    one, workers = made(tmp_path, BUILDS.format(seconds=seconds))
    place = one._candidate.placement
    try:
        one.begin()
        while not (place.folder / "home" / "nvcc").exists():
            assert one._candidate.process.poll() is None
        one.wait(workers.values(), 0.1)
        assert one.hand_on(workers) == files
    finally:
        one.close()


REBUILT = """
    import time
    time.sleep(2)  # to compile for this process alone
    def run(a, b):
        return a @ b
"""


def test_a_worker_may_compile_again_what_took_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if two seconds were longer than any start."""
    if isolation.probe().level not in isolation.NAMESPACES:
        pytest.skip("nothing is compiled apart without namespaces")
    monkeypatch.setattr(driver, "START_DEADLINE_S", 0.5)
    comparison = judge(tmp_path, REBUILT)
    assert comparison.verdict.value not in ("incorrect", "invalid"), comparison.sentence


def test_a_program_does_not_run_before_it_may(tmp_path: Path) -> None:
    """While the verifier opens the benchmark and makes memory a program could take the machine's time and memory."""
    kernels, workers = made(tmp_path, COMPILES)
    place = kernels._candidate.placement
    try:
        workers[Role.BASELINE].loaded = lambda: False
        kernels.wait(workers.values(), 3.0)
    finally:
        kernels.close()
    assert not (place.folder / "home" / "notes").exists()
    assert files(SimpleNamespace(placement=place)) == []


@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_BYTES"])
def test_who_leaves_too_much_hands_on_nothing(tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    both: Any = [SimpleNamespace(folder=folder, seen=folder) for folder in (source, target)]
    for name in KERNELS:
        (source / name.lower()).mkdir(parents=True)
        (source / name.lower() / "kernel").write_bytes(b"12")
    monkeypatch.setattr(kernels, limit, {"MAX_FILES": 1, "MAX_BYTES": 3}[limit])
    assert kernels.copy(*both, KERNELS) == 0
    assert not target.exists()
    monkeypatch.undo()
    assert kernels.copy(*both, KERNELS) == len(KERNELS)


def test_a_program_cannot_reach_out_of_its_folder_by_what_it_leaves(tmp_path: Path) -> None:
    """The folders of its caches may be links as well."""
    source, target = tmp_path / "from", tmp_path / "to"
    both: Any = [SimpleNamespace(folder=folder, seen=folder) for folder in (source, target)]
    source.mkdir()
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("of somebody else")
    os.symlink(secret, source / KERNELS[0].lower())
    assert kernels.copy(*both, KERNELS) == 0
    assert not target.exists()


def test_a_cache_that_cannot_be_copied_ends_no_comparison(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    both: Any = [SimpleNamespace(folder=folder, seen=folder) for folder in (source, target)]
    (source / KERNELS[0].lower()).mkdir(parents=True)
    (source / KERNELS[0].lower() / "kernel").write_bytes(b"12")
    target.write_text("a file where a folder should be")
    assert kernels.copy(*both, KERNELS) == 0


def test_a_worker_has_loaded_its_libraries_when_it_says_so_or_has_ended() -> None:
    said, say = os.pipe()
    worker = object.__new__(WorkerProcess)
    worker._done = said
    try:
        assert not worker.loaded()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(worker.loaded, 60.0)  # it is woken up by the word, and not by the time
            os.write(say, LOADED)
            assert waiting.result()
        assert os.read(said, 1) == LOADED  # nobody has taken it
        assert not worker.loaded()
    finally:
        os.close(say)
    assert worker.loaded()
    os.close(said)


@pytest.mark.skipif(isolation.probe().level < "L2", reason="processes have no file systems of their own here")
@pytest.mark.parametrize("compiler", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.timeout(300)
def test_workers_on_a_cpu_find_what_torch_compile_has_made(tmp_path: Path, compiler: bool) -> None:
    """A worker raises where it finds nothing; with the real compiler, where that did not come from its cache."""
    result = judge(tmp_path, (COMPILED if compiler else NAMES_ONE), preset=replace(LEAST, replicates=2))
    assert result.verdict != "incorrect", result.sentence
    assert not [flag for flag in result.flags if flag.severity == "fatal"]


NAMES_ONE = """
    # torch.compile
    import os, sys
    from pathlib import Path
    def prepare(params, example):
        made = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "loop.so"
        if "kernel_cache" in sys.argv[0]:
            made.write_bytes(b"machine code")
        return {"size": made.stat().st_size}
    def run(a, b, size):
        return a @ b
"""
COMPILED = """
    import sys, torch
    from torch._dynamo.utils import counters
    chained = torch.compile(lambda a, b: a @ (b * 2 - b), dynamic=False)
    def prepare(params, example):
        chained(**example)
        found = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
        if not found and "kernel_cache" not in sys.argv[0]:
            raise RuntimeError("compiled again")
        return {}
    def run(a, b):
        return chained(a, b)
"""


READS = """from pathlib import Path
(Path(__file__).parent / "_product" / "problem.py").read_text()
"""
ELSEWHERE = """
    # triton
    import os, sys
    from pathlib import Path
    from _common import product
    def run(a, b):
        beside = [path.name for where in sys.argv[1:] for path in Path(where).parent.rglob("optimized_*.py")]
        if set(beside) - {"optimized_product.py"}:
            raise RuntimeError(f"sees {beside}")
        Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "made").touch()
        return product(a, b)
"""


@pytest.mark.skipif(isolation.probe().level < "L2", reason="processes have no file systems of their own here")
def test_a_candidate_elsewhere_has_what_is_shared_and_sees_no_other_candidate(tmp_path: Path) -> None:
    """Beside its baseline lies a solution, which the process that compiles for it could hand on to its workers."""
    suite, own = tmp_path / "suite", tmp_path / "own"
    suite.mkdir()
    own.mkdir()
    pair = write_pair(suite, HONEST)
    (suite / "_common.py").write_text("def product(a, b):\n    return a @ b\n")
    (suite / "optimized_solution.py").write_text(HONEST)
    (suite / "_product").mkdir()  # an adapted problem, and a solution that came with it
    (suite / "_product/problem.py").write_text("SCALE = 1\n")
    (suite / "_product/optimized_other.py").write_text(HONEST)
    pair.baseline.write_text(f"{READS}{pair.baseline.read_text()}")
    pair.path.rename(own / pair.path.name)
    (own / pair.path.name).write_text(textwrap.dedent(ELSEWHERE))
    result = compare(replace(pair, path=own / pair.path.name), Options(LEAST, "small", "cpu", tmp_path))
    assert isinstance(result, Comparison)
    assert not [flag.message for flag in result.flags if flag.severity == "fatal"]
    assert '"files":[1]' in Path(result.log_path or "").read_text()  # who raised hands on nothing
