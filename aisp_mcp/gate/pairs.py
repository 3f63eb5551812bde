"""The candidates of two commits as pairs of files, in which the base's candidate is the baseline."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aisp_mcp.errors import BenchmarkError, NotFound, UsageError
from aisp_mcp.gate import strays
from aisp_mcp.judge import candidate_needs
from aisp_mcp.judge.native import build
from aisp_mcp.judge.pair import SOURCE_FOLDERS, Pair
from aisp_mcp.judge.records import Skip
from aisp_mcp.runs.commits import Checkout
from aisp_mcp.store.records.run import Failure
from aisp_mcp.suites import discovery

# Each runs in the processes of one commit, never together with the other. The base's specification defines inputs,
# tolerance and truth; only run() is the base candidate's.
BASE_PROGRAM = '''"""{summary}"""
import sys

sys.path[:0] = {sources!r}
from pathlib import Path

import torch

from aisp_mcp.bench import Benchmark
from aisp_mcp.gate import strays
from aisp_mcp.judge.loading import common_of, load_candidate, load_common, load_module

load_common(common_of(Path({spec!r})))
_spec = load_module(Path({spec!r}), "aisp_gate_spec")
_program = load_candidate(Path({program!r}))
strays.refuse(Path({repo!r}), Path({work!r}))
_class = next(v for v in vars(_spec).values() if isinstance(v, type) and issubclass(v, Benchmark)
              and v.__module__ == _spec.__name__)


class Shapes:
    """An rng whose tensors have no values: it tells which names are static."""

    device = "meta"

    def randn(self, *shape, dtype="float32", **_):
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")

    rand = randn

    def randint(self, low, high, *shape, dtype="int64", **_):
        return self.randn(*shape, dtype=dtype)

    def permutation(self, n):
        return self.randn(n, dtype="int64")

    def bernoulli(self, p, *shape):
        return self.randn(*shape, dtype="bool")


class Base(_class):
    _static = _names = None

    def run(self, **tensors):
        prepare = getattr(_program, "prepare", None)
        if prepare is None:
            return _program.run(**tensors)
        if self._names is None:
            self._names = frozenset(self.params(Shapes()))
        inputs = {{k: v for k, v in tensors.items() if k not in self._names}}
        if self._static is None:
            params = {{k: v for k, v in tensors.items() if k in self._names}}
            self._static = dict(prepare(params, {{k: v.clone() for k, v in inputs.items()}}))
        return _program.run(**inputs, **self._static)

    def reference(self, **tensors):
        plain = _class()
        plain.__dict__.update(self.__dict__)
        return plain.reference(**tensors)
'''
HEAD_PROGRAM = '''"""{summary}"""
import sys

sys.path[:0] = {sources!r}
from pathlib import Path

from aisp_mcp.gate import strays
from aisp_mcp.judge.loading import load_candidate

_program = load_candidate(Path({program!r}))
strays.refuse(Path({repo!r}), Path({work!r}))
run = _program.run
if hasattr(_program, "prepare"):
    prepare = _program.prepare
'''


@dataclass(frozen=True)
class CandidateFiles:
    """One candidate at one commit: its specification's file and its own."""

    spec: Path
    path: Path
    summary: str


@dataclass(frozen=True)
class Checkouts:
    """Both checkouts, the folder that holds them and the pairs, and the repository's working tree."""

    base: Checkout
    head: Checkout
    work: Path
    tree: Path

    @property
    def both(self) -> tuple[Checkout, Checkout]:
        return self.base, self.head


def find_candidates(checkout: Checkout, roots: Sequence[str], names: Sequence[str]) -> dict[str, CandidateFiles]:
    """The named candidates of a checkout by full name. Missing names are handled when both are compared.

    Raises UsageError DUPLICATE_TARGET.
    """
    candidates: dict[str, CandidateFiles] = {}
    folders = [checkout.folder / root for root in roots]
    renamed = [file_name for file_name, name in checkout.names.items() if name in names]
    for folder in filter(Path.is_dir, folders):
        for name in (*names, *renamed):
            try:
                resolved = discovery.resolve(folder, [name])
            except NotFound:
                continue
            for target, variants in resolved:
                for variant in variants:
                    if not target.problem and not variant.problem:
                        files = CandidateFiles(Path(target.path), Path(variant.path), target.summary)
                        file_name = discovery.full_name(target, variant)
                        _add(candidates, checkout.names.get(file_name, file_name), files)
    return candidates


