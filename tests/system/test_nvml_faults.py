"""Every fault of the driver is an answer: nothing raises, nothing outlasts its deadline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from nvml_stub import build

SCENARIOS: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "scenarios.yaml").read_text())
# A process that imports the product once and copies itself for each script. It never opens NVML, so that each
# copy loads the library that is in LD_LIBRARY_PATH at that moment. A first call of each tool, without a driver, imports
# what the tool needs. The last line of an answer tells the exit code.
SERVER = """
import gc, json, os, sys
from unittest import mock
import pynvml
import aisp_mcp.machine.probes.probe_runner, aisp_mcp.system.sampler
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.calls import execute
from aisp_mcp.server.dispatch.loading import load_tool
from aisp_mcp.settings import Settings
from aisp_mcp.system.gpu import nvml
with mock.patch.object(nvml, "call", side_effect=ImportError):
    for name in sys.argv[1:]:
        load_tool(name, Settings.from_env({}))
        execute(name, {}, Context())
gc.freeze()
for line in sys.stdin:
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        print(f"exit {os.waitstatus_to_exitcode(status)}", flush=True)
        continue
    exec(json.loads(line))
    assert "torch" not in sys.modules
    sys.stdout.flush()
    os._exit(0)  # taking everything down costs more than a script
"""
ASK = """
answers = {name: execute(name, {}, Context()).model_dump(mode="json") for name in %r}
print(json.dumps(answers))
"""
TOOLS = ("gpu_info", "gpu_power", "gpu_topology", "status", "system_capabilities", "triage")
Ask = Callable[..., dict[str, Any]]
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the stub library; it was not found")


class Asked:
    """A copy of one process per question, each with a driver of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._library = folder, folder / "library"
        self._library.mkdir()
        env = {**os.environ, "LD_LIBRARY_PATH": str(self._library), "AISP_HOME": str(folder / "home")}
        command = [sys.executable, "-c", SERVER, *(f"aisp_{name}" for name in TOOLS)]
        self._errors = (folder / "errors").open("w+")
        self.process = subprocess.Popen(
            command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    def lines(self, scenario: dict[str, Any], script: str) -> list[str]:
        """Output of a script in a copy that loads the stub of the scenario as its NVML."""
        build(self._library, scenario)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(script), file=self.process.stdin, flush=True)
        lines = [self.process.stdout.readline()]
        while lines[-1] and not lines[-1].startswith("exit "):
            lines.append(self.process.stdout.readline())
        assert lines.pop() == "exit 0\n", (self._folder / "errors").read_text()[-2000:]
        return lines

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._errors.close()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    server = Asked(tmp_path_factory.mktemp("asked"))
    yield server
    server.close()


@pytest.fixture
def ask(asked: Asked) -> Ask:
    """`ask(scenario, *tools)`: their envelopes, from a process that loads the stub as its NVML."""
    return lambda scenario, *tools: json.loads(*asked.lines(scenario, ASK % (tools,)))


@needs_gcc
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fault_is_an_answer(name: str, ask: Ask) -> None:
    scenario = SCENARIOS[name]
    expected = scenario["expect"]
    answers = ask(scenario, "aisp_gpu_info", "aisp_triage", "aisp_status")
    assert {e["status"] for tool, e in answers.items() if tool != "aisp_gpu_info"} == {"ok"}
    info = answers["aisp_gpu_info"]
    if "code" in expected:
        partial = (info["result"] or {}).get("problem") or {}
        assert (info["error"] or partial)["code"] == expected["code"]
    else:
        assert len(info["result"]["gpus"]) == expected["gpus"]
        assert info["result"]["problem"] is None
    findings = {finding["code"]: finding for finding in answers["aisp_triage"]["result"]["findings"]}
    assert set(expected.get("findings", [])) <= set(findings)
    assert not set(expected.get("absent", [])) & set(findings)
    assert all(f["next"] for f in findings.values())


