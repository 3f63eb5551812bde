"""Nsight Compute: the raw and details pages as CSV, in one record with base units."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aisp_mcp.profile.insights.limiter import judge
from aisp_mcp.profile.readers.files import ProfileFile, bad, look, too_large
from aisp_mcp.profile.readers.files import read as read_bytes
from aisp_mcp.profile.readers.text import clean
from aisp_mcp.profile.records import NcuKernel, Profile, ProfiledDevice, RuleResult

MAX_KERNELS = 5_000
_MAX_CELLS = 30_000_000
_MAX_LINE = 8 * 2**20
_FIXED = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)
_FIXED_SET = {*_FIXED, "Kernel Time", "Invocations"}
_NVTX = re.compile(r"(?:thread|Id):?\s?Domain:")
_METRIC = re.compile(r"[a-z0-9]+(?:__[a-z0-9_]+)+[\w.]*")  # names as in `--metrics`, as opposed to labels
_ABSENT = ("n/a", "nan", "")
_PREFIX = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_TIME = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_BaseUnit = tuple[float, float, float, str]  # two factors of a number, its divisor, and the name of the base unit
_SIMPLE_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?")
# The details page labels metrics; these are the ones that the limiter and the rules need.
LABELS = {
    "Duration": "gpu__time_duration.sum",
    "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM Throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L1/TEX Cache Throughput": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "L2 Cache Throughput": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Registers Per Thread": "launch__registers_per_thread",
    "Waves Per SM": "launch__waves_per_multiprocessor",
    "Block Limit Registers": "launch__occupancy_limit_registers",
    "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
    "Block Limit Warps": "launch__occupancy_limit_warps",
    "Block Limit SM": "launch__occupancy_limit_blocks",
    "One or More Eligible": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "# SMs": "launch__sm_count",
    "Avg. Active Threads Per Warp": "smsp__thread_inst_executed_per_inst_executed.ratio",
}


def read(path: str | Path | ProfileFile, details: str | Path | None = None) -> Profile:
    """A profile from one page, or from the raw page and the rule results of a details page.

    Raises NotFound, UsageError BAD_PROFILE, AispError TOO_LARGE.
    """
    file = path if isinstance(path, ProfileFile) else look(path)
    rows = _rows(file)
    header, rows = _plain(next(rows, []), rows)
    kernels = _long(header, rows) if "Metric Name" in header else _raw(header, rows)
    if not kernels:
        raise bad(
            f"{file.path.name!r} contains no kernel.",
            "Did the kernel filter match? ncu says 'No kernels were profiled'.",
        )
    if details is not None:
        kernels = _with_rules(kernels, read(details).kernels)
    kernels = [k.model_copy(update={"limiter": judge(k)}) for k in kernels]
    return Profile(
        source=file.source("ncu", "Nsight Compute", None),
        devices=_devices(kernels),
        kernels=kernels,
        diagnostics=_lacking(header, kernels),
    )


def _lacking(header: list[str], kernels: list[NcuKernel]) -> list[str]:
    """Columns and metrics that other layouts of the same page have, and the consequence of their absence."""
    notes = []
    if missing := [name for name in _FIXED if name not in header]:
        notes.append(f"Reader: the file has no columns {', '.join(missing)}.")
    if "Average" in header:
        notes.append("Reader: a summary per kernel: every metric is the average of that kernel's launches.")
    if "Metric Name" in header and "Rule Name" not in header:
        notes.append("Reader: the file has no rule columns, so it does not contain NVIDIA's advice.")
    if all(k.duration_ns is None for k in kernels):
        notes.append("Reader: no launch has a duration; record gpu__time_duration.sum to weigh launches by time.")
    return notes


def from_module(path: str | Path, launches: Any) -> Profile:
    """Profile from the output of `ncu_child` for a .ncu-rep; numbers are unrounded and already in base units."""
    file = look(path)
    kernels = [_from_module(row) for row in launches[:MAX_KERNELS]]
    kernels = [k.model_copy(update={"limiter": judge(k)}) for k in kernels]
    return Profile(source=file.source("ncu", "Nsight Compute", None), devices=_devices(kernels), kernels=kernels)


def _from_module(row: dict[str, Any]) -> NcuKernel:
    metrics = {clean(name, 200): float(value) for name, (value, _) in row["metrics"].items()}
    major, minor = (metrics.get(f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    return NcuKernel(
        id=row["id"],
        name=clean(row["name"]),
        compute_capability=f"{major:.0f}.{minor:.0f}" if major is not None and minor is not None else None,
        grid=_dimensions(metrics, "grid"),
        block=_dimensions(metrics, "block"),
        duration_ns=metrics.get("gpu__time_duration.sum"),
        metrics=metrics,
        units={clean(name, 200): clean(unit, 40) for name, (_, unit) in row["metrics"].items()},
        rules=[_module_rule(rule) for rule in row["rules"][:100]],
    )


def _module_rule(rule: dict[str, Any]) -> RuleResult:
    message, speedup = rule.get("rule_message") or {}, rule.get("speedup_estimation") or {}
    return RuleResult(
        name=clean(rule.get("rule_identifier", ""), 80),
        kind={1: "INF", 2: "OPT", 3: "WRN"}.get(message.get("type", 0), ""),
        text=clean(message.get("message", ""), 1000),
        speedup=speedup.get("speedup") if isinstance(speedup, dict) else None,
    )


def _dimensions(metrics: dict[str, float], what: str) -> tuple[int, int, int] | None:
    sizes = [metrics.get(f"launch__{what}_dim_{axis}") for axis in "xyz"]
    x, y, z = (int(v) if v else 0 for v in sizes)
    return (x, y, z) if x and y and z else None


def _rows(file: ProfileFile) -> Iterator[list[str]]:
    """Lines of CSV; ncu's output before the table is skipped."""
    data = read_bytes(file)
    if data.count(b",") > _MAX_CELLS:
        raise too_large(f"{file.path.name!r} has more than {_MAX_CELLS:,} cells")
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    start = _header_at(text)
    if start is None:
        raise bad(
            f"{file.path.name!r} is not a page of ncu that lists launches.",
            "Export with `ncu --import FILE --csv --page raw`; the session and source pages contain no metrics.",
        )
    previous = csv.field_size_limit(_MAX_LINE)
    try:
        yield from csv.reader(io.StringIO(text[start:], newline=""))
    except csv.Error as error:
        raise bad(f"{file.path.name!r} is damaged CSV: {clean(error, 200)}.") from error
    finally:
        csv.field_size_limit(previous)


