"""Profile a benchmark target: a baseline or candidate becomes a program, isolated as the judge isolates it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError, UsageError
from aisp_mcp.judge import distributed, placement
from aisp_mcp.judge.pair import Pair
from aisp_mcp.profile.readers.text import last_words
from aisp_mcp.profile.recording import commands, record
from aisp_mcp.profile.recording.ran import Ran, RoleName
from aisp_mcp.profile.recording.record import Confinement
from aisp_mcp.suites import discovery as suites
from aisp_mcp.suites import selection
from aisp_mcp.system.gpu import nvml

ROLES: tuple[RoleName, ...] = ("baseline", "candidate")
Trial = Callable[[Path], tuple[list[str], Path]]  # a scratch folder → a trusted command, and the file it must write

_TRIAL_S = 120.0
_LAUNCH = "import torch; torch.ones(8, device='cuda').add_(1); torch.cuda.synchronize()"
_SPIN = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
_SCRIPT = '''"""{label}, {role}, as a program: python target.py BASELINE [CANDIDATE]

The files stand in argv because the isolation shows a program the folders that are named there.
"""

import sys

from aisp_mcp.judge.programs.{module} import play

if __name__ == "__main__":
    play(*sys.argv[1:], size={size!r}, device={device!r}, threads={threads})
'''


@dataclass(frozen=True)
class Subject:
    """One program of a pair: its name for readers, and its files.

    size: as it was measured, empty for this machine's preset. variables: environment of the ranks.
    """

    label: str
    role: RoleName
    files: tuple[Path, ...]
    size: str = ""
    variables: distributed.Variables = ()

    def ranks(self, size: str) -> int:
        """Number of its processes."""
        return distributed.ranks(self.files[0], size)


def find(roots: suites.Roots, name: str, role: RoleName) -> Subject:
    """Target and file of a name and a role. Raises NotFound UNKNOWN_TARGET, UsageError AMBIGUOUS, BenchmarkError."""
    pairs, broken = selection.pairs(roots, [name])
    if not pairs:
        raise selection.unusable(broken[0])
    one_baseline = len({pair.target for pair in pairs}) == 1
    if not one_baseline or (role == "candidate" and len(pairs) > 1):
        pairs = [pair for pair in pairs if pair.label == name] or pairs
    if len(pairs) > 1 and not (role == "baseline" and one_baseline):
        some = ", ".join(pair.label for pair in pairs[:8]) + (", …" if len(pairs) > 8 else "")
        raise UsageError("AMBIGUOUS", f"{name[:80]!r} selects {len(pairs)} candidates: {some}.", "Name one of them.")
    return subject(pairs[0], role)


def subject(pair: Pair, role: RoleName) -> Subject:
    """One program of a pair; a baseline is named after its target."""
    if role == "baseline":
        return Subject(pair.target, role, (pair.baseline,))
    return Subject(pair.label, role, (pair.baseline, pair.compiled()[0].path))


@contextmanager
def _program(
    target: Subject, folder: Path, trial: Trial | None = None, module: str = "single"
) -> Iterator[tuple[Confinement, list[str], Ran]]:
    """Confinement, command and description of a program. Its caches and temporary files are removed afterwards."""
    device = nvml.benchmark_device()
    size = target.size or ("default" if device == "cuda" else "small")
    ranks = target.ranks(size)
    threads = max(len(placement.measuring_cpus(ranks)) // ranks, 1)
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    try:
        env = {**placement.worker_env(scratch, threads, device, devices=ranks), **dict(target.variables)}
        confinement = _confinement(folder, scratch, device, env, trial)
        script = folder / "target.py"
        if module == "single" and ranks > 1:
            module = "ranks"
        facts = {
            "label": target.label,
            "role": target.role,
            "size": size,
            "device": device,
            "threads": threads,
        }
        script.write_text(_SCRIPT.format(module=module, **facts))
        command = [sys.executable, str(script), *map(str, target.files)]
        isolation = confinement.level
        yield (
            confinement,
            command,
            Ran(
                target=target.label,
                side=target.role,
                size=size,
                device=device,
                isolation=isolation,
                command=command,
            ),
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _confinement(folder: Path, scratch: Path, device: str, env: dict[str, str], trial: Trial | None) -> Confinement:
    """The best level at which the profiler works with a program of our own, because a candidate must not influence the
    choice.
    """
    # Profilers use sockets in TMPDIR, with names of at most 107 bytes; from L2 on, /tmp is private anyway.
    env = {**env, "TMPDIR": "/tmp"}
    best = placement.usable_level("auto", device)
    if trial is not None and best not in ("L0", "L1"):
        argv, expected_file = trial(scratch)
        confinement = Confinement(best, env, scratch, device == "cuda")
        confinement.start(argv, _TRIAL_S)
        if not expected_file.exists():
            best = "L1"
    return Confinement(best, env, folder, device == "cuda")


def _counted(folder: Path, ran: Ran) -> Ran:
    """Add the number of calls made. Raises BenchmarkError RAISED if the program did not finish."""
    file = folder / "calls.json"
    if not file.exists():
        output = folder / "output.txt"
        words = last_words(output.read_text("utf-8") if output.exists() else "")
        raise BenchmarkError("RAISED", f"{ran.target} ({ran.side}) did not finish. {words}")
    counts = json.loads(file.read_text("utf-8"))
    file.unlink()
    return ran.model_copy(update={"calls": counts["calls"], "ranks": counts["ranks"]})


def nsys(
    target: Subject,
    program: str,
    folder: Path,
    preset: commands.Preset,
    capture: str | None,
    timeout_s: float,
    keep: bool = False,
) -> tuple[Path, Ran]:
    """The scrubbed export. On a GPU, only the calls themselves are captured, unless capture overrides that."""

    def trial(scratch: Path) -> tuple[list[str], Path]:
        report = scratch / "trial.nsys-rep"
        return commands.nsys(program, [sys.executable, "-P", "-c", "pass"], report, preset), report

    with _program(target, folder, trial) as (confinement, command, ran):
        capture_range = capture or ("cudaProfilerApi" if ran.device == "cuda" else None)
        return record.nsys(program, command, folder, preset, capture_range, timeout_s, confinement, keep), _counted(
            folder, ran
        )


def ncu(
    target: Subject, program: str, folder: Path, launches: commands.LaunchSelection, timeout_s: float
) -> tuple[tuple[Path, Path], Ran]:
    """The raw and the details page of launches made by the calls. Raises BenchmarkError RANKS for several ranks."""
    if distributed.declared(target.files[0]) > 1:
        hint = "A timeline shows collectives: aisp profile nsys, or --profile minimal."
        raise BenchmarkError("RANKS", "ncu repeats each kernel alone, and a collective waits for other ranks.", hint)

    def trial(scratch: Path) -> tuple[list[str], Path]:
        report = scratch / "trial.ncu-rep"
        argv = commands.ncu(
            program,
            [sys.executable, "-P", "-c", _LAUNCH],
            report,
            commands.LaunchSelection(metric_set="basic", count=1),
        )
        return argv, report

    with _program(target, folder, trial) as (confinement, command, ran):
        return record.ncu(program, command, folder, launches, timeout_s, confinement), _counted(folder, ran)


def torch(
    target: Subject, folder: Path, mode: commands.TorchMode, timeout_s: float
) -> tuple[tuple[Path, dict[str, Any]], Ran]:
    """The trace of torch.profiler, and the child's report; in mode memory also memory.json."""
    with _program(target, folder) as (confinement, command, ran):
        script, *files = command[1:]
        made = record.torch(script, files, folder, mode, sys.executable, timeout_s, confinement)
        return made, _counted(folder, ran)


