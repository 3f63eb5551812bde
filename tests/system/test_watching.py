"""Deadlines, the sampler, the manifest, and a fake nvidia-smi."""

from __future__ import annotations

import copy
import gzip
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from trees import CONTAINER, SERVER, plant

from aisp_mcp.system import manifest, sampler
from aisp_mcp.system.command import ask
from aisp_mcp.system.deadline import CallLane, Hung
from aisp_mcp.system.gpu import nvml, smi
from aisp_mcp.system.gpu.nvml import decode_reasons
from aisp_mcp.system.manifest import manifest_difference
from aisp_mcp.system.records import GpuProcess, GpuReading, Problem
from aisp_mcp.system.sampler import flags

TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPIX\t0-47\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\t48-95\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \t\t\t\n\n"
    "Legend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect\n"
    "  NV#  = Connection traversing a bonded set of # NVLinks\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
)


def test_a_call_in_time_gives_its_value_or_its_error() -> None:
    lane = CallLane("test")
    assert lane.call(lambda: 7, 5) == 7
    with pytest.raises(ZeroDivisionError):
        lane.call(lambda: 1 / 0, 5)
    assert lane.call(lambda: 8, 5) == 8


def test_a_hung_call_is_left_behind_and_the_lane_recovers() -> None:
    lane, gate = CallLane("test"), threading.Event()
    with pytest.raises(Hung):
        lane.call(gate.wait, 0.05)
    ran: list[int] = []
    with pytest.raises(Hung):
        lane.call(lambda: ran.append(1), 30)  # refused at once, although it would have waited
    assert ran == []
    gate.set()
    assert lane.call(lambda: 9, 5) == 9


def test_many_callers_wait_for_one_lane() -> None:
    lane, passed = CallLane("test"), []
    threads = [threading.Thread(target=lambda n=n: passed.append(lane.call(lambda: n, 10))) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(passed) == list(range(20))


def test_event_reasons_are_decoded_and_unknown_bits_kept() -> None:
    assert decode_reasons(0x44) == ["sw_power_cap", "hw_thermal_slowdown"]
    assert decode_reasons(0) == []
    assert decode_reasons(None) is None
    assert decode_reasons(0x8001) == ["gpu_idle", "0x8000"]


def fake_smi(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_the_topology_matrix_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out.txt").write_text(TOPOLOGY)
    fake_smi(tmp_path, f"cat {tmp_path}/out.txt", monkeypatch)
    raw, problem = smi.topology()
    assert problem is None
    assert "\x1b" not in raw
    matrix, legend = smi.parse_topology(raw)
    assert matrix["GPU0"]["GPU1"] == "NV18"
    assert matrix["GPU1"]["NIC0"] == "SYS"
    assert matrix["GPU1"]["CPU Affinity"] == "48-95"
    assert matrix["NIC0"]["GPU0"] == "PIX"
    assert (legend["X"], legend["NIC0"]) == ("Self", "mlx5_0")
    assert set(matrix) == {"GPU0", "GPU1", "NIC0"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; exit 9", "SMI_FAILED"),
        ("sleep 60", "DRIVER_HUNG"),
        ("exit 3", "SMI_FAILED"),
    ],
)
def test_a_sick_nvidia_smi_is_an_answer(body: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path, body, monkeypatch)
    raw, problem = smi.topology(timeout_s=0.3 if "sleep" in body else 10)
    assert raw == ""
    assert problem is not None
    assert problem.code == code


def test_without_nvidia_smi_the_answer_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _, problem = smi.topology()
    assert problem is not None
    assert problem.code == "NOT_INSTALLED"
    assert smi.query() is None


def test_a_missing_program_and_a_flood_of_output() -> None:
    assert ask(["/nowhere/at/all"], 5).code is None
    flood = ask(["sh", "-c", "head -c 9000000 /dev/zero | tr '\\0' x"], 30)
    assert flood.code == 0
    assert len(flood.out) == 4_000_000


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "read", lambda *_, **__: GpuReading(problem=Problem(code="NO_DRIVER", message="none")))


@pytest.mark.usefixtures("quiet")
def test_equal_machines_do_not_differ(tmp_path: Path) -> None:
    root = plant(tmp_path, SERVER)
    a, b = manifest.manifest(root), manifest.manifest(root)
    b["at"] = "2001-01-01T00:00:00Z"
    assert manifest_difference(a, b) == []


@pytest.mark.usefixtures("quiet")
def test_a_difference_is_said_in_words(tmp_path: Path) -> None:
    a = manifest.manifest(plant(tmp_path, SERVER))
    a["gpus"] = [{"name": "NVIDIA H200", "uuid": "GPU-1", "power_limit_w": 700.0}]
    b = copy.deepcopy(a)
    b["driver"] = "590.10"
    b["gpus"][0]["power_limit_w"] = 500.0
    b["software"]["torch"] = None
    b["noise"]["steal_percent"] = 40.0
    words = manifest_difference(a, b)
    assert f"driver: {a['driver']} → 590.10" in words
    assert "gpus.0.power_limit_w: 700.0 → 500.0" in words
    assert any(word.startswith("software.torch: ") and word.endswith("→ not set") for word in words)
    assert any(word.startswith("noise.steal_percent") for word in words)
    assert len(words) == 4


