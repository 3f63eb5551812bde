"""The probes' arithmetic, and the CPU variants end to end."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import ProcessError, Unavailable
from aisp_mcp.machine.datasheets import load
from aisp_mcp.machine.probes import cache_host, device_probes, disk, network, probe_runner
from aisp_mcp.machine.probes.children import gemm, nccl
from aisp_mcp.machine.probes.children.child import MARK
from aisp_mcp.machine.probes.children.timing import Clock, TimedWork, measure
from aisp_mcp.machine.probes.collectives import parse_nccl_tests
from aisp_mcp.machine.probes.disk import probe as disk_probe
from aisp_mcp.machine.probes.probe_runner import rate
from aisp_mcp.system.bus import FACTORS
from aisp_mcp.system.topology import pcie_bytes_s

MIB = 1 << 20
FIO_LOOKS = (20, 40, 80)  # rounds after which the comparison with fio may end


class _Torch:
    """The part of torch that a CPU clock needs: nothing."""


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    rng = random.Random(7)
    for n in (6, 12, 20):
        rates = [rate([rng.gauss(5, 2) for _ in range(n)]) for _ in range(2000)]
        level = rates[0].level
        assert level >= 0.95
        covered = sum(r.low <= 5 <= r.high for r in rates) / len(rates)
        assert covered == pytest.approx(level, abs=0.02)


def test_few_rounds_promise_less() -> None:
    assert rate([1.0]).level == 0.0
    assert rate([1.0, 2.0, 3.0]).level == 0.75
    assert (rate([3.0, 1.0, 2.0]).low, rate([3.0, 1.0, 2.0]).high) == (1.0, 3.0)
    with pytest.raises(ValueError, match="no samples"):
        rate([])


def test_rounds_interleave_and_reverse() -> None:
    calls: list[str] = []
    works = [TimedWork(name, 1.0, lambda name=name: calls.append(name)) for name in "ab"]
    samples = measure(works, Clock(_Torch(), "cpu"), rounds=3, budget_s=60, burst_s=1e-9)
    assert [len(v) for v in samples.values()] == [3, 3]
    assert calls[-6:] == list("abbaab")


def test_the_budget_ends_the_rounds_but_one_is_kept() -> None:
    samples = measure(
        [TimedWork("a", 1.0, lambda: None)], Clock(_Torch(), "cpu"), rounds=50, budget_s=0.0, burst_s=1e-9
    )
    assert len(samples["a"]) == 1


def test_a_slow_dtype_is_measured_with_smaller_products() -> None:
    """A product of edge n takes n^3 / 1e9 seconds of the second path, and a path that fails decides nothing."""

    class Slow(Clock):
        def seconds(self, call: Callable[[], Any], n: int) -> float:
            return float(call())

    def failing() -> None:
        raise RuntimeError("not in this build")

    def paths(edge: int) -> list[TimedWork]:
        calls = (lambda: 0.0, lambda: edge**3 / 1e9, failing)
        return [TimedWork("int8", 1.0, call) for call in calls]

    clock = Slow(_Torch(), "cpu")
    chosen = [gemm.affordable(paths, 2048, clock, limit_s) for limit_s in (math.inf, 100.0, 8.6, 8.5, 0.2, 0.001)]
    assert chosen == [2048, 2048, 2048, 1024, 512, 256]
    assert gemm.affordable(paths, 1000, clock, 0.5) == 500
    assert gemm.affordable(paths, 64, clock, 0.0) == 64


def test_bus_bandwidth_factors_are_those_of_nccl_tests() -> None:
    assert {name: factor(4) for name, factor in FACTORS.items()} == {
        "all_reduce": 1.5,
        "all_gather": 0.75,
        "reduce_scatter": 0.75,
        "all_to_all": 0.75,
        "broadcast": 1.0,
        "reduce": 1.0,
    }
    assert nccl.sizes(1024, 1 << 20) == [1 << n for n in (10, 12, 14, 16, 18, 20)]
    assert nccl.sizes(8, 8) == [8]


def test_pcie_theory() -> None:
    assert pcie_bytes_s(5, 16) == pytest.approx(63.0e9, rel=0.001)
    assert pcie_bytes_s(4, 16) == pytest.approx(31.5e9, rel=0.001)
    assert pcie_bytes_s(3, 8) == pytest.approx(7.88e9, rel=0.001)
    assert pcie_bytes_s(None, 16) is None
    assert pcie_bytes_s(9, 16) is None


@pytest.mark.parametrize(("card", "fp64"), [("NVIDIA H200", 66.9e12), ("NVIDIA L40S", None)])
def test_fp64_products_are_placed_against_the_units_that_compute_them(card: str, fp64: float | None) -> None:
    facts = load.gpu(card)
    assert facts is not None
    specs = probe_runner.peak_specs(probe_runner.Device("cuda:0", card, "GPU-1", facts))
    assert specs["bf16"].value == pytest.approx(facts.peak["bf16"].dense * 1e12)
    assert (specs["fp64"].value if "fp64" in specs else None) == (fp64 and pytest.approx(fp64))


def test_working_sets_have_two_steps_per_octave() -> None:
    assert cache_host.sizes(16384) == [4096, 6144, 8192, 12288, 16384]


def test_the_interpreter_ring_is_one_cycle() -> None:
    words = cache_host._ring(4096)
    seen, at = set(), 0
    for _ in range(64):
        seen.add(at)
        at = words[at]
    assert len(seen) == 64
    assert at == 0


@pytest.mark.skipif(cache_host.compiler() is None, reason="no C compiler")
def test_the_compiled_chase_measures_every_set(tmp_path: Path) -> None:
    program = cache_host.compiler()
    assert program is not None
    levels = cache_host.by_compiler(program, tmp_path, 64 << 10, rounds=1, timeout_s=30)
    assert list(levels["latency_ns"]) == cache_host.sizes(64 << 10)
    assert all(value > 0 for values in levels["latency_ns"].values() for value in values)
    assert all(value > 0 for values in levels["bandwidth"].values() for value in values)


def test_the_interpreter_finds_memory_slower_than_cache() -> None:
    levels = cache_host.by_interpreter(4 * MIB, rounds=1)
    assert set(levels["latency_ns"]) == set(cache_host.sizes(4 * MIB))
    assert levels["bandwidth"] == {}
    assert "difference" in levels["method"]


def test_an_answer_is_the_last_marked_line() -> None:
    out = f'noise\n{MARK}{{"a": 1}}\nmore noise {MARK}\n{MARK}{{"a": 2}}\nbye'
    assert probe_runner.answer(out) == {"a": 2}
    assert probe_runner.answer("nothing") is None


def test_a_probe_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aisp_mcp.system.software.version", lambda name: None)
    with pytest.raises(Unavailable) as caught:
        probe_runner.ask("gemm", {}, 5)
    assert caught.value.code == "NOT_INSTALLED"
    assert "aisp-mcp[bench]" in str(caught.value.hint)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("gemm", {"dtypes": ["fp32", "int8", "fp8"], "size": 128}, {"fp32", "int8"}),
        pytest.param(
            "bandwidth",
            {"kinds": ["copy", "read", "write", "triad"], "size_bytes": MIB},
            {"copy", "read", "write", "triad"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "attention",
            {"batch": 1, "heads": 2, "sequence": 64, "head_dim": 32, "dtype": "fp32"},
            {"sdpa_full", "sdpa_causal"},
            marks=pytest.mark.slow,
        ),
        pytest.param("launch", {}, {"operator_dispatch", "parallel_operator", "process_start"}, marks=pytest.mark.slow),
    ],
)
def test_cpu_probes_give_positive_samples(
    monkeypatch: pytest.MonkeyPatch, name: str, params: dict[str, Any], expected: set[str]
) -> None:
    if name != "launch":  # which compares one thread with several
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
    reply = probe_runner.ask(name, {"device": "cpu", "rounds": 1, "budget_s": 0.1, **params}, 60)
    # whether this build can do fp8 or not, it has an answer: what the device lacks is named, not dropped
    assert ("fp8" in reply["samples"]) + ("fp8" in reply.get("skipped", [])) == (name == "gemm")
    assert set(reply["samples"]) - {"fp8"} == expected
    assert all(value > 0 for values in reply["samples"].values() for value in values)


@pytest.mark.torch
def test_a_probe_that_fails_is_an_error_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('no such luck')")
    with pytest.raises(ProcessError, match="pcie probe: RuntimeError: no such luck") as caught:
        probe_runner.ask("pcie", {}, 60, environ={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert caught.value.code == "PROBE_FAILED"


@pytest.mark.torch
@pytest.mark.slow  # quick: the tool itself, in test_machine_tools.py
def test_collectives_run_on_cpu_ranks() -> None:
    params = {
        "backend": "gloo",
        "collectives": list(FACTORS),
        "min_bytes": 1024,
        "max_bytes": 4096,
        "rounds": 1,
        "iterations": 2,
    }
    reply = probe_runner.ask_ranks(params, 2, 60)
    assert {row["collective"] for row in reply["rows"]} == set(FACTORS)
    assert all(value > 0 for row in reply["rows"] for value in row["busbw"])


def test_nccl_tests_json_is_read_in_bytes() -> None:
    row = {"size": 1048576, "out_of_place": {"time": 10.0, "alg_bw": 100.0, "bus_bw": 187.5}}
    assert parse_nccl_tests({"results": [row]}) == [(1048576, 187.5e9)]


def test_perftest_output_is_read_in_bytes() -> None:
    text = (
        "---\n #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
        " 65536      5000             395.10             392.40              0.748\n---\n"
    )
    assert network.parse_perftest(text) == 392.4e9 / 8
    with pytest.raises(ProcessError):
        network.parse_perftest("Couldn't connect")


def test_loopback_tcp_moves_bytes() -> None:
    samples = network.tcp_loopback(0.5)
    assert len(samples) == 1
    assert samples[0] > 0


def test_rdma_without_an_adapter_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        network.check_rdma(None, tmp_path)
    assert caught.value.code == "NO_HCA"
    assert "/sys/class/infiniband" in caught.value.message


def test_the_disk_probe_tells_cached_from_uncached_and_leaves_nothing(tmp_path: Path) -> None:
    probe = disk_probe(tmp_path, 8 * MIB, MIB, "builtin", 60, lambda *_: None)
    names = {item.name for item in probe.results}
    assert {"write_synced", "read_cached"} <= names
    assert ("read_direct" in names) or "O_DIRECT" in probe.notes[0] or "memory" in probe.notes[0]
    assert list(tmp_path.iterdir()) == []
    assert probe.conditions["engine"] == "builtin"


def test_a_full_disk_is_refused_before_it_is_filled(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        disk.check_space(tmp_path, 1 << 60)
    assert caught.value.code == "DISK_FULL"
    with pytest.raises(Unavailable) as missing:
        disk.check_space(tmp_path / "nowhere", 1)
    assert missing.value.code == "NO_FOLDER"


def test_the_scratch_file_goes_even_when_the_measurement_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), disk.scratch(tmp_path):
        raise RuntimeError("stop")
    assert list(tmp_path.iterdir()) == []


def test_files_of_killed_processes_are_removed_and_others_kept(tmp_path: Path) -> None:
    dead, alive = tmp_path / ".aisp-disk-4194304-abc", tmp_path / f".aisp-disk-{os.getpid()}-abc"
    dead.touch()
    alive.touch()
    with disk.scratch(tmp_path) as path:
        assert path.exists()
    assert [file.name for file in tmp_path.iterdir()] == [alive.name]


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="rsvg-convert is not installed")
def test_a_chart_becomes_a_png(tmp_path: Path) -> None:
    svg = tmp_path / "a.svg"
    svg.write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><rect width="4" height="4"/></svg>')
    assert (
        device_probes.draw_png(device_probes.find_renderer(), svg, tmp_path / "a.png", (8, 8))
        .read_bytes()
        .startswith(b"\x89PNG")
    )


def test_a_png_without_a_painter_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable) as caught:
        device_probes.find_renderer()
    assert caught.value.code == "NOT_INSTALLED"


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
def test_iperf3_over_loopback_gives_rates() -> None:
    samples = network.iperf3("loopback", 1, 30)
    assert samples
    assert all(value > 0 for value in samples)


def test_fio_bandwidth_uses_latencies_where_its_clock_is_coarse() -> None:
    figures = {"runtime": 20, "bw_bytes": 1.0, "io_bytes": 256 * MIB, "lat_ns": {"mean": 100_000.0, "N": 256}}
    assert disk.bytes_per_second(figures, synced=False) == pytest.approx(MIB / 100e-6)
    assert disk.bytes_per_second(figures, synced=True) == 1.0
    assert disk.bytes_per_second({**figures, "runtime": 900}, synced=False) == 1.0


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("pattern", disk.PATTERNS)
def test_fio_agrees_for_the_same_pattern(pattern: str, tmp_path: Path) -> None:
    """Passes in turns and in mirrored order, over the same file and memory, until their ratio is known to 5 %.

    The interval of the ratio's median must lie within 5 % of one. A disk whose noise leaves it wider after so many
    rounds shows neither agreement nor a difference; one that is outside altogether is a difference.
    """
    program = disk.find_fio()
    assert program is not None
    with disk.scratch(tmp_path) as path, disk.AlignedBuffer(MIB) as buffer:
        ours, theirs = disk.Builtin(path, 256 * MIB, buffer), disk.Fio(program, path, 256 * MIB, buffer, 60)
        ours.measure("write_synced")
        if ours.measure(pattern) is None:
            pytest.skip("no O_DIRECT here")
        ratios: list[float] = []
        for looked in FIO_LOOKS:
            while len(ratios) < looked:
                order = (ours, theirs) if len(ratios) % 2 else (theirs, ours)
                rates = {probe.name: probe.measure(pattern) or 0.0 for probe in order}
                ratios.append(rates["builtin"] / rates["fio"])
            agreement = rate(ratios)
            if 0.95 <= agreement.low <= agreement.high <= 1.05 or agreement.high < 0.95 or agreement.low > 1.05:
                break
    message = f"ours is {agreement.median:.3f} of fio [{agreement.low:.3f}, {agreement.high:.3f}], {len(ratios)} rounds"
    assert agreement.high >= 0.95, message
    assert agreement.low <= 1.05, message
    if agreement.low < 0.95 or agreement.high > 1.05:
        pytest.skip(f"this disk is too noisy to tell: {message}")


def test_the_child_refuses_unknown_probes() -> None:
    command = [sys.executable, "-m", "aisp_mcp.machine.probes.children.child", "os"]
    done = subprocess.run(command, input=json.dumps({}), capture_output=True, text=True, check=False)
    assert done.returncode == 2
