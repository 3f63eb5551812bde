"""Inputs in files, cores of a side, and needs: what a candidate is given, and what a machine lacks."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from harness_support import LEAST, judge, write_pair

from aisp_mcp.bench import File, Folder
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.comparison import compare
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.verifier.inputs import files
from aisp_mcp.process import isolation

NUMBERS = '''
    """Numbers in a file."""
    import os, torch
    from aisp_mcp.bench import Benchmark, File, Folder, Needs, Work
    class Numbers(Benchmark):
        {more}
        def inputs(self, rng):
            parts = {{f"{{i}}.f32": rng.randn(256) for i in range(3)}}
            return {{"path": File(rng.randn(256), "numbers.f32"{cache}), "folder": Folder(parts), "x": rng.randn(1)}}
        def run(self, path, folder, x):
            there = [path, *(os.path.join(folder, name) for name in sorted(os.listdir(folder)))]
            rows = [torch.frombuffer(bytearray(open(one, "rb").read()), dtype=torch.float32) for one in there]
            return torch.stack(rows) * x
'''
CAREFUL = """
    import os, torch
    def refused(action):
        try:
            action()
        except OSError:
            return True
        return False
    def run(path, folder, x):
        assert os.path.basename(path) == "numbers.f32"
        assert len(os.sched_getaffinity(0)) == torch.get_num_threads() == 1
        if {apart}:
            assert refused(lambda: os.listdir(os.path.dirname(os.path.dirname(path))))
            assert refused(lambda: os.chmod(path, 0o600))
            assert refused(lambda: open(path, "r+b"))
            assert refused(lambda: open(os.path.join(folder, "3.f32"), "wb"))
        names = sorted(os.listdir(folder))
        assert names == ["0.f32", "1.f32", "2.f32"]
        rows = [open(one, "rb").read() for one in (path, *(os.path.join(folder, name) for name in names))]
        return torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.float32).view(4, 256) * x