def _header_at(text: str) -> int | None:
    """Start of the line that names the columns; programs print their own lines before it."""
    for line in re.finditer(r"^.*\bKernel Name\b.*$", text, re.M):
        cells = {cell.strip() for cell in next(csv.reader([line[0]]), [])}
        if "Kernel Name" in cells and cells & {"ID", "Metric Name"}:
            return line.start()
    return None


def _plain(header: list[str], rows: Iterator[list[str]]) -> tuple[list[str], Iterator[list[str]]]:
    """Remove the columns of NVTX ranges, which `ncu --nvtx` puts between the host's name and the kernel's."""
    header = [name.strip() for name in header]
    columns = [at for at, name in enumerate(header) if not _NVTX.match(name)]
    if len(columns) == len(header):
        return header, rows
    return [header[at] for at in columns], ([row[at] for at in columns if at < len(row)] for row in rows)


def base(text: str, unit: str) -> tuple[float, str] | None:
    """A number as ncu prints it, in its base unit: bytes, nanoseconds, hertz, percent, counts. None if not a number."""
    return _in_base(text, _base_unit(unit))


def _in_base(text: str, unit: _BaseUnit) -> tuple[float, str] | None:
    if not _SIMPLE_NUMBER.fullmatch(text):
        return None
    factor, second, divisor, name = unit
    return float(text.replace(",", "")) * factor * second / divisor, name


def _base_unit(unit: str) -> _BaseUnit:
    if unit in _TIME:
        return _TIME[unit], 1.0, 1.0, "ns"
    head, slash, rest = unit.partition("/")
    factor = 1.0
    for tail in ("byte", "hz"):
        if head.lower().endswith(tail) and len(head) == len(tail) + 1 and head[0] in _PREFIX:
            factor, head = _PREFIX[head[0]], tail
    head = "hz" if head.lower() == "hz" else head
    if rest in _TIME:  # cycle/nsecond: rates are per second
        return factor, 1e9, _TIME[rest], "hz" if head == "cycle" else f"{head}/s"
    if len(rest) == 5 and rest.endswith("byte") and rest[0] in _PREFIX:
        # ncu divides the number as if the prefix were in the numerator: 1591 %/byte is printed as 1.591 %/Kbyte.
        return factor, _PREFIX[rest[0]], 1.0, f"{head}{slash}byte"
    return factor, 1.0, 1.0, head + slash + rest


def _raw(header: list[str], rows: Iterator[list[str]]) -> list[NcuKernel]:
    units = next(rows, [])
    fixed = {name: at for at, name in enumerate(header) if name in _FIXED_SET}
    if len(units) != len(header) or any(units[at].lower() not in _ABSENT for at in fixed.values()):
        raise bad(
            "The raw page lacks its second row, the units.",
            "Export with `ncu --import FILE --csv --page raw`, unchanged.",
        )
    columns = [
        (at, clean(header[at], 200), _base_unit(units[at])) for at in range(len(header)) if at not in fixed.values()
    ]
    ncu_kernels = []
    for row in rows:
        if len(row) != len(header):
            raise bad("The CSV is cut short: a row and the header differ in their number of columns.")
        metrics, seen = {}, {}
        for at, name, unit in columns:
            if row[at] and (value := _in_base(row[at], unit)):
                metrics[name], seen[name] = value
        ncu_kernels.append(_kernel(row, fixed, metrics, seen, []))
        if len(ncu_kernels) > MAX_KERNELS:
            raise too_large(f"The report contains more than {MAX_KERNELS:,} launches")
    return ncu_kernels


