"""Run a profiler and store its scrubbed files in one folder, read back by this package's own parsers.

nsys writes the environment, user names and host names into its reports; they are removed. The profiled program runs
with the ordinary environment, or isolated like a measured candidate. Reports in NVIDIA's own formats are converted by
NVIDIA's own programs: .nsys-rep by nsys, .ncu-rep by ncu or its module.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aisp_mcp.errors import AispError, NotFound, ProcessError, Unavailable, UsageError
from aisp_mcp.process import isolation
from aisp_mcp.process.isolation import Level
from aisp_mcp.process.run import Completed, run
from aisp_mcp.profile.readers import ncu as ncu_pages
from aisp_mcp.profile.readers.files import MAX_FILE, look
from aisp_mcp.profile.readers.text import clean, last_words, spoken
from aisp_mcp.profile.recording import commands
from aisp_mcp.profile.records import CompileProfile, OpCount, Profile

_EXPORT_S = 600.0
_PAGE_BYTES = 512 * 2**20
_NO_COUNTERS = ("ERR_NVGPUCTRPERM", "does not have permission to access NVIDIA GPU Performance Counters")


@dataclass(frozen=True)
class Confinement:
    """level L0: no isolation. env: its whole environment, None for our own. folder: the only one it may write to, from
    L2 on.

    The profiler runs inside with the program: it must follow it and communicate with it, over loopback if necessary.
    """

    level: Level = "L0"
    env: Mapping[str, str] | None = None
    folder: Path | None = None
    devices: bool = False

    def start(self, argv: Sequence[str], timeout_s: float) -> Completed:
        """Run argv there to its end. Raises ProcessError NOT_STARTED."""
        writable = [self.folder] if self.folder else []
        wrapped = isolation.wrap(argv, self.level, writable=writable, loopback=True, devices=self.devices)
        return run(wrapped, timeout_s=timeout_s, env=self.env, cwd=self.folder)


OPEN = Confinement()


def nsys(
    program: str,
    command: Sequence[str],
    folder: Path,
    preset: commands.Preset,
    capture: str | None,
    timeout_s: float,
    confinement: Confinement = OPEN,
    keep: bool = False,
) -> Path:
    """Record and export; return the scrubbed SQLite file.

    The .nsys-rep, which contains the environment, is removed unless keep.

    Raises ProcessError TIMEOUT, CRASHED; AispError NOTHING_RECORDED if nsys wrote no report.
    """
    report = folder / "report.nsys-rep"
    done = confinement.start(commands.nsys(program, command, report, preset, capture), timeout_s)
    if not report.exists():
        raise _nothing("nsys", done, "Did the capture range ever begin? Does the command run on its own?")
    try:
        database = export_nsys(program, report, folder)
    finally:
        if not keep:
            report.unlink(missing_ok=True)
    _keep_output(done, folder)
    if done.timed_out:
        raise ProcessError(
            "TIMEOUT", f"The command took longer than {timeout_s:g} s and was killed.", "Raise timeout_s."
        )
    return database


def export_nsys(program: str, report: Path, folder: Path) -> Path:
    """Export a .nsys-rep as scrubbed SQLite. The report itself stays where it is."""
    database = folder / "report.sqlite"
    done = run(commands.nsys_export(program, report, database), timeout_s=_EXPORT_S)
    if not done.ok or not database.exists():
        raise _nothing("nsys export", done, "The importer of nsys may be missing, or the report is of a newer version.")
    try:
        scrub_database(database, secrets())
    except sqlite3.Error as error:
        database.unlink()
        raise AispError(
            "NOT_SCRUBBED", f"The export could not be cleaned of the environment: {error}.", None
        ) from error
    return database


def ncu(
    program: str,
    command: Sequence[str],
    folder: Path,
    launches: commands.LaunchSelection,
    timeout_s: float,
    confinement: Confinement = OPEN,
) -> tuple[Path, Path]:
    """Record; return the raw and the details page. Raises Unavailable NO_COUNTERS, ProcessError, AispError."""
    report = folder / "report.ncu-rep"
    done = confinement.start(commands.ncu(program, command, report, launches), timeout_s)
    output = done.stdout + done.stderr
    if any(word in output for word in _NO_COUNTERS):
        raise _no_counters()
    if "failed to connect to the CUDA driver" in output:
        raise Unavailable(
            "NO_GPU", "ncu finds no CUDA driver on this machine.", "Profile on a machine with an NVIDIA GPU."
        )
    if done.timed_out:
        raise ProcessError(
            "TIMEOUT",
            f"ncu took longer than {timeout_s:g} s and was killed.",
            "Profile fewer launches: launch_count, kernel.",
        )
    if not report.exists():
        raise _nothing("ncu", done, "Does a kernel match? ncu replays each launch, so the command must run on its own.")
    pages = import_ncu(program, report, folder)
    if holds(report, secrets()):
        report.unlink()
    _keep_output(done, folder)
    return pages


def import_ncu(program: str, report: Path, folder: Path) -> tuple[Path, Path]:
    """A .ncu-rep as its raw and details page."""
    pages = []
    for page in ("raw", "details"):
        done = run(commands.ncu_page(program, report, page), timeout_s=_EXPORT_S, max_output=_PAGE_BYTES)
        if not done.ok or done.truncated or '"ID"' not in done.stdout:
            raise _nothing(f"ncu --import --page {page}", done, "The report may be of a newer version than this ncu.")
        path = folder / f"report.{page}.csv"
        path.write_text(done.stdout, "utf-8")
        pages.append(path)
    return pages[0], pages[1]


def read_ncu(program: str | None, report: Path, folder: Path) -> Profile:
    """Read a .ncu-rep through the ncu program or, if that is missing, through NVIDIA's Python module in a child.

    Raises Unavailable NOT_INSTALLED, ProcessError.
    """
    if program is not None:
        return ncu_pages.read(*import_ncu(program, report, folder))
    done = run(commands.ncu_module(report), timeout_s=_EXPORT_S, max_output=_PAGE_BYTES)
    if "No module named 'ncu_report'" in done.stderr:
        hint = "Install nsight-compute, or the Python package ncu-report."
        raise Unavailable("NOT_INSTALLED", "Neither ncu nor the module ncu_report is here.", hint)
    if not done.ok or done.truncated:
        raise _nothing("ncu_report", done, "The report may be damaged, or of a newer version than this module.")
    return ncu_pages.from_module(report, json.loads(done.stdout))


def _no_counters() -> Unavailable:
    return Unavailable(
        "NO_COUNTERS",
        "The driver does not let this user read GPU performance counters (ERR_NVGPUCTRPERM).",
        "Run as root, or let an administrator set the module option NVreg_RestrictProfilingToAdminUsers=0 for nvidia "
        "and reload it. In a container, add --cap-add=SYS_ADMIN. aisp_profile_nsys needs no counters.",
        [("aisp_triage", {})],
    )


def torch(
    script: str,
    args: Sequence[str],
    folder: Path,
    mode: commands.TorchMode,
    python: str,
    timeout_s: float,
    confinement: Confinement = OPEN,
) -> tuple[Path, dict[str, Any]]:
    """Run a script under torch.profiler; return the compressed trace and the child's report on the run. Mode off: only
    the report, of a run without the profiler.

    With confinement, only the part between torch.cuda.profiler.start() and stop() is recorded.

    Raises NotFound NO_SCRIPT, Unavailable NOT_INSTALLED (torch), ProcessError TIMEOUT, RAISED, CRASHED.
    """
    path = check_script(script)
    capture: Literal["all", "range"] = "all" if confinement is OPEN else "range"
    done = confinement.start(commands.torch(path.resolve(), args, folder, mode, python, capture), timeout_s)
    _keep_output(done, folder)
    if done.timed_out:
        raise ProcessError(
            "TIMEOUT",
            f"The script took longer than {timeout_s:g} s and was killed.",
            "Raise timeout_s or do fewer steps.",
        )
    if "No module named 'torch'" in done.stderr:
        raise Unavailable(
            "NOT_INSTALLED",
            f"{python} has no torch.",
            "Name an interpreter that has: python=…, or install aisp-mcp[bench].",
        )
    report = folder / "run.json"
    if not done.ok or not report.exists():
        raise _nothing("torch.profiler", done, "The child died before it could write the trace.", "CRASHED")
    facts: dict[str, Any] = json.loads(report.read_text("utf-8"))
    if facts.get("error"):
        raise ProcessError("RAISED", f"The script failed: {clean(facts['error'], 300)}", _where(path, done))
    return folder if mode == "off" else _compressed(folder / "trace.json"), facts


# Columns of operators that are 0 if nothing was counted, or no device took part.
_RECORDED = ("flops", "device_us", "self_device_us", "device_bytes", "host_bytes")


def operators(folder: Path, limit: int, offset: int = 0) -> list[dict[str, Any]]:
    """Per operator, by FLOPs if they were counted, else by own time; written by our child.

    A column that is 0 in every row was not recorded: null.
    """
    rows: list[dict[str, Any]] = [dict.fromkeys(_RECORDED) | row for row in _operators(folder)]
    empty = {name for name in _RECORDED if not any(row.get(name) for row in rows)}
    return [
        {name: None if name in empty else value for name, value in row.items()} | {"name": clean(row["name"], 120)}
        for row in rows[offset : offset + limit]
    ]


def flops(folder: Path) -> int | None:
    """FLOPs of all operators that torch has a formula for; None if it counted none."""
    return sum(row.get("flops") or 0 for row in _operators(folder)) or None


def uncounted(folder: Path) -> Uncounted:
    """Operators that torch has no formula for, by time."""
    found = json.loads((folder / "uncounted.json").read_text("utf-8"))
    rows = [(clean(name, 120), int(count), float(us)) for name, count, us in found["rows"]]
    return Uncounted(float(found["whole_us"]), rows)


@dataclass(frozen=True)
class Uncounted:
    """Time of all operators, and (name, calls, own time) of those without a formula. In microseconds."""

    whole_us: float
    rows: list[tuple[str, int, float]]


def _operators(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "operators.json").read_text("utf-8"))
    return rows


def compiled(facts: dict[str, Any]) -> CompileProfile | None:
    """Facts about torch.compile from the child; None if it was not used."""
    compile_facts = facts.get("compile")
    if not compile_facts or not (compile_facts["frames"] or compile_facts["graph_breaks"]):
        return None
    reasons = [clean(reason, 300) for reason in compile_facts["recompile_reasons"]]
    return CompileProfile(
        frames=compile_facts["frames"],
        graphs=compile_facts["graphs"],
        recompiles=len(reasons),
        compile_s=compile_facts["compile_s"],
        graph_breaks=[OpCount(what=clean(what, 300), count=n) for what, n in compile_facts["graph_breaks"]],
        recompile_reasons=[OpCount(what=reason, count=reasons.count(reason)) for reason in dict.fromkeys(reasons)],
    )


def py_spy(
    program: str, command: Sequence[str], folder: Path, timeout_s: float, confinement: Confinement = OPEN
) -> Path:
    """Host stacks as speedscope. Raises ProcessError, AispError NOTHING_RECORDED."""
    output = folder / "stacks.speedscope.json"
    done = confinement.start(commands.py_spy(program, command, output), timeout_s)
    _keep_output(done, folder)
    if not output.exists():
        raise _nothing("py-spy", done, "It needs permission to trace its own children (ptrace).")
    return output


def check_report(report: str) -> None:
    """Raise NotFound NO_PROFILE if the report does not exist."""
    if not Path(report).expanduser().is_file():
        raise NotFound("NO_PROFILE", f"No report at {report[:200]!r}.", "Give the path of a report on this machine.")


def check_script(script: str) -> Path:
    """Raise NotFound NO_SCRIPT if the script does not exist."""
    path = Path(script).expanduser()
    if not path.is_file():
        raise NotFound("NO_SCRIPT", f"No script at {script[:200]!r}.", "Give the path of a Python file.")
    return path


def check_command(command: Sequence[str]) -> None:
    """Refuse a command that cannot start, before a job is created. Raises UsageError NO_COMMAND, NotFound
    NO_PROGRAM.
    """
    if not command or not command[0]:
        raise UsageError(
            "NO_COMMAND", "The command is empty.", "Give it as a list: ['python', 'train.py', '--steps', '5']."
        )
    if shutil.which(command[0]) is None:
        hint = "Give a full path or a name on the PATH."
        if command[0].endswith(".py") and Path(command[0]).is_file():
            hint = f"Give its interpreter, too: python {shlex.join(command)[:200]}."
        raise NotFound("NO_PROGRAM", f"No program {command[0][:200]!r} can be executed.", hint)


def _compressed(path: Path) -> Path:
    target = path.with_suffix(".json.gz")
    with path.open("rb") as source, gzip.open(target, "wb", compresslevel=5) as sink:
        shutil.copyfileobj(source, sink)
    path.unlink()
    return target


def plain(command: Sequence[str], timeout_s: float, confinement: Confinement = OPEN) -> float:
    """Seconds of a command without a recorder. Raises ProcessError TIMEOUT, CRASHED."""
    done = confinement.start(command, timeout_s)
    if done.timed_out:
        raise ProcessError("TIMEOUT", f"The command took longer than {timeout_s:g} s and was killed.", None)
    if not done.ok:
        raise ProcessError("CRASHED", f"It ended with exit code {done.returncode}. {_last(done)}", None)
    return done.seconds


def took(folder: Path) -> float:
    """Seconds of the recorder's command that wrote into the folder, its own start and end included."""
    return float((folder / "took.txt").read_text("ascii"))


