"""Find benchmarks by path. Files are parsed, never imported, and a broken one affects nothing else.

`<root>/<chapter>/baseline_<target>.py` is a target; `optimized_<target>[_<variant>].py` files next to it are its
candidates, and so are `.cpp` and `.cu` files, whose variants end in the language: `optimized_row_sum.cu` is the variant
`cu`. Chapters below a root named `labs` are `labs/<chapter>`. The longest baseline name wins:
`optimized_row_sum_tiled.py` belongs to `row_sum`, unless there is a `baseline_row_sum_tiled.py`.
"""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import os
import re
import stat
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from aisp_mcp.errors import NotFound, UsageError
from aisp_mcp.judge import source_facts
from aisp_mcp.judge.native import launch_header
from aisp_mcp.judge.source_facts import Facts, plain
from aisp_mcp.settings import shipped_bench_roots
from aisp_mcp.suites.records import Chapter, Target, Variant

BASELINE, OPTIMIZED = "baseline_", "optimized_"
MAX_BYTES = 1 << 20  # a larger file is not a benchmark; parsing it would stall the server
MAX_DEPTH = 3  # folders below the root: chapters, labs, and groups of labs
MAX_FOLDERS = 5_000  # a root such as / is a mistake, and walking it would take minutes
LABS = "labs"

Roots = Path | Sequence[Path]
OWN = ("aisp_verify_candidate", {"target": "slow.py", "candidate": "fast.py", "inputs": "x=randn(4096,64)"})


@dataclass(frozen=True)
class _Identity:
    """The state of a file, as the file system reports it."""

    path: str
    mtime_ns: int
    size: int
    inode: int


@dataclass(frozen=True)
class _File:
    """One file with a benchmark's name. name: without prefix and suffix."""

    name: str
    path: str
    facts: Facts


@dataclass
class _Folder:
    """The benchmark files of one chapter."""

    chapter: str
    baselines: dict[str, _File] = field(default_factory=dict)
    candidates: dict[str, _File] = field(default_factory=dict)


def find_targets(roots: Roots) -> list[Target]:
    """All targets below the roots, by chapter and name.

    A file that cannot be read or parsed, or is a link that leaves the root, gives a record with `problem` set.
    Raises NotFound NO_BENCH_ROOT, UsageError BENCH_ROOT_TOO_LARGE or DUPLICATE_TARGET.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a benchmark's own SyntaxWarning is not the reader's business
        targets = [target for root in _each(roots) for folder in _folders(root) for target in _targets(folder)]
    targets = _own_first(targets)
    targets.sort(key=lambda target: (_natural(target.chapter), _natural(target.name)))
    for target, other in itertools.pairwise(targets):
        if target.name == other.name and target.path != other.path and not target.problem and not other.problem:
            raise UsageError(
                "DUPLICATE_TARGET", f"{target.path} and {other.path} have the same name.", "Rename one of them."
            )
    return targets


def _own_first(targets: list[Target]) -> list[Target]:
    """The targets without shipped ones of the same name as a user's own target."""
    own = _own(targets)
    names = {target.name for target in own}
    return [*own, *(target for target in targets if target.name not in names)]


def _own(targets: list[Target]) -> list[Target]:
    """Those that are not shipped."""
    shipped = tuple(f"{root}{os.sep}" for root in shipped_bench_roots())
    return [target for target in targets if not target.path.startswith(shipped)]


def chapters(roots: Roots) -> list[Chapter]:
    """The folders that contain targets, with counts and topics. Raises as find_targets."""
    groups: dict[str, list[Target]] = {}
    for target in find_targets(roots):
        groups.setdefault(target.chapter, []).append(target)
    return [_chapter(_each(roots), name, group) for name, group in groups.items()]


def topic(roots: Roots, target: Target) -> str | None:
    """The topic of a target's chapter: the first heading of its README."""
    return _topic(Path(target.path).parent, _each(roots))


def resolve(roots: Roots, names: list[str]) -> list[tuple[Target, list[Variant]]]:
    """The targets that the names select, each once, with the variants to measure.

    A name is a chapter (`ch07`), a target (`ch07:row_sum`: all its variants), one variant (`ch07:row_sum_tiled`), or a
    glob over any of these. A glob that selects own targets leaves the shipped ones out. Targets with a `problem` are
    returned: the caller reports them with the others' results. Raises NotFound UNKNOWN_TARGET with a did-you-mean, and
    as find_targets.
    """
    if not names:
        raise UsageError("NO_TARGETS", "No target is named.", "Name a chapter, a target or a glob such as 'ch07:*'.")
    targets = find_targets(roots)
    chosen: dict[str, tuple[Target, dict[str, Variant]]] = {}
    for name in names:
        for target, variants in _select(targets, name, _each(roots)):
            chosen.setdefault(target.name, (target, {}))[1].update({v.name: v for v in variants})
    return [(target, list(variants.values())) for target, variants in chosen.values()]


