"""Build a libnvidia-ml.so.1 that answers as a scenario says, so that every fault of a driver can be met without one.

A scenario (scenarios.yaml) has:
    driver, cuda: versions; gpus: one mapping per GPU, the defaults overridden
    rc: function name to NVML return code, or to {gpu index: code}
    hang: function names that never return in time
    missing: functions left out of the library, as in an older driver
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

GPU: dict[str, Any] = {
    "name": "NVIDIA H200",
    "uuid": "GPU-00000000-0000-0000-0000-00000000000{index}",
    "cc": [9, 0],
    "memory": [150754820096, 616 << 20],  # total, used
    "bus_id": "00000000:0{index}:00.0",
    "util": [0, 0],
    "pstate": 0,
    "compute": [],  # [pid, bytes] pairs
    "reasons": 0x1,
    "sm": [450, 1980, 1980],  # now, highest, application
    "mem_clock": [3201, 3201, 3201],
    "power_mw": [81320, 700000, 700000, 200000, 700000],  # draw, limit, default, min, max
    "energy_mj": 123456789,
    "temperature": [31, 87, 92],  # now, slowdown, shutdown
    "ecc": 1,
    "ecc_errors": [0, 0, 0, 0],  # corrected volatile, uncorrected volatile, corrected and uncorrected aggregate
    "remapped": [0, 0, 0, 0],  # correctable, uncorrectable, pending, failed
    "retired": [0, 0],  # pages by cause
    "retired_pending": 0,
    "pcie": [5, 5, 16, 16, 0],  # generation, highest, width, highest, replays
    "persistence": 1,
    "compute_mode": 0,
    "virtual": 1,
    "mig": [0, 0],
    "mig_devices": 0,
    "nvlinks": 0,
    "nvlink_version": 6,
}

_HEAD = """
#include <stddef.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>
typedef unsigned int u32; typedef unsigned long long u64; typedef int rc_t; typedef void *dev_t_;
#define N %(count)d
#define MIG_BASE 1000
static int gpu_of(dev_t_ d) { size_t v = (size_t)d; return v >= MIG_BASE ? (int)((v - MIG_BASE) / 16) : (int)v - 1; }
static rc_t text(const char *from, char *to, u32 size) {
    if (strlen(from) + 1 > size) return 7;
    strcpy(to, from); return 0;
}
"""


def build(folder: Path, scenario: dict[str, Any]) -> Path:
    """Compile the library into folder; returns the folder for LD_LIBRARY_PATH. Raises CalledProcessError."""
    gcc = shutil.which("gcc")
    assert gcc is not None
    source = folder / "nvml_stub.c"
    source.write_text(render(scenario))
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([gcc, "-shared", "-fPIC", "-O0", "-w", "-o", str(library), str(source)], check=True)
    return folder


def render(scenario: dict[str, Any]) -> str:
    """The C source."""
    gpus = [
        {key: value.format(index=index) if isinstance(value, str) else value for key, value in {**GPU, **own}.items()}
        for index, own in enumerate(scenario.get("gpus", [{}]))
    ]
    return _Source(scenario, gpus).render()


class _Source:
    """Writes one function after the other, each with the scenario's faults in front of its body."""

    def __init__(self, scenario: dict[str, Any], gpus: list[dict[str, Any]]) -> None:
        self.scenario, self.gpus = scenario, gpus
        self.parts = [_HEAD % {"count": max(1, len(gpus))}]

    def fn(self, name: str, arguments: str, body: str) -> None:
        if name in self.scenario.get("missing", []):
            return
        lines = []
        if name in self.scenario.get("hang", []):
            lines.append("sleep(600);")
        code = self.scenario.get("rc", {}).get(name)
        if isinstance(code, int):
            lines.append(f"return {code};")
        elif code:
            of_gpu = "(int)i" if name == "nvmlDeviceGetHandleByIndex_v2" else "gpu_of(d)"
            lines += [f"if ({of_gpu} == {gpu}) return {value};" for gpu, value in code.items()]
        self.parts.append(f"rc_t {name}({arguments}) {{ {' '.join(lines)} {body} return 0; }}")

    def table(self, key: str, item: int | None = None, kind: str = "u64") -> str:
        """A C array of one value per GPU; returns its name."""
        name = f"t_{key}_{'x' if item is None else item}"
        values = [gpu[key] if item is None else gpu[key][item] for gpu in self.gpus] or [0]
        text = ", ".join(f'"{v}"' if kind == "const char *" else f"{v}ull" for v in values)
        self.parts.append(f"static {kind} {name}[] = {{{text}}};")
        return name

    def number(self, name: str, key: str, item: int | None = None, extra: str = "", kind: str = "u32") -> None:
        array = self.table(key, item)
        self.fn(name, f"dev_t_ d{extra}, {kind} *out", f"*out = {array}[gpu_of(d)];")

    def render(self) -> str:
        self._system()
        self._identity()
        self._memory()
        self._clocks()
        self._power()
        self._health()
        self._links()
        self._mig()
        return "\n".join(self.parts) + "\n"

    def _system(self) -> None:
        self.fn("nvmlInitWithFlags", "u32 f", "")
        self.fn("nvmlInit_v2", "void", "")
        self.fn("nvmlShutdown", "void", "")
        driver, cuda = self.scenario.get("driver", "580.159.04"), self.scenario.get("cuda", 13000)
        self.fn("nvmlSystemGetDriverVersion", "char *s, u32 n", f'return text("{driver}", s, n);')
        self.fn("nvmlSystemGetCudaDriverVersion", "int *v", f"*v = {cuda};")
        self.fn("nvmlDeviceGetCount_v2", "u32 *n", f"*n = {len(self.gpus)};")
        body = "if (i >= N) return 2; *d = (dev_t_)(size_t)(i + 1);"
        self.fn("nvmlDeviceGetHandleByIndex_v2", "u32 i, dev_t_ *d", body)

    def _identity(self) -> None:
        for name, key in (("nvmlDeviceGetName", "name"), ("nvmlDeviceGetUUID", "uuid")):
            array = self.table(key, kind="const char *")
            mig = 'if ((size_t)d >= MIG_BASE) return text("MIG-1", s, n);'
            self.fn(name, "dev_t_ d, char *s, u32 n", f"{mig} return text({array}[gpu_of(d)], s, n);")
        major, minor = self.table("cc", 0), self.table("cc", 1)
        body = f"*a = {major}[gpu_of(d)]; *b = {minor}[gpu_of(d)];"
        self.fn("nvmlDeviceGetCudaComputeCapability", "dev_t_ d, int *a, int *b", body)
        bus = self.table("bus_id", kind="const char *")
        struct = "struct { char legacy[16]; u32 v[5]; char bus[32]; } *p"
        self.fn("nvmlDeviceGetPciInfo_v3", f"dev_t_ d, {struct}", f"strcpy(p->bus, {bus}[gpu_of(d)]);")
        self.number("nvmlDeviceGetPersistenceMode", "persistence")
        self.number("nvmlDeviceGetComputeMode", "compute_mode")
        self.number("nvmlDeviceGetVirtualizationMode", "virtual")
        self.number("nvmlDeviceGetPerformanceState", "pstate")

    def _memory(self) -> None:
        total, used = self.table("memory", 0), self.table("memory", 1)
        old = f"p->total = {total}[gpu_of(d)]; p->used = {used}[gpu_of(d)]; p->free = p->total - p->used;"
        self.fn("nvmlDeviceGetMemoryInfo", "dev_t_ d, struct { u64 total, free, used; } *p", old)
        struct = "struct { u32 version; u64 total, reserved, free, used; } *p"
        self.fn("nvmlDeviceGetMemoryInfo_v2", f"dev_t_ d, {struct}", old + " p->reserved = 645922816ull;")
        gpu, memory = self.table("util", 0), self.table("util", 1)
        body = f"p->gpu = {gpu}[gpu_of(d)]; p->memory = {memory}[gpu_of(d)];"
        self.fn("nvmlDeviceGetUtilizationRates", "dev_t_ d, struct { u32 gpu, memory; } *p", body)
        self._processes()

    def _processes(self) -> None:
        rows = []
        for index, gpu in enumerate(self.gpus):
            for at, (pid, used) in enumerate(gpu["compute"]):
                rows.append(f"if (gpu_of(d) == {index}) {{ p[{at}].pid = {pid}; p[{at}].used = {used}ull; }}")
        counts = ", ".join(str(len(gpu["compute"])) for gpu in self.gpus) or "0"
        self.parts.append(f"static u32 t_processes[] = {{{counts}}};")
        struct = "struct { u32 pid; u64 used; u32 gi, ci; } *p"
        body = (
            "u32 have = t_processes[gpu_of(d)]; if (have == 0) { *n = 0; return 0; }"
            f" if (p == NULL || *n < have) {{ *n = have; return 7; }} *n = have; {' '.join(rows)}"
        )
        self.fn("nvmlDeviceGetComputeRunningProcesses_v3", f"dev_t_ d, u32 *n, {struct}", body)
        self.fn("nvmlDeviceGetGraphicsRunningProcesses_v3", f"dev_t_ d, u32 *n, {struct}", "*n = 0;")

    def _clocks(self) -> None:
        sm = [self.table("sm", i) for i in range(3)]
        memory = [self.table("mem_clock", i) for i in range(3)]
        names = ("nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetApplicationsClock")
        for at, name in enumerate(names):
            body = f"*out = kind == 2 ? {memory[at]}[gpu_of(d)] : {sm[at]}[gpu_of(d)];"
            self.fn(name, "dev_t_ d, u32 kind, u32 *out", body)
        reasons = self.table("reasons")
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            self.fn(name, "dev_t_ d, u64 *out", f"*out = {reasons}[gpu_of(d)];")

    def _power(self) -> None:
        self.number("nvmlDeviceGetPowerUsage", "power_mw", 0)
        self.number("nvmlDeviceGetEnforcedPowerLimit", "power_mw", 1)
        self.number("nvmlDeviceGetPowerManagementDefaultLimit", "power_mw", 2)
        low, high = self.table("power_mw", 3), self.table("power_mw", 4)
        body = f"*a = {low}[gpu_of(d)]; *b = {high}[gpu_of(d)];"
        self.fn("nvmlDeviceGetPowerManagementLimitConstraints", "dev_t_ d, u32 *a, u32 *b", body)
        self.number("nvmlDeviceGetTotalEnergyConsumption", "energy_mj", kind="u64")
        self.number("nvmlDeviceGetTemperature", "temperature", 0, extra=", u32 sensor")
        slow, stop = self.table("temperature", 1), self.table("temperature", 2)
        body = f"*out = kind == 0 ? {stop}[gpu_of(d)] : {slow}[gpu_of(d)];"
        self.fn("nvmlDeviceGetTemperatureThreshold", "dev_t_ d, u32 kind, u32 *out", body)

    def _health(self) -> None:
        mode = self.table("ecc")
        self.fn("nvmlDeviceGetEccMode", "dev_t_ d, u32 *a, u32 *b", f"*a = *b = {mode}[gpu_of(d)];")
        errors = [self.table("ecc_errors", i) for i in range(4)]
        picks = " ".join(f"if (counter * 2 + kind == {i}) *out = {errors[i]}[gpu_of(d)];" for i in range(4))
        self.fn("nvmlDeviceGetTotalEccErrors", "dev_t_ d, u32 kind, u32 counter, u64 *out", picks)
        rows = [self.table("remapped", i) for i in range(4)]
        body = " ".join(f"*{name} = {rows[i]}[gpu_of(d)];" for i, name in enumerate("abcf"))
        self.fn("nvmlDeviceGetRemappedRows", "dev_t_ d, u32 *a, u32 *b, u32 *c, u32 *f", body)
        pages = [self.table("retired", i) for i in range(2)]
        body = f"u32 have = cause == 0 ? {pages[0]}[gpu_of(d)] : {pages[1]}[gpu_of(d)];"
        body += " if (p == NULL) { *n = have; return have ? 7 : 0; } *n = have;"
        self.fn("nvmlDeviceGetRetiredPages", "dev_t_ d, u32 cause, u32 *n, u64 *p", body)
        self.number("nvmlDeviceGetRetiredPagesPendingStatus", "retired_pending")

    def _links(self) -> None:
        for at, name in enumerate(
            (
                "nvmlDeviceGetCurrPcieLinkGeneration",
                "nvmlDeviceGetMaxPcieLinkGeneration",
                "nvmlDeviceGetCurrPcieLinkWidth",
                "nvmlDeviceGetMaxPcieLinkWidth",
                "nvmlDeviceGetPcieReplayCounter",
            )
        ):
            self.number(name, "pcie", at)
        links, version = self.table("nvlinks"), self.table("nvlink_version")
        body = f"if (!{links}[gpu_of(d)]) return 3; *out = link < {links}[gpu_of(d)];"
        self.fn("nvmlDeviceGetNvLinkState", "dev_t_ d, u32 link, u32 *out", body)
        self.fn("nvmlDeviceGetNvLinkVersion", "dev_t_ d, u32 link, u32 *out", f"*out = {version}[gpu_of(d)];")
        self.fn("nvmlDeviceGetTopologyCommonAncestor", "dev_t_ d, dev_t_ e, u32 *out", "*out = 50;")
        body = f"*out = i == 2 && !{links}[gpu_of(d)] ? 5 : 0;"
        self.fn("nvmlDeviceGetP2PStatus", "dev_t_ d, dev_t_ e, u32 i, u32 *out", body)

    def _mig(self) -> None:
        now, later = self.table("mig", 0), self.table("mig", 1)
        body = f"*a = {now}[gpu_of(d)]; *b = {later}[gpu_of(d)];"
        self.fn("nvmlDeviceGetMigMode", "dev_t_ d, u32 *a, u32 *b", body)
        self.fn("nvmlDeviceGetMaxMigDeviceCount", "dev_t_ d, u32 *out", "*out = 7;")
        count = self.table("mig_devices")
        body = f"if (i >= {count}[gpu_of(d)]) return 6; *m = (dev_t_)(size_t)(MIG_BASE + 16 * gpu_of(d) + i);"
        self.fn("nvmlDeviceGetMigDeviceHandleByIndex", "dev_t_ d, u32 i, dev_t_ *m", body)
