"""Format values with units, which are taken from the end of their names: `size_bytes`, `time_s`, `power_w`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aisp_mcp.server.text import numbers

GROUPED = 100_000  # integers from here on have separators
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("", "k", "M", "G", "T", "P")
_FRACTIONS = (
    *(
        "share",
        "share_of_roof",
        "of_roof",
        "noise_floor",
        "margin",
        "resolution",
        "gain_ceiling",
        "undetected_share",
        "overlap",
    ),
    *("latency_margin", "memory_margin", "throughput_margin"),
    *("compute", "exposed_communication", "exposed_copies", "communication_overlap", "occupancy", "unused_at_peak"),
    *("idle_host", "idle_kernel", "idle_dependency", "idle_other", "idle_unknown", "idle_edge", "self_share"),
)


def _time(factor: float) -> Callable[[float], str]:
    return lambda item: seconds(item * factor)


def _plain(unit: str) -> Callable[[float], str]:
    return lambda item: f"{plain(item)} {unit}"


def _rate(unit: str) -> Callable[[float], str]:
    return lambda item: scaled(item, 1000, _DECIMAL, unit)


def _size(item: float) -> str:
    return scaled(item, 1024, _BINARY, "")


# Suffix of a name, after an underscore or alone, to the format of its values. The longest suffix wins.
_UNITS: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(("bytes_per_s", "bytes_s", "b_s"), _rate("B/s")),
    **dict.fromkeys(("flop_per_s", "flops_per_s", "flop_s"), _rate("FLOP/s")),
    **dict.fromkeys(("bytes", "rss", "bytes_per_block", "bytes_per_sm"), _size),
    **dict.fromkeys(("flop", "flops"), _rate("FLOP")),
    **dict.fromkeys(("w", "watts"), _plain("W")),
    **dict.fromkeys(("c", "celsius"), _plain("°C")),
    **dict.fromkeys(("gb_s", "gbps"), _plain("GB/s")),
    **dict.fromkeys(("percent", "pct"), _plain("%")),
    "ns": _time(1e-9), "us": _time(1e-6), "ms": _time(1e-3), "s": _time(1.0), "seconds": _time(1.0),
    "mw": _plain("mW"), "mhz": _plain("MHz"), "mb": _plain("MB"), "mib": _plain("MiB"), "gb": _plain("GB"),
    "gib": _plain("GiB"), "mbps": _plain("Mbit/s"), "usd": _plain("USD"), "j": _plain("J"), "per_s": _plain("/s"),
    "usd_per_kwh": _plain("USD/kWh"),
}  # fmt: skip
_PER_SECOND = ("bytes_per_s", "flop_per_s", "flops_per_s")  # alone, such a name is also its label
# Names that do not end in their unit.
_NAMED: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(("ratio", "speedup", "improvement"), numbers.ratio),
    "seconds_per_call": numbers.seconds,
    **dict.fromkeys(("bandwidth", "busbw"), _rate("B/s")),
    **dict.fromkeys(_FRACTIONS, lambda item: f"{100 * item:.3g} %"),
    **dict.fromkeys(("device_peak_allocated", "device_peak_reserved", "device_used", "growth"), _size),
    **dict.fromkeys(("cpu_some", "io_some", "io_full", "memory_some", "memory_full"), _plain("%")),
}
PROGRAMS = ("baseline", "candidate")  # whose cells beside a metric's name are in its unit
METRICS = ("without", "metrics")  # lists of metrics' names
_LONGEST_FIRST = sorted(_UNITS, key=len, reverse=True)


def unit_of(name: str) -> str | None:
    """Return the suffix of a name that is its unit, or None."""
    return next((unit for unit in _LONGEST_FIRST if name == unit or name.endswith(f"_{unit}")), None)


def labels(names: Sequence[str]) -> list[str]:
    """Return the headings of a table; names that would get the same heading keep their unit (host us, host bytes)."""
    short = [label(name) for name in names]
    return [name.replace("_", " ") if short.count(text) > 1 else text for name, text in zip(names, short, strict=True)]


def label(name: str) -> str:
    """Return a name without its unit, which the value shows: "time" for `time_s`."""
    if name in _PER_SECOND:
        return name.replace("_per_", "/")
    unit = unit_of(name)
    text = name if unit is None or unit == name or "_per_" in unit.removesuffix("_per_s") else name[: -len(unit) - 1]
    return text.replace("_", " ")


def value(name: str, item: Any) -> str:
    """Format a value with its unit, nested values on one line."""
    if item is None:
        return "–"
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, int | float):
        return number(name, item)
    if isinstance(item, str):
        return item
    if isinstance(item, list) and all(not isinstance(part, dict | list) for part in item):
        return ", ".join(value(name, part) for part in item) or "–"
    if isinstance(item, dict) and set(item) >= {"low", "high"}:
        return f"[{value(name, item['low'])}, {value(name, item['high'])}]"
    return json.dumps(item, ensure_ascii=False)


def measured(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replace measured rates by their median and interval in the row's unit, and references by shares.

    A provisional verdict is hollow, a ratio that is a lower bound says so, and a metric's values have its unit.
    """
    row = _qualified(row)
    unit = str(row.get("unit") or "")
    in_unit = seconds if unit == "s" else lambda item: scaled(item, 1000, _DECIMAL, unit)
    texts: dict[str, Any] = {}
    for name, item in row.items():
        write = in_unit if unit else partial(number, name)
        of_value = unit and _are_numbers([row.get("value")]) and name in ("value", "interval", "repeats")
        if of_value and _are_numbers(amounts := item if isinstance(item, list) else [item]):
            texts[name] = ", ".join(map(write, amounts))
        if not isinstance(item, Mapping):
            continue
        if set(item) >= {"median", "low", "high"} and _are_numbers(item[key] for key in ("median", "low", "high")):
            texts[name] = f"{write(item['median'])} [{write(item['low'])}, {write(item['high'])}]"
        elif set(item) == {"value", "share", "source"} and _are_numbers((item["value"], item["share"])):
            texts[name] = f"{100 * item['share']:.3g} % of {write(item['value'])}, {item['source']}"
    others = {name: item for name, item in row.items() if not (texts and name == "unit")}
    return {**others, **texts}