def full_name(target: Target, variant: Variant) -> str:
    """The name that selects this variant: `ch07:row_sum_tiled`; the plain variant has the target's own name."""
    return f"{target.name}_{variant.name}" if variant.name else target.name


def _select(targets: list[Target], name: str, roots: list[Path]) -> list[tuple[Target, list[Variant]]]:
    """Targets that one name selects. An exact target hides a variant of another target that is spelled alike."""
    pattern = name.strip().strip("/")
    own = _own(targets)
    if _is_glob(pattern) and 0 < len(own) < len(targets) and (matching := _matching(own, pattern)):
        return matching
    selected = _matching(targets, pattern)
    if not selected:
        raise _unknown(name, targets, roots)
    return selected


def _matching(targets: list[Target], pattern: str) -> list[tuple[Target, list[Variant]]]:
    whole = [t for t in targets if _matches(t, pattern)]
    if whole and not _is_glob(pattern):
        return [(t, t.variants) for t in whole]
    single = [
        (t, [v for v in t.variants if fnmatch.fnmatchcase(full_name(t, v), pattern)]) for t in targets if t not in whole
    ]
    return [(t, t.variants) for t in whole] + [pair for pair in single if pair[1]]


def _matches(target: Target, pattern: str) -> bool:
    """By full name, by chapter, or by the last part of a nested chapter (`fast_norm` for `labs/fast_norm`)."""
    if ":" in pattern:
        return fnmatch.fnmatchcase(target.name, pattern)
    spellings = {target.chapter, target.chapter.rpartition("/")[2]}
    return any(fnmatch.fnmatchcase(spelling, pattern) for spelling in spellings)


def _is_glob(name: str) -> bool:
    return any(char in name for char in "*?[")


def _unknown(name: str, targets: list[Target], roots: list[Path]) -> NotFound:
    known = {target.name for target in targets} | {target.chapter for target in targets}
    known |= {full_name(target, variant) for target in targets for variant in target.variants}
    shown = name if len(name) <= 80 else name[:77] + "..."
    if os.path.isfile(name):
        hint = (
            "It is a file. A problem of another suite becomes a target by adapting it; two functions are judged "
            "without one; and a new pair is a target for a function of your own."
        )
        pair = ("aisp_benchmark_new", {"name": Path(name).stem})
        steps = [("aisp_benchmark_adapt", {"path": name, "to": "pairs"}), OWN, pair]
        return NotFound("UNKNOWN_TARGET", f"No target matches '{shown}'.", hint, steps)
    local = sorted(full for full in known if full.partition(":")[2] == name)
    near = local or difflib.get_close_matches(name[:200], sorted(known), n=3, cutoff=0.5)
    if near:
        hint = "Did you mean " + " or ".join(f"'{other}'" for other in near[:3]) + "?"
    else:
        hint = f"{len(targets)} targets were found under {', '.join(map(str, roots))}; list them."
    hint += " To judge your own functions, give two files and their inputs."
    return NotFound("UNKNOWN_TARGET", f"No target matches '{shown}'.", hint, [("aisp_benchmark_targets", {}), OWN])


def _each(roots: Roots) -> list[Path]:
    """The roots as existing folders, each once. Raises NotFound NO_BENCH_ROOT."""
    given = [roots] if isinstance(roots, Path) else roots
    return list(dict.fromkeys(_root(root) for root in given))


def _root(bench_root: Path) -> Path:
    root = bench_root.expanduser()
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "does not exist"
        raise NotFound(
            "NO_BENCH_ROOT",
            f"The bench root {root} {what}.",
            "Pass an existing folder with chapters, or set AISP_BENCH_ROOT.",
        )
    return root.resolve()


def _folders(root: Path) -> Iterator[_Folder]:
    """Walk the root breadth first; hidden folders, caches and linked folders are left out."""
    waiting, seen = [(root, 0)], 0
    while waiting:
        path, depth = waiting.pop(0)
        seen += 1
        if seen > MAX_FOLDERS:
            raise UsageError(
                "BENCH_ROOT_TOO_LARGE",
                f"{root} contains more than {MAX_FOLDERS} folders.",
                "Point the bench root at the folder with the chapters.",
            )
        entries = _entries(path)
        if depth < MAX_DEPTH:
            waiting += [(Path(e.path), depth + 1) for e in entries if _is_chapter(e)]
        folder = _Folder(_chapter_name(path, root))
        for entry in entries:
            _collect(folder, entry, root)
        if folder.baselines or folder.candidates:
            yield folder


