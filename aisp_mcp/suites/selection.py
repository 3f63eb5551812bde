"""From the names of targets to the pairs of files that can be measured on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from aisp_mcp.errors import AispError, BenchmarkError, NotFound, Unavailable
from aisp_mcp.judge import source_facts
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records import Skip
from aisp_mcp.store.records.run import Failure
from aisp_mcp.suites import discovery
from aisp_mcp.suites import names as target_names
from aisp_mcp.suites.records import Variant
from aisp_mcp.system import software
from aisp_mcp.system.gpu.nvml import benchmark_device


def pairs(roots: discovery.Roots, names: list[str]) -> tuple[list[Pair], list[Failure | Skip]]:
    """All (baseline, candidate) pairs of the named targets.

    A file that cannot be used is a Failure, a variant that needs what this machine lacks is a Skip: no exceptions.
    """
    by_label: dict[str, Pair] = {}
    broken: dict[str, Failure | Skip] = {}
    for pattern in target_names.read(names):
        pairs, unusable = _selected(roots, pattern)
        by_label |= {pair.label: pair for pair in pairs}
        broken |= {failure.target: failure for failure in unusable}
    return list(by_label.values()), list(broken.values())


def _selected(roots: discovery.Roots, pattern: target_names.Wanted) -> tuple[list[Pair], list[Failure | Skip]]:
    selected: list[Pair] = []
    broken: list[Failure | Skip] = []
    for target, variants in target_names.resolve(roots, pattern.name):
        if target.problem:
            broken.append(Failure(target=target.name, code="UNREADABLE", message=target.problem))
            continue
        if not variants:
            broken.append(
                Failure(target=target.name, code="NO_CANDIDATE", message="There is no optimized_ file next to it.")
            )
        for variant in variants:
            name = discovery.full_name(target, variant)
            if pattern.file not in (None, Path(variant.path).name):
                continue
            if variant.problem:
                broken.append(Failure(target=name, code="UNREADABLE", message=variant.problem))
            elif missing := _missing(variant):
                broken.append(Skip(target=name, code="NEEDS", missing=missing))
            else:
                selected.append(Pair(target.name, Path(target.path), variant.name, Path(variant.path)))
    return selected, broken


def _missing(variant: Variant) -> str:
    """The GPUs or packages that a variant needs beyond its target's and this machine lacks, as a phrase."""
    lacks = [f"package {name}" for name in str(variant.needs.get("packages", "")).split(", ") if name]
    lacks = [lack for lack in lacks if software.version(lack.removeprefix("package ")) is None]
    if variant.needs.get("gpus") and benchmark_device() == "cpu":
        lacks.insert(0, f"{variant.needs['gpus']} CUDA device(s)")
    return ", ".join(lacks)


def digests(chosen: Sequence[Pair]) -> dict[str, str]:
    """SHA-256 of the files of each pair, by label."""
    return {pair.label: hashlib.sha256("".join(pair.sources().values()).encode()).hexdigest() for pair in chosen}


def candidate_pair(roots: discovery.Roots, name: str, candidate: str, folder: Path) -> Pair:
    """A pair of a known baseline and any file or source text. Raises NotFound NO_CANDIDATE, and as target_names.one.

    candidate: a path, or a file's text (recognised by its line breaks), which is stored in `folder` as evidence:
    Python, or C++ and CUDA C++, which begin with the comment that contains their launch header.
    """
    target = target_names.one(roots, name)
    path = candidate_file(candidate)
    if path is None:
        path = folder / f"candidate{language(candidate)}"
        path.write_text(candidate, encoding="utf-8")
    return Pair(target.name, Path(target.path), path.stem, path.resolve())


def candidate_file(candidate: str) -> Path | None:
    """The file that a candidate is the path of; None for a text. Raises NotFound NO_CANDIDATE."""
    if "\n" in candidate:
        return None
    path = Path(candidate).expanduser()
    if not path.is_file():
        hint = "Give the path of a file, or its text: two lines or more."
        raise NotFound("NO_CANDIDATE", f"There is no file {candidate[:200]!r}.", hint)
    return path


def require_candidate(candidate: str) -> None:
    """Refuse what is not a file, and a Python text that cannot define run(), before a job starts.

    Raises NotFound NO_CANDIDATE, BenchmarkError UNREADABLE.
    """
    path = candidate_file(candidate)
    if (path.suffix if path else language(candidate)) == ".py":
        facts = source_facts.read(path.read_bytes() if path else candidate.encode(), ".py", baseline=False)
        if facts.problem:
            raise BenchmarkError("UNREADABLE", f"{path.name if path else 'The candidate'}: {facts.problem}.")


def language(text: str) -> str:
    """Suffix of a candidate that is given as text."""
    if not text.lstrip().startswith("/*"):
        return ".py"
    return ".cu" if "cudaStream_t" in text else ".cpp"


def unusable(failure: Failure | Skip) -> AispError:
    """The error for a call whose only pair is unusable."""
    if isinstance(failure, Skip):
        return Unavailable(failure.code, f"{failure.target} needs {failure.missing}.")
    return BenchmarkError(failure.code, f"{failure.target}: {failure.message}", failure.hint)