def _qualified(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with each mark in the cell that it qualifies."""
    cells = dict(row)
    if isinstance(cells.get("provisional"), bool) and isinstance(cells.get("verdict"), str):
        cells["verdict"] = numbers.verdict(cells["verdict"], cells.pop("provisional"))
    if isinstance(counts := cells.get("verified"), list) and len(counts) == 2:
        cells["verified"] = f"{counts[0]} of {counts[1]}"
    if isinstance(metric := cells.get("metric"), str) and (unit_of(metric) or metric in _NAMED):
        values = {name: item for name, item in cells.items() if name in PROGRAMS and isinstance(item, int | float)}
        cells |= {"metric": label(metric), **{name: number(metric, item) for name, item in values.items()}}
    for name in METRICS:
        if isinstance(names := cells.get(name), list) and all(isinstance(part, str) for part in names):
            cells[name] = [label(part) for part in names]
    for end in ("", "_before", "_after"):
        if isinstance(cells.get(f"at_least{end}"), bool):
            bound, ratio = cells.pop(f"at_least{end}"), cells.get(f"ratio{end}")
            if bound and isinstance(ratio, int | float):
                cells[f"ratio{end}"] = numbers.ratio(ratio, at_least=True)
    return cells


def _are_numbers(items: Iterable[Any]) -> bool:
    return all(isinstance(item, int | float) and not isinstance(item, bool) for item in items)


def number(name: str, item: float) -> str:
    """Format a number with the unit that its name ends in."""
    if name.endswith("_at") and 1e9 < item < 1e11:
        return datetime.fromtimestamp(item, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    unit = unit_of(name)
    write = _NAMED.get(name) or (_UNITS[unit] if unit else _size if name.startswith("bytes_per_") else plain)
    return write(item)


def plain(item: float) -> str:
    """Format integers in full, other numbers with four significant digits."""
    if isinstance(item, int) or (float(item).is_integer() and abs(item) < 1e6):
        return f"{int(item):,}" if abs(item) >= GROUPED else f"{int(item)}"
    return f"{item:.4g}"


def scaled(item: float, base: int, prefixes: tuple[str, ...], unit: str) -> str:
    size = float(item)
    for prefix in prefixes:
        if abs(size) < base or prefix == prefixes[-1]:
            return f"{size:.4g} {prefix}{unit}".rstrip()
        size /= base
    raise AssertionError("prefixes is never empty")


def seconds(item: float) -> str:
    """Format a time in h, min, s, ms, µs or ns."""
    size = abs(item)
    if size >= 120:
        hours = item / 3600
        return f"{item / 60:.3g} min" if size < 7200 else f"{hours:.3g} h" if abs(hours) < 1000 else f"{hours:,.0f} h"
    for limit, factor, unit in ((1.0, 1, "s"), (1e-3, 1e3, "ms"), (1e-6, 1e6, "µs")):
        if size >= limit:
            return f"{item * factor:.4g} {unit}"
    return "0 s" if item == 0 else f"{item * 1e9:.4g} ns"