def _chapter_name(path: Path, root: Path) -> str:
    """The folder's path from its root; a root that contains benchmarks itself is a chapter of the same name."""
    if path == root:
        return root.name
    name = path.relative_to(root).as_posix()
    return f"{LABS}/{name}" if root.name == LABS else name


def _entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []  # a folder that we may not read contains nothing we could measure


def _is_chapter(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith((".", "_")) and entry.is_dir(follow_symlinks=False)


def _collect(folder: _Folder, entry: os.DirEntry[str], root: Path) -> None:
    stem, suffix = os.path.splitext(entry.name)
    for prefix, group in ((BASELINE, folder.baselines), (OPTIMIZED, folder.candidates)):
        native = prefix == OPTIMIZED and suffix in launch_header.LANGUAGES
        if stem.startswith(prefix) and (native or suffix == ".py"):
            name = stem[len(prefix) :] + (f"_{suffix[1:]}" if native else "")
            facts = _read(entry, root, prefix == BASELINE)
            if (other := group.get(name)) is not None:
                facts = Facts(
                    problem=f"{Path(other.path).name} and {entry.name} have the same name: rename one of them"
                )
            group[name] = _File(name, entry.path, facts)


def _read(entry: os.DirEntry[str], root: Path, baseline: bool) -> Facts:
    """The facts of one file; any error becomes its problem."""
    if not re.fullmatch(r"\w+", os.path.splitext(entry.name)[0], re.ASCII):
        return Facts(problem="the file name may have letters, digits and underscores only")
    try:
        if entry.is_symlink() and not Path(entry.path).resolve(strict=True).is_relative_to(root):
            return Facts(problem="the file is a link that leaves the bench root")
        info = os.stat(entry.path)
        if not stat.S_ISREG(info.st_mode):
            return Facts(problem="not a regular file")
        if info.st_size > MAX_BYTES:
            return Facts(problem=f"larger than {MAX_BYTES // 1024} KiB")
        return _parse(_Identity(entry.path, info.st_mtime_ns, info.st_size, info.st_ino), baseline)
    except (OSError, RuntimeError) as error:
        return Facts(problem=f"cannot be read: {getattr(error, 'strerror', None) or error}")


@lru_cache(maxsize=8192)
def _parse(file: _Identity, baseline: bool) -> Facts:
    """The facts of a file, cached by identity, so that an edited file is read again. Raises OSError, which is not
    cached.
    """
    path = Path(file.path)
    return source_facts.read(path.read_bytes(), path.suffix, baseline)


def _targets(folder: _Folder) -> Iterator[Target]:
    """Give each candidate to the baseline with the longest name that fits; one without a baseline is a problem."""
    variants: dict[str, list[Variant]] = {name: [] for name in folder.baselines}
    for name, file in folder.candidates.items():
        owner = _owner(name, folder.baselines)
        if owner is None:
            yield _target(folder.chapter, file, [], f"{Path(file.path).name} has no baseline_*.py next to it")
        else:
            facts = file.facts
            rest, parts = name[len(owner) + 1 :], {"summary": facts.summary, "problem": facts.problem}
            variants[owner].append(Variant(name=rest, path=file.path, needs=facts.needs, **parts))
    for name, file in folder.baselines.items():
        yield _target(folder.chapter, file, sorted(variants[name], key=lambda v: v.name), file.facts.problem)


def _owner(name: str, baselines: dict[str, _File]) -> str | None:
    while name and name not in baselines:
        name = name.rpartition("_")[0]
    return name or None


def _target(chapter: str, file: _File, variants: list[Variant], problem: str | None) -> Target:
    return Target(
        name=f"{chapter}:{file.name}",
        chapter=chapter,
        path=file.path,
        summary=file.facts.summary,
        goal=file.facts.goal,
        needs=file.facts.needs,
        variants=variants,
        problem=problem,
    )


def _chapter(roots: list[Path], name: str, group: list[Target]) -> Chapter:
    folder = Path(group[0].path).parent
    broken = sum(t.problem is not None for t in group)
    broken += sum(v.problem is not None for t in group for v in t.variants)
    return Chapter(
        name=name,
        topic=_topic(folder, roots),
        targets=len(group),
        variants=sum(len(t.variants) for t in group),
        problems=broken,
    )


def _topic(folder: Path, roots: list[Path]) -> str | None:
    """The first heading of the folder's README."""
    path = folder / "README.md"
    try:
        if not path.is_file() or not any(path.resolve().is_relative_to(root) for root in roots):
            return None
        with path.open(encoding="utf-8", errors="replace") as lines:
            head = lines.read(4096)
    except OSError:
        return None
    match = re.search(r"^#+\s+(.+)$", head, re.MULTILINE)
    return plain(match[1]) if match else None


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts ch2 before ch10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]