def test_there_are_at_least_25_scenarios() -> None:
    assert len(SCENARIOS) >= 25


@needs_gcc
def test_findings_are_ranked_by_severity(ask: Ask) -> None:
    worst = {"gpus": [{"ecc_errors": [0, 2, 0, 2], "persistence": 0, "ecc": 1, "mig": [1, 1]}]}
    findings = ask(worst, "aisp_triage")["aisp_triage"]["result"]["findings"]
    rank = [("critical", "warning", "note").index(f["severity"]) for f in findings]
    assert rank == sorted(rank)
    assert findings[0]["code"] in ("ECC_UNCORRECTED", "TORCH_WITHOUT_CUDA")


@needs_gcc
def test_every_number_has_its_unit(ask: Ask) -> None:
    (gpu,) = ask({}, "aisp_gpu_info")["aisp_gpu_info"]["result"]["gpus"]
    assert gpu["name"] == "NVIDIA H200"
    assert gpu["compute_capability"] == "9.0"
    assert gpu["memory"]["total_bytes"] == 150754820096
    assert gpu["memory"]["reserved_bytes"] == 645922816
    assert gpu["power"] == {
        "draw_w": 81.32,
        "instant_w": None,
        "limit_w": 700.0,
        "default_limit_w": 700.0,
        "min_limit_w": 200.0,
        "max_limit_w": 700.0,
        "energy_j": 123456.789,
    }
    assert gpu["clocks"]["sm_max_mhz"] == 1980
    assert gpu["clocks"]["event_reasons"] == ["gpu_idle"]
    assert gpu["pcie"]["bus_id"] == "00000000:00:00.0"
    assert gpu["thermal"] == {"gpu_c": 31, "memory_c": None, "slowdown_c": 87, "shutdown_c": 92, "margin_c": None}


@needs_gcc
def test_an_old_driver_is_read_through_its_older_functions(ask: Ask) -> None:
    (gpu,) = ask(SCENARIOS["old_driver"], "aisp_gpu_info")["aisp_gpu_info"]["result"]["gpus"]
    assert gpu["memory"]["total_bytes"] == 150754820096
    assert gpu["memory"]["reserved_bytes"] is None
    assert gpu["clocks"]["event_reasons"] == ["gpu_idle"]
    assert gpu["activity"]["processes"] is None
    assert "RemappedRows" in gpu["unread"]


@needs_gcc
def test_a_lost_gpu_does_not_hide_its_neighbours(ask: Ask) -> None:
    gpus = ask(SCENARIOS["gpu_lost"], "aisp_gpu_info")["aisp_gpu_info"]["result"]["gpus"]
    assert gpus[0]["problem"] is None
    assert gpus[0]["name"] == "NVIDIA H200"
    assert gpus[1]["problem"]["code"] == "GPU_LOST"


@needs_gcc
def test_power_decodes_reasons_and_topology_counts_links(ask: Ask) -> None:
    pair = {"gpus": [{"nvlinks": 18, "reasons": 0x24}, {"nvlinks": 18}]}
    answers = ask(pair, "aisp_gpu_power", "aisp_gpu_topology", "aisp_system_capabilities")
    first = answers["aisp_gpu_power"]["result"]["gpus"][0]
    assert first["event_reasons"] == ["sw_power_cap", "sw_thermal_slowdown"]
    assert first["limited"] is True
    topology = answers["aisp_gpu_topology"]["result"]
    assert topology["gpus"][0]["nvlinks"] == 18
    assert topology["gpus"][0]["nvlink_version"] == "4.0"
    assert topology["gpus"][0]["nvlink_per_direction_bytes_s"] == 450e9
    assert topology["gpus"][0]["pcie_per_direction_bytes_s"] == pytest.approx(63.0e9, rel=0.001)
    assert topology["pairs"] == [
        {"a": 0, "b": 1, "ancestor": "SYS", "nvlink": True, "read": "ok", "write": "ok", "atomics": "ok"}
    ]
    known = answers["aisp_system_capabilities"]["result"]["gpus"][0]
    assert known["facts"]["sku"] == "H200-SXM"
    assert known["limits"]["shared_bytes_per_sm"] == 233472


