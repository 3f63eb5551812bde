"""Read a workload: the operators of a trace, a table of sizes, or the workloads of FlashInfer-Trace."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import NotFound, UsageError
from aisp_mcp.judge.functions.inputs import Argument
from aisp_mcp.judge.functions.sources import Parameters
from aisp_mcp.profile.operators import aten, targets
from aisp_mcp.profile.operators.targets import Operator
from aisp_mcp.runs.workload import binding

WEIGHTS = ("weight", "launches", "calls", "count")
MOST = 24  # regimes that are measured; chosen: those of a model take more than 99 % of an operator's time
MAX_DEFINITION_BYTES = 2**20
EXAMPLE = "A table has the header M,K,weight or shape,weight: sizes that inputs names, and launches; no other numbers."


@dataclass(frozen=True)
class Row:
    """One regime to measure. recorded_s: of all its launches; None if a table gives only launches. sizes: of named
    numbers. arguments: of a recorded call, instead. order: which of them were given by their order, as in Binding.
    """

    label: str
    launches: float
    recorded_s: float | None = None
    sizes: Mapping[str, int] | None = None
    arguments: Sequence[Argument] = ()
    order: str = ""


@dataclass(frozen=True)
class Read:
    """A workload. step_share: of these calls in the recorded step, if it is known."""

    rows: Sequence[Row]
    notes: Sequence[str] = ()
    step_share: float | None = None


def read(text: str, named: Sequence[str], parameters: Parameters | None, function: str) -> Read:
    """Read FILE or FILE:OPERATOR. named: sizes that the inputs name, in order. parameters: the baseline's.

    Raises NotFound NO_SUCH_FILE, UsageError BAD_WORKLOAD, and as targets.read does.
    """
    path, operator = _file(text)
    _reject_definition(path)
    if path.suffix in (".csv", ".tsv", ".jsonl") or _is_table(path):
        found = _table(path, named)
    elif path.suffix in (".txt", ".md"):
        raise UsageError(
            "BAD_WORKLOAD", f"{path.name} is neither a table, as .csv, .tsv or .json, nor a trace.", EXAMPLE
        )
    else:
        found = _trace(path, operator, parameters, function)
    if len(found.rows) < 2:
        message = f"{path.name} has {len(found.rows)} regime of {function}; a workload has at least two."
        raise UsageError("BAD_WORKLOAD", message, "Judge a single size with --inputs alone.")
    return found


def _file(text: str) -> tuple[Path, str | None]:
    """The file and the operator behind it: trace.json.gz:aten::mm."""
    ends = [match.start() for match in re.finditer(":", text)]
    for end in (len(text), *ends):
        path = Path(text[:end]).expanduser()
        if path.is_file():
            return path, text[end + 1 :] or None
    raise NotFound("NO_SUCH_FILE", f"There is no workload at {text[:200]!r}.", "A trace, a table, or FILE:OPERATOR.")


def _reject_definition(path: Path) -> None:
    """Raise UsageError BAD_WORKLOAD for a definition of FlashInfer-Trace."""
    if path.suffix != ".json" or path.stat().st_size > MAX_DEFINITION_BYTES:
        return
    try:
        found = json.loads(path.read_text("utf-8-sig", "replace"))
    except ValueError:
        return
    if isinstance(found, dict) and {"axes", "inputs", "outputs"} <= found.keys():
        message = f"{path.name} is a definition of FlashInfer-Trace: it leaves sizes open, and counts no calls."
        raise UsageError("BAD_WORKLOAD", message, f"Give its workloads, the JSON lines of {path.stem}.jsonl.")


def _is_table(path: Path) -> bool:
    """Return True for JSON that is a list, as tables are and traces seldom, or names a weight."""
    if path.suffix != ".json":
        return False
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        head = file.read(1000).lstrip()
    names_weight = any(f'"{name}"' in head for name in WEIGHTS)
    return '"traceEvents"' not in head and '"ph"' not in head and (head.startswith("[") or names_weight)


# --- tables


def _table(path: Path, named: Sequence[str]) -> Read:
    """Rows by their sizes; the launches of equal sizes are added. Columns of words are left out, and noted."""
    launches, words = Counter[tuple[tuple[str, int], ...]](), dict[str, None]()
    for at, row in enumerate(_rows(path), 1):
        try:
            sizes, weight = _sized(row, named, words)
        except (TypeError, ValueError) as error:
            raise UsageError("BAD_WORKLOAD", f"Row {at} of {path.name}: {error}.", EXAMPLE) from None
        launches[tuple(sizes.items())] += weight  # type: ignore[assignment]
    rows = [Row(", ".join(f"{name}={value}" for name, value in key), weight, None, dict(key))
            for key, weight in launches.items()]  # fmt: skip
    return Read(rows, [f"The table's {' and '.join(words)} decides nothing: it is no size."] if words else ())


def _rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text("utf-8-sig", "replace")
    try:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        if path.suffix == ".json":
            found = json.loads(text)
            inner = [value for value in found.values() if isinstance(value, list)] if isinstance(found, dict) else []
            rows: list[dict[str, Any]] = inner[0] if len(inner) == 1 else found
            return rows
    except ValueError as error:
        raise UsageError("BAD_WORKLOAD", f"{path.name} is not JSON: {error}.", EXAMPLE) from None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    delimiter = max("\t;,", key=lines[0].count) if lines else ","
    return list(csv.DictReader(lines, delimiter=delimiter, skipinitialspace=True))


def _sized(row: Any, named: Sequence[str], words: dict[str, None]) -> tuple[dict[str, int], float]:
    """Sizes and launches of one row. words: gets the names of columns that hold words. Raises ValueError."""
    if not isinstance(row, dict):
        raise ValueError("it is not an object")
    inner = row.get("workload", row)
    if isinstance(inner, dict) and isinstance(inner.get("axes"), dict):  # FlashInfer-Trace: one line a recorded call
        cells, weight = dict(inner["axes"]), 1.0
    else:
        column = next((name for name in WEIGHTS if name in row), None)
        if column is None:
            raise ValueError(f"it has no {', '.join(WEIGHTS[:-1])} or {WEIGHTS[-1]}")
        weight = _number(row[column], column)
        cells = {
            _named(name, named): value for name, value in row.items() if name not in WEIGHTS and value not in (None, "")
        }
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError(f"its weight is {weight:g}, and must be above 0")
    if "shape" in cells:
        cells.update(_shape(str(cells.pop("shape")), named))
    texts = [name for name, value in cells.items() if name not in named and re.search(r"[^\W\d_]", str(value))]
    words.update(dict.fromkeys(texts))
    cells = {name: value for name, value in cells.items() if name not in texts}
    if unknown := [name for name in cells if name not in named]:
        known = f"names {', '.join(named)}" if named else "names no sizes: such as M=64, x=randn(M,128)"
        raise ValueError(f"there is no size {unknown[0]!r}; inputs {known}")
    if not cells:
        raise ValueError("it names no size")
    return {name: _size(value, name) for name, value in cells.items()}, weight


def _named(name: str, named: Sequence[str]) -> str:
    """The size that a column stands for, which may be written in other letters."""
    alike = [each for each in named if each.lower() == name.strip().lower()]
    return alike[0] if name not in named and len(alike) == 1 else name


def _number(value: Any, name: str) -> float:
    """A number as tables write it: 1,024 or 94%."""
    try:
        return float(value.strip().rstrip("%").replace(",", "") if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise ValueError(f"its {name} is {value!r}, and must be a number") from None


def _size(value: Any, name: str) -> int:
    number = _number(value, name)
    if not (number >= 1 and number.is_integer()):
        raise ValueError(f"its {name} is {number:g}, and must be an integer from 1 on")
    return int(number)


def _shape(text: str, named: Sequence[str]) -> dict[str, str]:
    """Sizes of `M=64 K=128`, or of 64x128 in the order in which the inputs name them."""
    if "=" in text:
        return dict(part.split("=", 1) for part in re.split(r"[\s;,]+", text.strip()) if part)
    numbers = re.findall(r"\d+", text)
    if len(numbers) > len(named):
        raise ValueError(f"{text!r} has {len(numbers)} sizes, and inputs names {len(named)}")
    return dict(zip(named, numbers, strict=False))


# --- traces


def _trace(path: Path, operator: str | None, parameters: Parameters | None, function: str) -> Read:
    events = targets.events(path)
    known = targets.operators(events, path.name)
    names = list(dict.fromkeys(each.name for each in known))  # those that take most time first
    wanted = next((name for name in names if (operator or function) in (name, name.rpartition("::")[2])), None)
    chosen = [each for each in known if each.name == wanted]
    if not chosen:
        message = f"{path.name} contains no operator {operator or function!r}."
        most = ", ".join(names[:8])
        raise NotFound("NO_OPERATOR", message, f"Name one as {path.name}:OPERATOR. Among others: {most}.")
    fitting = [(each, bound) for each in chosen if (bound := binding.bind(each, parameters)).arguments]
    if not fitting:
        if any(kind.endswith("List") and kind != "ScalarList" for kind in chosen[0].types):
            message = f"{chosen[0].name} takes a list of tensors, whose types {path.name} does not contain."
            raise UsageError("BAD_WORKLOAD", message, f"Write its sizes into a table. {EXAMPLE}")
        count = len(parameters.positional) if parameters else 0
        tensors = sum(kind in aten.DTYPES for kind in chosen[0].types)
        message = f"{function} takes {count} arguments, and {chosen[0].name} has {tensors} tensors in {path.name}."
        raise UsageError("BAD_WORKLOAD", message, f"Name the operator that it replaces: {path.name}:OPERATOR.")
    times = {id(each): (each.device_us or each.host_us) for each, _ in fitting}
    fitting.sort(key=lambda pair: -times[id(pair[0])])
    total, whole = sum(times.values()), sum(each.device_us or each.host_us for each in chosen)
    rows = [
        Row(_label(each), each.calls, times[id(each)] * 1e-6, None, bound.arguments, bound.order)
        for each, bound in fitting
    ]
    rest = sum(row.recorded_s or 0.0 for row in rows[MOST:]) * 1e6 + whole - total
    notes = []
    if left := len(chosen) - len(rows[:MOST]):
        notes.append(f"{left} signatures are not measured: {100 * rest / whole:.2g} % of the operator's time.")
    step_us = targets.whole_us(events, chosen[0].name)
    return Read(rows[:MOST], notes, min(1.0, (whole - rest) / step_us) if step_us else None)


def _label(operator: Operator) -> str:
    """Shapes of the tensors, and their type: [64, 128] [128, 128] bfloat16; with the strides that are not usual."""
    tensors = [at for at, kind in enumerate(operator.types) if kind in aten.DTYPES]
    kinds = dict.fromkeys(aten.DTYPES[operator.types[at]] for at in tensors)
    return " ".join([*(_shaped(operator, at) for at in tensors), *kinds])


def _shaped(operator: Operator, at: int) -> str:
    dims, strides = operator.dims[at], operator.strides[at] if operator.strides else None
    usual = [math.prod(dims[place + 1 :]) for place in range(len(dims))]
    return f"{dims}" if strides in (None, usual) else f"{dims} by {strides}"
