"""Comparisons that follow one another: each leaves a verifier to the next, which has opened the specification."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from harness_support import HONEST, LEAST, PRODUCT, write_pair
from waiting import until

from aisp_mcp.bench.sizes import Sizes
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.comparison import Options, compare, keep_libraries_loaded, loaded_in
from aisp_mcp.judge.parent.processes import forked
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.process import isolation

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(180),
    pytest.mark.skipif(isolation.probe().level not in isolation.NAMESPACES, reason="no namespaces here"),
]
WRONG = "def run(a, b):\n    return a @ b + 1\n"
FROM_FILE = """
    import torch
    from aisp_mcp.bench import Benchmark, File
    class Sum(Benchmark):
        def inputs(self, rng):
            return {"data": File(rng.randn(4096), "data.f32")}
        def run(self, data):
            return torch.from_file(data, size=4096) * 2
"""
READS = "import torch\ndef run(data):\n    return torch.from_file(data, size=4096) + torch.from_file(data, size=4096)\n"


@pytest.fixture(scope="module")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Folders of processes that keep libraries loaded, which are removed at the end."""
    folders: list[Path] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forked, "_servers", {})  # other tests must not use those of these folders
        yield folders
        forked._close()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def kept(_kept: list[Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such a folder; a new one where a test has removed the last."""
    if not _kept or not _kept[-1].is_dir():
        forked._close()
        forked._servers.clear()
        _kept.append(tmp_path_factory.mktemp("kept"))
        assert keep_libraries_loaded(Options(LEAST, "small", "cpu", tmp_path), _kept[-1], 600)
    return _kept[-1]


class Follower:
    """Comparisons in one folder. seen: pids of the verifiers in the folder while the last one was measured."""

    def __init__(self, folder: Path, kept: Path) -> None:
        self.folder, self.kept, self.seen = folder, kept, set[int]()

    def compare(self, candidate: str, size: str = "small", baseline: str = PRODUCT, followed: bool = True) -> str:
        """The verdict."""
        pair = write_pair(self.folder, candidate, baseline)
        with loaded_in(self.kept, lambda: followed):
            done = compare(pair, Options(LEAST, size, "cpu", self.folder), self._look)
        assert isinstance(done, Comparison)
        return done.verdict.value

    def verifiers(self) -> set[int]:
        """Pids of the verifiers that were left in the folder, or were taken from it."""
        found = set()
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                server = process.parent()  # unlike that of the process that watches it
                is_left = server and Path(server.cwd()) == self.kept == Path(process.cwd()).parent
                found |= {process.pid} if is_left else set()
        return found

    def left(self) -> psutil.Process:
        """The verifier that the last comparison has left; it may still be starting."""
        (pid,) = until(lambda: found if len(found := self.verifiers()) == 1 else set())
        return psutil.Process(pid)

    def _look(self, done: float, total: float, message: str) -> None:
        if "replicate" in message:
            self.seen = self.verifiers()


@pytest.fixture
def follower(tmp_path: Path, kept: Path) -> Follower:
    return Follower(tmp_path, kept)


def test_each_comparison_takes_the_verifier_that_was_left_to_it(follower: Follower) -> None:
    assert follower.compare(WRONG) == "incorrect"
    assert follower.seen == set()
    left = follower.left()
    assert follower.compare(HONEST) not in ("incorrect", "invalid")
    assert follower.seen == {left.pid}
    last = follower.left()
    assert last != left  # no verifier compares two candidates
    assert follower.compare(WRONG, followed=False) == "incorrect"
    assert follower.seen == {last.pid}
    assert follower.verifiers() == set()
    assert len(list(follower.kept.iterdir())) == 2  # the sockets of the two that keep libraries loaded


@pytest.mark.slow
def test_one_that_opened_another_size_is_ended(follower: Follower) -> None:
    follower.compare(WRONG)
    left = follower.left()
    assert follower.compare(HONEST, Sizes("small", {"n": 96}).text(), followed=False) != "incorrect"
    assert follower.seen == set()
    assert not left.is_running()


@pytest.mark.slow
def test_one_of_a_changed_specification_is_ended(follower: Follower) -> None:
    follower.compare(WRONG)
    assert follower.compare(HONEST, baseline=PRODUCT.replace("a @ b", "a @ b + 1")) == "incorrect"
    assert follower.seen == set()


def test_a_killed_one_is_not_missed(follower: Follower) -> None:
    follower.compare(WRONG)
    left = follower.left()
    left.kill()
    until(lambda: left.status() == psutil.STATUS_ZOMBIE)  # until its server asks for its exit code
    assert follower.compare(HONEST, followed=False) not in ("incorrect", "invalid")
    assert follower.compare(WRONG, followed=False) == "incorrect"


def test_none_is_left_after_an_error_or_for_inputs_in_files(follower: Follower) -> None:
    with pytest.raises(BenchmarkError):
        follower.compare(HONEST, baseline=PRODUCT.replace("a @ b", "a @ b.nothing"))
    assert follower.verifiers() == set()
    assert follower.compare(READS, baseline=FROM_FILE) != "incorrect"
    assert follower.verifiers() == set()


def test_it_ends_with_its_folder(follower: Follower) -> None:
    follower.compare(HONEST)
    left = follower.left()
    shutil.rmtree(follower.kept)
    assert psutil.wait_procs([left], timeout=60)[1] == []
