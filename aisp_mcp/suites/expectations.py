"""Expectations as data: expect.yaml next to the pairs, the entry that matches a device, and grades of a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.store.records.run import Run
from aisp_mcp.suites import discovery as suites
from aisp_mcp.suites.records import Expectation, Expected, Grade, Mark, Target

FILE = "expect.yaml"


def load(targets: Iterable[Target]) -> list[Expectation]:
    """The entries of the targets' folders, by target. Raises BenchmarkError BAD_EXPECTATIONS naming file and entry."""
    expectations: list[Expectation] = []
    entries: dict[Path, dict[str, Any]] = {}
    for target in targets:
        path = Path(target.path).with_name(FILE)
        if path not in entries:
            entries[path] = _read(path)
        for variant in target.variants:
            full = suites.full_name(target, variant)
            classes = entries[path].get(full.partition(":")[2], {})
            locations = ({"candidate": full, "device": device, "path": str(path)} for device in classes)
            expectations += [
                Expectation(**dict(e), **location) for e, location in zip(classes.values(), locations, strict=True)
            ]
    return expectations


def unclaimed(targets: Iterable[Target]) -> list[str]:
    """Entries that name no candidate, as FILE: NAME."""
    names: dict[Path, set[str]] = {}
    for target in targets:
        known = names.setdefault(Path(target.path).with_name(FILE), set())
        known.update(suites.full_name(target, variant).partition(":")[2] for variant in target.variants)
    return [f"{path}: {name}" for path, known in names.items() for name in _read(path) if name not in known]


def _read(path: Path) -> dict[str, dict[str, Expected]]:
    import yaml

    if not path.is_file():
        return {}
    try:
        body = yaml.load(path.read_text("utf-8"), _loader()) or {}
        return {
            str(name): {str(d): _entry(path, f"{name}, {d}", e) for d, e in part.items()} for name, part in body.items()
        }
    except (yaml.YAMLError, AttributeError, UnicodeDecodeError) as error:
        raise BenchmarkError("BAD_EXPECTATIONS", f"{path}: {str(error)[:300]}", _HINT) from error


_HINT = "CONTRIBUTING.md shows the form of an entry."


def _loader() -> Any:
    """libyaml's parser if PyYAML includes it: it takes a tenth of the time."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _entry(path: Path, where: str, given: Any) -> Expected:
    try:
        entry = Expected.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        message = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise BenchmarkError("BAD_EXPECTATIONS", f"{path}: {where}: {message}", _HINT) from error
    if (entry.source is None) == (entry.informational is None):
        raise BenchmarkError("BAD_EXPECTATIONS", f"{path}: {where}: give either source or informational.", _HINT)
    if entry.range is not None and not 0 < entry.range[0] <= entry.range[1]:
        raise BenchmarkError("BAD_EXPECTATIONS", f"{path}: {where}: the range is not ascending.", _HINT)
    return entry


def words_of(run: Run) -> frozenset[str]:
    """The words by which classes of device match the machine of a run: kind, name, instruction sets."""
    if run.gpus:
        return _words(f"cuda {run.gpus[0].get('name') or ''}")
    return _words(" ".join(["cpu", str(run.host.get("cpu") or ""), *map(str, run.host.get("isa") or [])]))


def named(hardware: str) -> frozenset[str]:
    """The words of a device that a person names: `H200`, `cuda`, `cpu amx_bf16`."""
    words = _words(hardware)
    return words if words & {"cpu", "cuda"} else words | {"cuda"}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.lower().replace("(r)", " ").split())


def fitting(entries: list[Expectation], device: frozenset[str]) -> dict[str, Expectation]:
    """Per candidate, the entry whose words all match the device; of several, the one with the most words, then the
    last.
    """
    expectations: dict[str, Expectation] = {}
    for entry in entries:
        words = _words(entry.device)
        best = expectations.get(entry.candidate)
        more = best is None or _weight(words) >= _weight(_words(best.device))
        if words <= device and more:
            expectations[entry.candidate] = entry
    return expectations


def _weight(words: frozenset[str]) -> int:
    """`H200` says more than `cuda`, and as much as `cuda H200`."""
    return len(words - {"cpu", "cuda"})


def grade(run: Run, entries: list[Expectation]) -> list[Grade]:
    """Every verdict of a run against the entry of its device."""
    fits = fitting(entries, words_of(run))
    return [_grade(comparison, fits.get(comparison.label)) for comparison in run.comparisons]


def _grade(comparison: Comparison, entry: Expectation | None) -> Grade:
    mark, why = _mark(comparison, entry)
    return Grade(
        candidate=comparison.label,
        device=entry.device if entry else None,
        mark=mark,
        expected=entry.direction if entry else None,
        range=entry.range if entry else None,
        source=entry.source if entry else None,
        verdict=comparison.verdict.value,
        ratio=comparison.ratio,
        interval=[comparison.interval.low, comparison.interval.high] if comparison.interval else [],
        why=why,
    )


def _mark(comparison: Comparison, expected: Expected | None) -> tuple[Mark, str]:
    verdict = comparison.verdict.value
    if verdict in ("incorrect", "invalid"):
        return "contradicted", comparison.sentence
    if expected is None:
        return "no_expectation", "no entry for this device"
    if expected.informational is not None:
        return "informational", expected.informational
    if verdict == "inconclusive":
        return "undecided", "the measurement was too noisy to tell"
    if verdict != expected.direction:
        return "contradicted", f"expected {expected.direction}, measured {verdict}"
    return _within(comparison, expected)


def _within(comparison: Comparison, expected: Expected) -> tuple[Mark, str]:
    """Return True if the interval meets the range: a measured ratio alone is too uncertain."""
    if expected.range is None or comparison.interval is None:
        return "met", verdict_words(comparison)
    low, high = expected.range
    if comparison.interval.high < low or comparison.interval.low > high:
        return (
            "contradicted",
            f"expected {low:g}-{high:g}x, measured {comparison.interval.low:.3g}-{comparison.interval.high:.3g}x",
        )
    return "met", verdict_words(comparison)


def verdict_words(comparison: Comparison) -> str:
    return (
        comparison.verdict.value if comparison.ratio is None else f"{comparison.verdict.value}, {comparison.ratio:.3g}x"
    )