def _add(candidates: dict[str, CandidateFiles], name: str, files: CandidateFiles) -> None:
    """Raises UsageError DUPLICATE_TARGET if another root has a candidate of that name."""
    if candidates.setdefault(name, files) != files:
        both = f"{candidates[name].path} and {files.path}"
        raise UsageError("DUPLICATE_TARGET", f"{both} have the same name.", "Rename one of them.")


def make_pairs(
    candidates: Mapping[str, tuple[CandidateFiles, CandidateFiles]], checkouts: Checkouts, device: str
) -> tuple[list[Pair], list[Failure | Skip]]:
    """Pairs to measure, with C++ and CUDA candidates compiled, and those that cannot be measured.

    candidates: files at the base and at the head, by full name.
    """
    pairs, broken = list[Pair](), list[Failure | Skip]()
    for name, both in candidates.items():
        at_base, at_head = (
            _lacks(files, checkout, device) for files, checkout in zip(both, checkouts.both, strict=True)
        )
        if at_base:
            broken.append(Skip(target=name, code="NEEDS", missing=at_base))
        elif at_head:
            broken.append(Failure(target=name, code="HEAD_NEEDS", message=head_needs(at_head)))
        else:
            try:
                pairs.append(_write_pair(name, both, checkouts))
            except BenchmarkError as error:
                broken.append(Failure(target=name, code=error.code, message=error.message, hint=error.hint))
    return pairs, broken


def head_needs(missing: str) -> str:
    """The message for a benchmark that only the base can run here. missing: what the head needs."""
    return f"The head needs {missing}. The base does not."


def _lacks(files: CandidateFiles, checkout: Checkout, device: str) -> str | None:
    if build.is_native(files.path):
        return build.lacks(files.path, device)
    return candidate_needs.lacks(files.path, device, map(Path, strays.sources(checkout.folder)))


def have_same_spec(at_base: CandidateFiles, at_head: CandidateFiles) -> bool:
    """Return True if the specification did not change."""
    return at_base.spec.read_bytes() == at_head.spec.read_bytes()


def _write_pair(name: str, both: tuple[CandidateFiles, CandidateFiles], checkouts: Checkouts) -> Pair:
    """Write the programs of both commits. Raises BenchmarkError BAD_HEADER or COMPILE_FAILED."""
    at_base, at_head = both
    folder = checkouts.work / "pairs" / name.replace(":", "/")
    folder.mkdir(parents=True)
    spec, candidate = folder / "baseline_pair.py", folder / "optimized_pair.py"
    common = {
        "summary": at_base.summary.replace('"', "'").replace("\\", ""),
        "spec": str(at_base.spec),
        "repo": str(checkouts.tree),
        "work": str(checkouts.work),
    }
    for file, text, files, checkout, copies in (
        (spec, BASE_PROGRAM, at_base, checkouts.base, SOURCE_FOLDERS[0]),
        (candidate, HEAD_PROGRAM, at_head, checkouts.head, SOURCE_FOLDERS[1]),
    ):
        _copy(files, folder / copies)
        program = str(_loadable(name, files, folder / file.stem))
        file.write_text(text.format(**common, sources=strays.sources(checkout.folder), program=program), "utf-8")
    return Pair(name, spec, "", candidate)


def _copy(files: CandidateFiles, folder: Path) -> None:
    """Copy a benchmark's files to a folder that the run stores: the programs of a pair only load them."""
    for path in Pair("", files.spec, "", files.path).files().values():
        copy = folder / path.relative_to(files.spec.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def _loadable(name: str, files: CandidateFiles, folder: Path) -> Path:
    """The candidate's file, or its library, in a folder that measured processes see."""
    if not build.is_native(files.path):
        return files.path
    library = Pair(name, files.spec, "", files.path).compiled()[0].path
    return Path(shutil.copytree(library.parent, folder)) / library.name