def _long(header: list[str], rows: Iterator[list[str]]) -> list[NcuKernel]:
    """One row per metric: the details page, the output of `--metrics`, and summaries per kernel."""
    at = {name: index for index, name in enumerate(header)}
    value_at = at.get("Metric Value", at.get("Average"))
    if value_at is None:
        raise bad("The page has metrics, but neither a column 'Metric Value' nor 'Average'.")
    firsts: dict[str, list[str]] = {}
    metrics: dict[str, dict[str, float]] = {}
    units: dict[str, dict[str, str]] = {}
    rules: dict[str, list[RuleResult]] = {}
    for line in rows:
        # ncu leaves out the last columns of rows without a rule.
        if not value_at < len(line) <= len(header):
            raise bad("The CSV is cut short: a row and the header differ in their number of columns.")
        row = line + [""] * (len(header) - len(line))
        key = _launch_key(row, at)
        firsts.setdefault(key, row)
        if len(firsts) > MAX_KERNELS:
            raise too_large(f"The report contains more than {MAX_KERNELS:,} launches")
        value = _metric(row[at["Metric Name"]], row[value_at], row[at["Metric Unit"]] if "Metric Unit" in at else "")
        if value:
            metrics.setdefault(key, {})[value[0]], units.setdefault(key, {})[value[0]] = value[1:]
        if _cell(row, at, "Rule Name") and len(rules.setdefault(key, [])) < 100:
            rules[key].append(_rule(row, at))
    return [
        _kernel(row, at, metrics.get(key, {}), units.get(key, {}), rules.get(key, []), number)
        for number, (key, row) in enumerate(firsts.items())
    ]


def _launch_key(row: list[str], at: dict[str, int]) -> str:
    """A launch by its ID within its process; a summary has no IDs, so a kernel with its shape is one row."""
    if "ID" in at:
        return "\0".join((_cell(row, at, "Process ID"), _cell(row, at, "ID")))
    return "\0".join(_cell(row, at, name) for name in ("Process ID", "Kernel Name", "Block Size", "Grid Size"))


def _metric(label: str, text: str, unit: str) -> tuple[str, float, str] | None:
    """(name, value, unit) of a metric that the rules know or that has its own name, else None."""
    name = LABELS.get(label) or (label if _METRIC.fullmatch(label) else None)
    value = base(text, unit) if name else None
    return (clean(name, 200), *value) if name and value else None


def _cell(row: list[str], at: dict[str, int], name: str) -> str:
    return row[at[name]] if name in at and at[name] < len(row) else ""


def _rule(row: list[str], at: dict[str, int]) -> RuleResult:
    """The rule of a row; version 2024.1 has no columns for the estimate."""
    speedup = base(_cell(row, at, "Estimated Speedup"), "%")
    return RuleResult(
        name=clean(_cell(row, at, "Rule Name"), 80),
        kind=clean(_cell(row, at, "Rule Type"), 10),
        text=clean(_cell(row, at, "Rule Description"), 1000),
        speedup_kind=clean(_cell(row, at, "Estimated Speedup Type"), 10) or None,
        speedup=speedup[0] if speedup else None,
    )


def _kernel(
    row: list[str],
    at: dict[str, int],
    metrics: dict[str, float],
    units: dict[str, str],
    rules: list[RuleResult],
    number: int = 0,
) -> NcuKernel:
    """number: the launch's, for layouts without a column of IDs."""
    identity = base(_cell(row, at, "ID"), "") if "ID" in at else (float(number), "")
    if identity is None:
        raise bad("A row of the CSV has no number as its ID.")
    device = _cell(row, at, "Device")
    return NcuKernel(
        id=int(identity[0]),
        name=clean(_cell(row, at, "Kernel Name")),
        device=int(device) if device.isdigit() and len(device) < 6 else None,
        compute_capability=clean(_cell(row, at, "CC"), 8) or None,
        grid=_triple(_cell(row, at, "Grid Size")),
        block=_triple(_cell(row, at, "Block Size")),
        duration_ns=metrics.get("gpu__time_duration.sum"),
        metrics=metrics,
        units=units,
        rules=rules,
    )


def _triple(text: str) -> tuple[int, int, int] | None:
    match = re.fullmatch(r"\((\d{1,10}), ?(\d{1,10}), ?(\d{1,10})\)", text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _with_rules(kernels: list[NcuKernel], detailed: list[NcuKernel]) -> list[NcuKernel]:
    by_id = {(k.id, k.name): k.rules for k in detailed}
    if not any((k.id, k.name) in by_id for k in kernels):
        raise bad("The two pages are of different reports: no launch is in both.")
    return [k.model_copy(update={"rules": by_id.get((k.id, k.name), [])}) for k in kernels]


def _devices(kernels: list[NcuKernel]) -> list[ProfiledDevice]:
    devices = {}
    for k in kernels:
        sms = k.metrics.get("launch__sm_count")
        devices[k.device or 0] = ProfiledDevice(
            index=k.device or 0, sms=int(sms) if sms else None, compute_capability=k.compute_capability
        )
    return [devices[i] for i in sorted(devices)]