def energy(target: Subject, folder: Path, timeout_s: float) -> dict[str, Any]:
    """Windows of calls with the device's energy counter, and its idle power.

    Raises BenchmarkError RAISED with the program's last output if it did not finish.
    """
    with _program(target, folder, module="energy") as (confinement, command, ran):
        done = confinement.start(command, timeout_s)
        file = folder / "energy.json"
        if not file.exists():
            words = last_words(done.stderr or done.stdout)
            raise BenchmarkError("RAISED", f"{ran.target} ({ran.side}) did not finish. {words}")
        reading: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return reading


def plain(target: Subject, folder: Path, timeout_s: float) -> float:
    """Seconds of the same program without a recorder. Raises ProcessError TIMEOUT, CRASHED."""
    with _program(target, folder) as (confinement, command, _ran):
        return record.plain(command, timeout_s, confinement)


def stacks(target: Subject, program: str, folder: Path, timeout_s: float) -> tuple[Path, Ran]:
    """Host stacks by py-spy."""

    def trial(scratch: Path) -> tuple[list[str], Path]:
        output = scratch / "trial.json"
        return commands.py_spy(program, [sys.executable, "-P", "-c", _SPIN], output), output

    with _program(target, folder, trial) as (confinement, command, ran):
        return record.py_spy(program, command, folder, timeout_s, confinement), _counted(folder, ran)
