"""The pair to compare: one baseline and one candidate."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aisp_mcp.judge.native import build
from aisp_mcp.judge.protocol.module_loader import own_files, problem_folder, source_text

SOURCE_FOLDERS = ("baseline_source", "candidate_source")  # copies of the files of two functions, next to their pair
LARGEST = 1 << 20  # bytes of a source: a package may contain data
_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"")


@dataclass(frozen=True)
class Pair:
    """Baseline and candidate: names for the reader, files for the processes."""

    target: str
    baseline: Path
    candidate: str
    path: Path

    @property
    def label(self) -> str:
        return f"{self.target}_{self.candidate}" if self.candidate else self.target

    def compiled(self) -> tuple[Pair, dict[str, Any]]:
        """The pair with the candidate's library instead of its source, and facts about the build. A Python pair is
        returned as it is.

        Raises BenchmarkError BAD_HEADER or COMPILE_FAILED.
        """
        if not build.is_native(self.path):
            return self, {}
        library, facts = build.build(self.path, build.device_target() if self.path.suffix == ".cu" else "native")
        return replace(self, path=library), facts

    def files(self) -> dict[str, Path]:
        """Files of the pair, including what both share, by their names in a run's folder."""
        folder = Path("sources", self.label.replace(":", "-").replace("/", "-"))
        common = self.baseline.with_name("_common.py")
        shared = {str(folder / common.name): common} if common.is_file() else {}
        functions = [file for role in SOURCE_FOLDERS for file in _files(self.baseline.with_name(role)).values()]
        for path in (*self._problem_files(), *functions):
            shared[str(folder / path.relative_to(self.baseline.parent))] = path
        shared |= {str(folder / path.name): path for path in own_files(self.baseline)}
        return {str(folder / "baseline.py"): self.baseline, str(folder / "candidate.py"): self.path, **shared}

    def sources(self) -> dict[str, str]:
        """SHA-256 of these files as they are now, by those names."""
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in self.files().items()}

    def candidate_sha256(self) -> str:
        """SHA-256 of the candidate: of its file, and of the files of an adapted problem that it names."""
        digest = hashlib.sha256(self.path.read_bytes())
        for path in _named(self.path, _files(problem_folder(self.baseline))):
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def _problem_files(self) -> list[Path]:
        """Files of an adapted problem that the pair may run: all but those that only other candidates name."""
        folder = problem_folder(self.baseline)
        if not folder.name.startswith("_"):
            return []
        files = _files(folder)
        own = {*_named(self.baseline, files), *_named(self.path, files)}
        stubs = folder.parent.glob(f"optimized{folder.name}_*.py") if files else ()
        others = {path for stub in stubs for path in _named(stub, files)} - own
        return [path for path in files.values() if path not in others]


def _files(folder: Path) -> dict[str, Path]:
    """Sources below the folder, by their paths in it."""
    files = [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts and path.is_file()]
    return {path.relative_to(folder).as_posix(): path for path in files if path.stat().st_size <= LARGEST}


def _named(file: Path, files: Mapping[str, Path]) -> list[Path]:
    """The files whose paths are strings in the text, with all others in the folders of those."""
    names = {name for pair in _QUOTED.findall(source_text(file)) for name in pair if name in files}
    folders = tuple(name.partition("/")[0] + "/" for name in names if "/" in name)
    return [path for name, path in files.items() if name in names or name.startswith(folders)]
