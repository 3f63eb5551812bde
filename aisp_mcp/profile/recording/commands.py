"""The argument lists of profilers, and the commands that open their reports. Pure: nothing is started here."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aisp_mcp.profile import readers

Preset = Literal["light", "full"]
NcuSet = Literal["basic", "detailed", "full", "roofline"]
TorchMode = Literal["full", "memory", "flops", "modules", "off"]


@dataclass(frozen=True)
class LaunchSelection:
    """Counters and launches to collect. kernel: a regular expression; skip, count: of the matching launches.

    api_range: only launches between cudaProfilerStart and cudaProfilerStop.
    """

    metric_set: NcuSet = "detailed"
    kernel: str | None = None
    skip: int = 0
    count: int = 10
    api_range: bool = False


_TRACES = {"light": "cuda,nvtx", "full": "cuda,nvtx,osrt,cublas,cudnn"}


def nsys(
    program: str, command: Sequence[str], output: Path, preset: Preset = "light", capture: str | None = None
) -> list[str]:
    """`nsys profile`. light: no sampling and no OS runtime events, which would record gigabytes for `import torch`.

    capture: None for all, "cudaProfilerApi", or the name of an NVTX range. CUDA graphs are recorded kernel by kernel.
    """
    argv = [program, "profile", f"--trace={_TRACES[preset]}", "--cpuctxsw=none", "--cuda-graph-trace=node"]
    argv += ["--sample=process-tree"] if preset == "full" else ["--sample=none"]
    if capture == "cudaProfilerApi":
        argv += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    elif capture:
        argv += ["--capture-range=nvtx", f"--nvtx-capture={capture}", "--capture-range-end=stop"]
        argv += ["--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0"]
    return [*argv, "--force-overwrite=true", f"--output={output}", *command]


def nsys_export(program: str, report: Path, output: Path) -> list[str]:
    return [
        program,
        "export",
        "--type=sqlite",
        "--lazy=false",
        "--force-overwrite=true",
        f"--output={output}",
        str(report),
    ]


def ncu(program: str, command: Sequence[str], output: Path, launches: LaunchSelection) -> list[str]:
    """`ncu`, leaving the clocks as they are."""
    argv = [program, f"--set={launches.metric_set}", "--clock-control=none", "--target-processes=all"]
    argv += ["--force-overwrite", f"--launch-skip={launches.skip}", f"--launch-count={launches.count}"]
    argv += [f"--export={output}"] + (["--profile-from-start=off"] if launches.api_range else [])
    argv += [f"--kernel-name=regex:{launches.kernel}"] if launches.kernel else []
    return [*argv, *command]


def ncu_page(program: str, report: Path, page: Literal["raw", "details"]) -> list[str]:
    return [program, "--import", str(report), "--csv", "--page", page]


def ncu_module(report: Path) -> list[str]:
    """Our own script in a child, which reads the report with NVIDIA's module."""
    return [sys.executable, str(Path(readers.__path__[0], "ncu_child.py")), str(report)]


def torch(
    script: Path,
    args: Sequence[str],
    output: Path,
    mode: TorchMode,
    python: str = sys.executable,
    capture: Literal["all", "range"] = "all",
) -> list[str]:
    """Our own script in a child, which runs the user's under torch.profiler. range: from cudaProfilerStart to Stop.

    Mode off only measures how long that takes without torch.profiler.
    """
    child = Path(__file__).with_name("torch_child.py")
    return [python, str(child), capture, mode, str(output), str(script), *args]


def py_spy(program: str, command: Sequence[str], output: Path, rate: int = 100) -> list[str]:
    """Host stacks, native frames excluded: speedscope, all children."""
    return [
        program,
        "record",
        "--format=speedscope",
        "--subprocesses",
        f"--rate={rate}",
        f"--output={output}",
        "--",
        *command,
    ]


# --- viewers


_VIEWERS = {".nsys-rep": "nsys-ui", ".ncu-rep": "ncu-ui"}


def viewer_commands(folder: Path, given: str | None = None) -> list[str]:
    """One shell command per report in the folder, or for the given report."""
    reports = [Path(given).expanduser()] if given else sorted(folder.glob("report.*"))
    return [f"{_VIEWERS[path.suffix]} {shlex.quote(str(path))}" for path in reports if path.suffix in _VIEWERS]