def _keep_output(done: Completed, folder: Path) -> None:
    """Write the program's output, without values of secret variables, and how long it ran."""
    (folder / "took.txt").write_text(f"{done.seconds:.6f}", "ascii")
    text = done.stdout + done.stderr
    for value in secrets():
        text = text.replace(value, "[removed]")
    (folder / "output.txt").write_text(text, "utf-8")


def _nothing(what: str, done: Completed, hint: str, code: str = "NOTHING_RECORDED") -> ProcessError:
    return ProcessError(code, f"{what} wrote nothing (exit code {done.returncode}). {_last(done)}", hint)


def _where(script: Path, done: Completed) -> str:
    """The line of the script that raised, else the last line of the output."""
    lines = re.findall(rf'File "{re.escape(str(script.resolve()))}", line (\d+)', f"{done.stdout}\n{done.stderr}")
    return f"Line {lines[-1]} of {script.name} raised it." if lines else _last(done)


def _last(done: Completed) -> str:
    return last_words(spoken(done.stderr) or done.stdout)


_SECRET = re.compile(r"key|token|secret|passw|credential|auth|cookie|private|session|dsn|webhook|connection", re.I)
_REMOVED = "[removed]"
_ROWS = (
    ("TARGET_INFO_SYSTEM_ENV", ("DeviceEnvironment", "Hostname", "SystemUID")),
    ("META_DATA_EXPORT", ("EXPORT_HOST", "EXPORT_USER")),
    ("META_DATA_CAPTURE", ("DEVICE_DISPLAY_NAME", "PROCESS_0:USER_NAME")),
)


