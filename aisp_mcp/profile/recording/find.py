"""Search for NVIDIA's profilers on this machine: the PATH, the CUDA folders, and nsys inside Nsight Compute."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from aisp_mcp.errors import Unavailable

_PACKAGES = {"nsys": "nsight-systems", "ncu": "nsight-compute", "py-spy": "py-spy"}


def program(name: str, cache: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Path of nsys, ncu or py-spy. cache: folder in which a usable nsys may be assembled.

    Raises Unavailable NOT_INSTALLED with the searched paths.
    """
    path = shutil.which(name, path=environ.get("PATH"))
    looked = [Path(folder) / name for folder in _folders(name, environ)]
    if path is None:
        path = next((str(path) for path in looked if os.access(path, os.X_OK) and path.is_file()), None)
    if path is None and name == "nsys":
        path = _inside_compute(cache)
    if path is None:
        folders = ", ".join(sorted({str(path.parent) for path in looked})[:8]) or "nowhere else"
        hint = (
            f"Install {_PACKAGES[name]} (pip install 'aisp-mcp[profile]')."
            if name == "py-spy"
            else f"Install NVIDIA's {_PACKAGES[name]}."
        )
        raise Unavailable(
            "NOT_INSTALLED",
            f"{name} was not found on the PATH, nor in {folders}.",
            hint,
            [("aisp_system_dependencies", {})],
        )
    return path


def _folders(name: str, environ: Mapping[str, str]) -> Iterator[Path]:
    if name == "py-spy":
        yield Path(sys.executable).parent  # pip installs it next to the interpreter, whether that is on the PATH or not
        return
    homes = [Path(environ[key]) for key in ("CUDA_HOME", "CUDA_PATH") if environ.get(key)]
    yield from (home / "bin" for home in [*homes, *_newest(Path("/usr/local"), "cuda*")])
    if name == "nsys":
        for version in _newest(Path("/opt/nvidia/nsight-systems"), "*"):
            yield from (version / "bin", version / "target-linux-x64")
        yield Path("/usr/lib/nsight-systems/bin")
    if name == "ncu":
        yield from _newest(Path("/opt/nvidia/nsight-compute"), "*")
        yield Path("/usr/lib/nsight-compute")


def _newest(folder: Path, pattern: str) -> list[Path]:
    """Matching folders, highest version first."""
    return sorted(folder.glob(pattern), key=lambda p: [int(n) for n in re.findall(r"\d+", p.name)], reverse=True)


def _inside_compute(cache: Path) -> str | None:
    """Put nsys and its importer, which Nsight Compute ships under names that nsys does not find, into one folder."""
    for version in _newest(Path("/opt/nvidia/nsight-compute"), "*"):
        target = version / "host" / "target-linux-x64"
        importers = sorted((version / "host").glob("linux-desktop-*-x64"))
        if (target / "nsys").is_file() and importers:
            home = cache / f"nsys-{version.name}"
            if not (home / "target-linux-x64" / "nsys").is_file():
                shutil.copytree(target, home / "target-linux-x64", dirs_exist_ok=True, symlinks=True)
            link = home / "host-linux-x64"
            if not link.exists():
                link.symlink_to(importers[-1])
            return str(home / "target-linux-x64" / "nsys")
    return None