@pytest.mark.usefixtures("quiet")
def test_another_number_of_gpus_is_a_difference(tmp_path: Path) -> None:
    a = manifest.manifest(plant(tmp_path, SERVER))
    b = {**copy.deepcopy(a), "gpus": [{"name": "NVIDIA H200"}]}
    assert "gpus.0.name: not set → NVIDIA H200" in manifest_difference(a, b)


@pytest.mark.usefixtures("quiet")
def test_a_manifest_says_unknown_where_the_kernel_is_silent(tmp_path: Path) -> None:
    facts = manifest.manifest(plant(tmp_path, CONTAINER))
    assert facts["settings"]["governor"] == "unknown"
    assert facts["surroundings"]["container"] == "docker"
    assert facts["noise"]["steal_percent"] == 10.0
    assert facts["gpu_problem"] == "NO_DRIVER"


def test_the_sampler_reads_the_kernels_own_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "call", _no_gpu)
    root = plant(tmp_path, CONTAINER)
    with sampler.Sampler(root=root) as watch:
        (root / "proc/stat").write_text("cpu  1040 0 1000 7040 0 0 0 1020 0 0")
        (root / "sys/fs/cgroup/cpu,cpuacct/cpu.stat").write_text("nr_throttled 9\nthrottled_time 3500000000")
        (root / "proc/pressure/cpu").write_text("some avg10=1.00 avg60=0 avg300=0 total=3600005000000")
    seen = watch.summary()
    assert seen["steal_share"] == pytest.approx(0.2)
    assert seen["throttled_s"] == pytest.approx(0.5)
    assert seen["pressure"]["cpu_some"] == 1.0
    assert seen["samples"] >= 2
    assert {"CPU_STEAL", "CPU_QUOTA_THROTTLED", "PRESSURE_CPU"} <= {flag["code"] for flag in seen["flags"]}


def _no_gpu(*_: Any, **__: Any) -> None:
    raise ImportError("pynvml")


def test_a_quiet_machine_raises_no_flag() -> None:
    calm = {
        "steal_share": 0.0,
        "throttled_s": 0.0,
        "pressure": {"cpu_some": 0.01, "memory_full": 0.0, "io_full": None},
        "gpus": [
            {
                "uuid": "GPU-1",
                "sm_mhz": {"min": 1950, "median": 1980, "max": 1980},
                "event_reasons": {"gpu_idle": 1.0},
                "foreign_processes": [],
            }
        ],
        "gpu_problem": None,
    }
    assert flags(calm) == []
    calm["gpus"][0]["sm_mhz"]["min"] = 900
    assert [flag["code"] for flag in flags(calm)] == ["GPU_CLOCK_VARIED"]


def test_what_is_left_of_a_job_is_not_another_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The supervisor inherits processes whose parents were ended; one that is gone by now may have been anybody's."""
    stats = {f"/proc/{pid}/stat": f"{pid} (python) S {parent} 1 1" for pid, parent in ((7, 1), (30, 7), (31, 1))}
    root = plant(tmp_path, stats)
    used = [GpuProcess(pid=pid, kind="compute", used_bytes=1, name="python") for pid in (30, 31, 32)]
    monkeypatch.setattr(sampler, "processes", lambda _: used)
    watch, series = sampler.Sampler(root=root, own_pids=frozenset({7})), sampler._GpuSeries("u")
    watch._read_processes(None, series)  # type: ignore[arg-type]
    assert (set(series.foreign), series.unresolved) == ({31}, {32})


def test_descent_is_followed_to_the_root(tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            "/proc/30/stat": "30 (a b) c) S 20 1 1",
            "/proc/20/stat": "20 (x) S 10 1 1",
            "/proc/10/stat": "10 (y) S 1 1 1",
            "/proc/1/stat": "1 (init) S 0 0 0",
        },
    )
    assert sampler.descends(30, frozenset({10}), root)
    assert not sampler.descends(30, frozenset({11}), root)
    assert not sampler.descends(99, frozenset({10}), root)


def test_the_recorded_h200_matches_the_table() -> None:
    """The facts kept of a real card agree with what nvidia-smi printed of it."""
    import xml.etree.ElementTree as ElementTree

    from aisp_mcp.machine.datasheets import load

    raw = gzip.decompress((Path(__file__).parent / "nvidia_smi_h200.xml.gz").read_bytes())
    gpu = ElementTree.fromstring(raw.partition(b"]>")[2] or raw).find("gpu")
    assert gpu is not None
    facts = load.gpu(gpu.findtext("product_name"))
    assert facts is not None
    assert facts.memory.reported_bytes == int(str(gpu.findtext("fb_memory_usage/total")).split()[0]) << 20
    assert facts.tdp_w == float(str(gpu.findtext("gpu_power_readings/default_power_limit")).split()[0])
    assert facts.pcie is not None
    assert str(facts.pcie.generation) == gpu.findtext("pci/pci_gpu_link_info/pcie_gen/max_link_gen")