def secrets(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Values of variables whose names mark them as secret, longest first; short ones would match innocent text."""
    values = {
        value for name, value in environ.items() if _SECRET.search(name) and len(value) >= 6 and not value.isdigit()
    }
    return sorted(values, key=lambda value: (-len(value), value))


def scrub_database(path: Path, values: list[str]) -> int:
    """Remove environment, user and host rows, captured program output, and each value wherever it occurs.

    The file is rewritten, so nothing remains in freed pages. Returns the number of changed texts.
    """
    with closing(sqlite3.connect(path)) as db:
        changed = sum(_blank(db, table, names) for table, names in _ROWS)
        changed += _blank_environment(db)
        for value in values:
            changed += _replace(db, value)
        db.commit()
        db.execute("VACUUM")
        return changed


def _tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {name: [row[1] for row in db.execute(f'PRAGMA table_info("{name}")')] for name in names}


def _blank(db: sqlite3.Connection, table: str, names: tuple[str, ...]) -> int:
    if not {"name", "value"} <= set(_tables(db).get(table, [])):
        return 0
    marks = ", ".join("?" for _ in names)
    return db.execute(f'UPDATE "{table}" SET value = ? WHERE name IN ({marks})', (_REMOVED, *names)).rowcount


def _blank_environment(db: sqlite3.Connection) -> int:
    """Remove the program's variables and its output."""
    tables, changed = _tables(db), 0
    if "value" in tables.get("META_DATA_CAPTURE", []):
        changed += db.execute(
            "UPDATE META_DATA_CAPTURE SET value = ? WHERE name LIKE '%ENVIRONMENT%'", (_REMOVED,)
        ).rowcount
    if "value" in tables.get("StringIds", []):
        # Newer versions store each process's whole environment as one text, with NULs between the variables.
        blocks = "instr(value, char(0)) AND instr(value, '=')"
        changed += db.execute(f"UPDATE StringIds SET value = ? WHERE {blocks}", (_REMOVED,)).rowcount
    for table in ("ANALYSIS_FILE", "ProcessStreams"):
        if "contentId" in tables.get(table, []) and "StringIds" in tables:
            chosen = f'id IN (SELECT contentId FROM "{table}") AND instr(value, char(10))'
            query = f"UPDATE StringIds SET value = ? WHERE {chosen}"
            changed += db.execute(query, (_REMOVED,)).rowcount
    return changed


def _replace(db: sqlite3.Connection, value: str) -> int:
    changed = 0
    for table, columns in _tables(db).items():
        for column in columns:
            cell = f'"{column}"'
            where = f"typeof({cell}) = 'text' AND instr({cell}, ?)"
            query = f'UPDATE "{table}" SET {cell} = replace({cell}, ?, ?) WHERE {where}'
            changed += db.execute(query, (value, _REMOVED, value)).rowcount
    return changed


def holds(path: Path, values: list[str]) -> bool:
    """Return True if the file's bytes contain any of the values in plain form. For formats that cannot be edited."""
    data = path.read_bytes()
    return any(value.encode() in data for value in values)


Find = Callable[[str], str]  # from a program's name to its path; raises Unavailable NOT_INSTALLED


def is_nsys(path: str) -> bool:
    return path.endswith((".nsys-rep", ".qdrep"))


def is_ncu(path: str) -> bool:
    return path.endswith(".ncu-rep")


def nsys_database(path: str, folder: Path, find: Find) -> Path:
    """The scrubbed SQLite export of a .nsys-rep, made once per content. Raises Unavailable, ProcessError, NotFound."""
    report = look(path, MAX_FILE)
    cached = folder / f"{report.sha256}.sqlite"
    if not cached.exists():
        program = find("nsys")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            export_nsys(program, report.path, Path(scratch)).replace(cached)
    return cached


def ncu_kernels(path: str, find: Find) -> Profile:
    """The launches of a .ncu-rep. Raises Unavailable, ProcessError, NotFound."""
    report = look(path, MAX_FILE)
    try:
        program: str | None = find("ncu")
    except Unavailable:
        program = None
    with tempfile.TemporaryDirectory() as scratch:
        pages = read_ncu(program, report.path, Path(scratch))
    version = pages.source.version
    return pages.model_copy(update={"source": report.source("ncu", "Nsight Compute", version)})
