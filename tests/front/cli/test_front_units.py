"""Every number of every record is written with the unit that its name ends in, and no unit goes unknown."""

import contextlib
import importlib
import importlib.util
import json
import pkgutil
import re
import sys
from collections.abc import Iterator

import pytest

import aisp_mcp
from aisp_mcp.front.cli import format
from aisp_mcp.records import Record
from aisp_mcp.server.text import numbers

# By the name alone: what a value of 3 must look like. The first that matches counts.
EXPECTED = (
    (r"bytes_(?:per_)?s$", r"^3 B/s$"),
    (r"(?<!flop)(?<!flops)_per_s$", r"^3 /s$"),
    (r"flops?_(?:per_)?s$", r"^3 FLOP/s$"),
    (r"(?:^|_)flops?$", r"^3 FLOP$"),
    (r"(?:^|_)bytes(?:$|_per_(?:block|sm)$)", r"^3 B$"),
    (r"_rss$|^growth$|^device_(?:used|peak)", r"^3 B$"),
    (r"(?:_|^)ns$", r"^3 ns$"),
    (r"(?:_|^)us$", r"^3 µs$"),
    (r"(?:_|^)ms$", r"^3 ms$"),
    (r"_s$|^seconds$", r"^3 s$"),
    (r"_mhz$", r"^3 MHz$"),
    (r"_percent$|_(?:some|full)$", r"^3 %$"),
    (r"_w$", r"^3 W$"),
    (r"_j$", r"^3 J$"),
    (r"_c$", r"^3 °C$"),
    (r"_mb$", r"^3 MB$"),
    (r"_gb$", r"^3 GB$"),
    (r"_mbps$", r"^3 Mbit/s$"),
)
# The last part of a name that means a unit to a reader.
UNITS = {
    *("s", "ns", "us", "ms", "min", "h", "hours", "hz", "khz", "mhz", "ghz", "bytes", "kb", "mb", "gb", "tb", "kib"),
    *("mib", "gib", "tib", "bps", "kbps", "mbps", "gbps", "w", "mw", "kw", "j", "mj", "kj", "wh", "kwh", "v", "c"),
    *("celsius", "usd", "percent", "pct", "flop", "flops", "tflops", "seconds", "rss"),
}
FEATURES = (
    "assist",
    "gate",
    "jobs",
    "judge",
    "machine",
    "optimize",
    "plan",
    "profile",
    "runs",
    "server",
    "suites",
    "system",
    "validity",
)
_SKIPPED = re.compile(r"_child$|exploit|__main__|\.shim$|verifier$|\.checks\.")


def _records() -> set[type[Record]]:
    with pytest.MonkeyPatch.context() as without:
        if "torch" not in sys.modules:  # which takes seconds to import; programs of children need it, and no record
            without.setitem(sys.modules, "torch", None)
        _import_all()
    return set(_below(Record))


def _import_all() -> None:
    for module in pkgutil.walk_packages(aisp_mcp.__path__, "aisp_mcp."):
        if module.name.split(".")[1] in FEATURES and not _SKIPPED.search(module.name):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def _below(kind: type[Record]) -> Iterator[type[Record]]:
    for record_type in kind.__subclasses__():
        yield record_type
        yield from _below(record_type)


def _numeric_fields() -> list[str]:
    names = set()
    for record in _records():
        for name, field in record.model_fields.items():
            if record.__module__.startswith("aisp_mcp.") and re.search(r"\b(?:int|float)\b", str(field.annotation)):
                names.add(name)
    return sorted(names)


@pytest.fixture(scope="module")
def fields() -> list[str]:
    """Loaded when a test asks for them, not when tests are collected: this imports nearly all of the package."""
    return _numeric_fields()


def test_the_fields_are_those_of_the_product(fields: list[str]) -> None:
    assert len(fields) > 200
    assert {"total_ns", "busbw_bytes_per_s", "per_direction_bytes_s", "peak_bytes", "draw_w"} <= set(fields)


def test_a_value_has_the_unit_of_its_name(fields: list[str]) -> None:
    units = {name: unit for name in fields for pattern, unit in reversed(EXPECTED) if re.search(pattern, name)}
    assert len(units) > 100
    texts = {name: format.number(name, 3) for name in units}
    assert {name: text for name, text in texts.items() if not re.search(units[name], text)} == {}


def test_no_unit_at_the_end_of_a_name_is_unknown(fields: list[str]) -> None:
    named = [name for name in fields if "_" in name and name.rsplit("_", 1)[1] in UNITS]
    assert len(named) > 100
    assert [name for name in named if format.unit_of(name) is None] == []


@pytest.mark.parametrize("name", ["link_bytes_s", "bandwidth_bytes_per_s", "peak_flop_per_s"])
def test_rates_are_no_times(name: str) -> None:
    text = format.number(name, 3.35e12)
    assert re.fullmatch(r"3\.35 T(?:B|FLOP)/s", text)


def test_an_interval_has_the_unit_of_its_name() -> None:
    row = {name: {"median": 2e9, "low": 1e9, "high": 3e9, "rounds": 3} for name in ("latency_ns", "bandwidth", "busbw")}
    text = format.measured(row)
    assert text == {"latency_ns": "2 s [1 s, 3 s]", **dict.fromkeys(("bandwidth", "busbw"), "2 GB/s [1 GB/s, 3 GB/s]")}
    assert format.measured({"unit": "FLOP/s", "rate": row["busbw"]})["rate"] == "2 GFLOP/s [1 GFLOP/s, 3 GFLOP/s]"


def test_columns_that_would_be_named_the_same_keep_their_units() -> None:
    assert format.labels(["name", "host_us", "host_bytes", "self_ns"]) == ["name", "host us", "host bytes", "self"]


@pytest.mark.parametrize(
    ("value", "unit", "text"), [(6.38e14, "FLOP/s", "638 TFLOP/s"), (4.3e12, "B/s", "4.3 TB/s"), (3e-6, "s", "3 µs")]
)
def test_quantities_in_notes_have_prefixes(value: float, unit: str, text: str) -> None:
    assert numbers.quantity(value, unit) == text


def test_no_note_writes_a_rate_with_an_exponent() -> None:
    """A number formatted next to a unit that is only known at run time."""
    for module in pkgutil.walk_packages(aisp_mcp.__path__, "aisp_mcp."):
        spec = importlib.util.find_spec(module.name)
        assert spec is not None
        if module.name.split(".")[1] in ("catalog", "flows", "probes") and spec.origin and spec.origin.endswith(".py"):
            with open(spec.origin, encoding="utf-8") as file:
                match = re.search(r":\.\d[ge]\} \{[\w.]*unit\}", file.read())
            assert match is None, json.dumps([module.name, match and match[0]])