@needs_gcc
def test_an_unknown_card_has_no_facts(ask: Ask) -> None:
    answer = ask(SCENARIOS["unknown_card"], "aisp_system_capabilities")
    (known,) = answer["aisp_system_capabilities"]["result"]["gpus"]
    assert known["facts"] is None
    assert known["limits"] is None
    assert len(known["unknown"]) == 2


@needs_gcc
def test_mig_instances_are_listed(ask: Ask) -> None:
    (gpu,) = ask(SCENARIOS["mig"], "aisp_gpu_info")["aisp_gpu_info"]["result"]["gpus"]
    assert gpu["modes"]["mig"] is True
    assert [m["index"] for m in gpu["modes"]["mig_devices"]] == [0, 1, 2]


@needs_gcc
def test_gpu_uuids_are_read_for_the_measuring_locks(asked: Asked) -> None:
    (line,) = asked.lines({"gpus": [{}, {}]}, "print(*nvml.gpu_uuids())")
    assert line.split() == [f"GPU-00000000-0000-0000-0000-00000000000{n}" for n in range(2)]


@needs_gcc
def test_the_sampler_sees_throttling_and_foreign_processes(asked: Asked) -> None:
    scenario = {"gpus": [{"reasons": 0x40, "compute": [[1, 1 << 30], [4194000, 1 << 20]]}]}
    script = (
        "from aisp_mcp.system.sampler import Sampler\n"
        "with Sampler(interval_s=0.01) as watch: pass\n"
        "print(json.dumps(watch.summary()))"
    )
    summary = json.loads(*asked.lines(scenario, script))
    (gpu,) = summary["gpus"]
    assert gpu["event_reasons"] == {"hw_thermal_slowdown": 1.0}
    assert [p["pid"] for p in gpu["foreign_processes"]] == [1]
    assert gpu["unresolved_pids"] == [4194000]
    assert {"GPU_HW_THERMAL_SLOWDOWN", "GPU_SHARED"} <= {flag["code"] for flag in summary["flags"]}
    assert gpu["sm_mhz"]["median"] == 450


@needs_gcc
def test_the_clock_of_an_idle_gpu_is_not_one_of_the_measurement(asked: Asked) -> None:
    script = (
        "from aisp_mcp.system.sampler import Sampler\n"
        "with Sampler(interval_s=0.01) as watch: pass\n"
        "print(watch.summary()['gpus'][0]['sm_mhz'])"
    )
    assert asked.lines({"gpus": [{"reasons": 0x1}]}, script) == ["None\n"]


@needs_gcc
@pytest.mark.parametrize("scenario", ["init_hangs", "count_fails", "gpu_lost_while_counting"])
def test_a_sick_driver_is_not_taken_for_an_absent_card(scenario: str, asked: Asked) -> None:
    """A probe of the GPU is refused with the driver's problem, and one that falls back to the CPU says why."""
    faults = {**SCENARIOS, "gpu_lost_while_counting": {"rc": {"nvmlDeviceGetHandleByIndex_v2": 15}}}
    code = {"init_hangs": "DRIVER_HUNG", "count_fails": "OPERATING_SYSTEM"}.get(scenario, "GPU_LOST")
    script = (
        "from aisp_mcp.errors import Unavailable; from aisp_mcp.machine.probes import probe_runner\n"
        "try: probe_runner.require_gpu()\n"
        "except Unavailable as error: print(error.code)\n"
        "print(probe_runner.unknown_note(probe_runner.choose())[0])"
    )
    refused, why = asked.lines(faults[scenario], script)
    assert refused.strip() == code
    assert why.startswith(f"The GPU was not measured. {code}")