"""
PLAIN = NUMBERS.format(more="threads = 1", cache="")


@pytest.mark.torch
def test_a_candidate_can_read_its_files_and_nothing_more(tmp_path: Path) -> None:
    apart = isolation.probe().level in isolation.NAMESPACES
    comparison = judge(tmp_path, CAREFUL.format(apart=apart), PLAIN)
    assert comparison.verdict.value not in ("incorrect", "invalid"), comparison.sentence
    assert comparison.verification is not None
    assert comparison.verification.checked > 0


@pytest.mark.torch
def test_a_file_of_an_earlier_call_is_a_wrong_answer(tmp_path: Path) -> None:
    kept = """
        import os, torch
        known = {}
        def run(path, folder, x):
            there = [path, *(os.path.join(folder, name) for name in sorted(os.listdir(folder)))]
            rows = [torch.from_file(one, size=256) for one in there]
            return torch.stack([*rows[:3], known.setdefault(os.stat(there[3]).st_size, rows[3].clone())]) * x
    """
    comparison = judge(tmp_path, kept, PLAIN)
    assert [flag.code for flag in comparison.flags if flag.severity == "fatal"] == ["incorrect_output"]


@pytest.mark.torch
@pytest.mark.slow
def test_a_loader_with_processes_of_its_own_is_judged(tmp_path: Path) -> None:
    loader = """
        import os, torch
        from torch.utils.data import DataLoader, Dataset
        class Rows(Dataset):
            def __getitem__(self, path):
                return torch.from_file(path, size=256).clone()
        class Order(list):
            pass
        def prepare(params, example):
            order = Order()
            return {"order": order, "loader": DataLoader(
                Rows(), batch_size=2, sampler=order, num_workers=1, persistent_workers=True)}
        def run(path, folder, x, order, loader):
            order[:] = [path, *(os.path.join(folder, name) for name in sorted(os.listdir(folder)))]
            return torch.cat(list(loader)) * x
    """
    comparison = judge(tmp_path, loader, PLAIN)
    assert comparison.verdict.value not in ("incorrect", "invalid"), comparison.sentence
    assert "child_process" in [flag.code for flag in comparison.flags]


def skipped(folder: Path, baseline: str) -> str:
    """Words about what the machine lacks for a baseline."""
    comparison = compare(write_pair(folder, CAREFUL, baseline), Options(LEAST, "small", "cpu", folder))
    assert isinstance(comparison, Skip)
    assert comparison.code == "NEEDS"
    return comparison.missing


@pytest.mark.torch
def test_a_skip_names_all_that_is_missing(tmp_path: Path) -> None:
    needs = 'Needs(cores=9000, numa=900, cpu=("amx", "no_such"), gpu=("nvlink", "fp8"), tools=("cufile",))'
    words = skipped(tmp_path, NUMBERS.format(more=f"needs = {needs}", cache=""))
    expected = ("9000 cores, found ", "900 NUMA nodes", "processor feature no_such", "CUDA device(s)", "NVLink")
    assert [one for one in expected if one not in words] == []


@pytest.mark.torch
def test_threads_that_the_machine_has_no_cores_for_are_a_skip(tmp_path: Path) -> None:
    words = skipped(tmp_path, NUMBERS.format(more="threads = 9000", cache=""))
    assert words == f"9000 cores, found {len(os.sched_getaffinity(0))}"


@pytest.mark.torch
def test_a_need_that_nobody_knows_is_an_error_of_the_specification(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="Unknown need 'nvcx'"):
        skipped(tmp_path, NUMBERS.format(more='needs = Needs(tools=("nvcx",))', cache=""))


@pytest.mark.torch
@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no tmpfs at /dev/shm")
def test_cold_files_need_a_file_system_that_lets_go_of_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", files.MEMORY)
    assert "set TMPDIR" in skipped(tmp_path, NUMBERS.format(more="", cache=', cache="cold"'))


def test_rounds_are_bounded_by_what_their_files_cost() -> None:
    small = {"path": File(b"x" * 5000)}
    assert files.bytes_of_call(small) == 8192
    assert files.calls_per_round(small, 40) == 40
    assert files.calls_per_round({"path": File(b"x", cache="cold")}, 40) == files.MAX_COLD_CALLS
    assert files.calls_per_round({"path": Folder({str(i): b"x" for i in range(300)})}, 40) == 1
    assert files.calls_per_round({"x": object()}, 40) == 40
    with pytest.raises(BenchmarkError, match="limit is 1024 MiB"):
        files.calls_per_round({"path": File(bytes(files.MAX_CALL_BYTES + 1))}, 40)


@pytest.mark.parametrize("file", [File(b"", "../x"), File(b"", ".."), File("text", "x"), File(b"", "n" * 256)])
def test_a_file_that_cannot_be_written_is_an_error_of_the_specification(file: File) -> None:
    with pytest.raises((BenchmarkError, OSError)), files.opened({"path": file}):
        pass


@pytest.mark.torch
def test_a_change_of_a_file_is_seen(tmp_path: Path) -> None:
    held, value = files.InputFiles({"warm": str(tmp_path)}), Folder({"a": b"one", "b": b"two"})
    held.make()
    address = held.written(1, 0, {"f": value})["f"]
    folder = Path(bytes(address.numpy()).rstrip(b"\0").decode())
    assert sorted(os.listdir(folder)) == ["a", "b"]
    assert held.is_kept(1, 0, "f", address, value)
    assert not held.is_kept(1, 0, "f", address.flip(0), value)
    folder.chmod(0o755)
    (folder / "c").touch()
    assert not held.is_kept(1, 0, "f", address, value)
    (folder / "c").unlink()
    (folder / "a").unlink()
    (folder / "a").write_bytes(b"ONE")
    assert not held.is_kept(1, 0, "f", address, value)
    held.clear(1)
    assert not folder.exists()


@pytest.mark.torch
def test_a_mapped_file_keeps_its_type_in_a_reference(tmp_path: Path) -> None:
    import torch

    from aisp_mcp.judge.verifier.evaluation import evaluate

    path = tmp_path / "x.f32"
    path.write_bytes(torch.arange(3.0).numpy().tobytes())
    outcome = evaluate(lambda: torch.from_file(str(path), size=3))
    assert (outcome.dtype, outcome.tolist()) == (torch.float64, [0.0, 1.0, 2.0])
