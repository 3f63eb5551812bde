"""Versions of installed software, from package metadata and files: nothing is imported, nothing is run."""

from __future__ import annotations

import glob
import json
import platform
import re
import shutil
from importlib import metadata
from pathlib import Path

from aisp_mcp.system.files import ROOT, text
from aisp_mcp.system.records import Profilers, Software

PACKAGES = (
    "torch",
    "triton",
    "numpy",
    "transformer-engine",
    "flash-attn",
    "vllm",
    "xformers",
    "cuda-python",
    "nvidia-ml-py",
    "mcp",
    "aisp-mcp",
    "nvtx",
)
# Wheels carry the CUDA generation in their names; the newest one installed counts.
_WHEELS = {
    "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "cublas": ("nvidia-cublas", "nvidia-cublas-cu12"),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
    "cuda_runtime": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
}
_LIBRARY_FILES = {"cudnn": "libcudnn.so.*", "cublas": "libcublas.so.*", "nccl": "libnccl.so.*"}
_LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/local/cuda/lib64")
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")


def version(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def read(root: Path = ROOT, cuda_driver: str | None = None) -> Software:
    """All versions. cuda_driver: the version that the driver supports according to NVML, if it was queried."""
    packages = {name: version(name) for name in PACKAGES}
    packages["transformer-engine"] = packages["transformer-engine"] or version("transformer-engine-torch")
    return Software(
        python=platform.python_version(),
        packages=packages,
        cuda_driver=cuda_driver,
        driver=driver(root),
        torch_cuda=torch_cuda(),
        toolkit=toolkit(root),
        libraries={name: _library(root, name) for name in _WHEELS},
        profilers=profilers(root),
    )


def driver(root: Path = ROOT) -> str | None:
    """Version of the loaded kernel module; works even if NVML does not."""
    match = _VERSION.search(text(root, "/proc/driver/nvidia/version") or "")
    return match[0] if match else text(root, "/sys/module/nvidia/version")


def torch_cuda() -> str | None:
    """The CUDA version of the installed torch, from its version.py; None for CPU, ROCm or no torch."""
    try:
        file = metadata.distribution("torch").locate_file("torch/version.py")
        raw = Path(str(file)).read_text(errors="replace")
    except (metadata.PackageNotFoundError, OSError):
        return None
    match = re.search(r"^cuda[^=\n]*=\s*['\"]([\d.]+)['\"]", raw, re.MULTILINE)
    return match[1] if match else None


def torch_needs_triton() -> str | None:
    """The exact triton version that the installed torch requires, or None."""
    try:
        requirements = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:
        return None
    for line in requirements:
        match = re.match(r"triton\s*\(?==\s*([\w.+]+)", line)
        if match:
            return match[1]
    return None


def toolkit(root: Path = ROOT) -> str | None:
    """CUDA toolkit version: that of nvcc on PATH, else of /usr/local/cuda, else of the newest next to it."""
    folders = [Path(real).parent.parent for real in (_nvcc(root),) if real]
    folders.append(root / "usr/local/cuda")
    folders += [Path(p) for p in sorted(glob.glob(str(root / "usr/local/cuda-*")), reverse=True)]
    for folder in folders:
        toolkit_version = _toolkit_version(folder)
        if toolkit_version:
            return toolkit_version
    return None


def _nvcc(root: Path) -> str | None:
    path = shutil.which("nvcc") if root == ROOT else None
    return str(Path(path).resolve()) if path else None


def _toolkit_version(folder: Path) -> str | None:
    try:
        components = json.loads((folder / "version.json").read_text())
        return str(components["cuda"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    if (folder / "bin").is_dir():
        match = _VERSION.search(folder.resolve().name)
        return match[0] if match else None
    return None


def _library(root: Path, name: str) -> str | None:
    for wheel in _WHEELS[name]:
        wheel_version = version(wheel)
        if wheel_version:
            return wheel_version
    if name not in _LIBRARY_FILES:
        return None
    for folder in _LIBRARY_FOLDERS:
        for path in sorted(glob.glob(str(root / folder / _LIBRARY_FILES[name])), key=len, reverse=True):
            match = _VERSION.search(Path(path).resolve().name)
            if match:
                return match[0]
    return None


def profilers(root: Path = ROOT) -> Profilers:
    """Paths of the profilers: on PATH, in /opt/nvidia, in the toolkit, and nsys inside Nsight Compute."""
    nsys = _tool(root, "nsys", ("opt/nvidia/nsight-systems/*/bin/nsys", "usr/local/cuda*/bin/nsys", *_NSYS_INSIDE))
    ncu = _tool(root, "ncu", ("opt/nvidia/nsight-compute/*/ncu", "usr/local/cuda*/bin/ncu"))
    on_path = shutil.which if root == ROOT else lambda _: None
    return Profilers(
        nsys=nsys,
        nsys_version=_path_version(nsys),
        ncu=ncu,
        ncu_version=_path_version(ncu) or _path_version(_launched(root, ncu)),
        perf=on_path("perf"),
        py_spy=on_path("py-spy"),
    )


_NSYS_INSIDE = (
    "opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
    "usr/local/cuda*/nsight-compute*/host/target-linux-x64/nsys",
    "opt/nvidia/nsight-compute/*/host/target-linux-sbsa-armv8/nsys",
)


def _tool(root: Path, name: str, patterns: tuple[str, ...]) -> str | None:
    path = shutil.which(name) if root == ROOT else None
    if path:
        return path
    for pattern in patterns:
        matches = sorted(glob.glob(str(root / pattern)), key=_version_key, reverse=True)
        if matches:
            return matches[0]
    return None


def _launched(root: Path, ncu: str | None) -> str | None:
    """The program that the toolkit's ncu starts: a script that picks the newest one in /opt/nvidia or next to it."""
    if ncu is None:
        return None
    nsight_folder = Path(ncu).resolve().parent.parent
    folders = [root / "opt/nvidia/nsight-compute", nsight_folder]
    paths = [
        str(path)
        for folder, way in zip(folders, ("*/ncu", "nsight-compute-*/ncu"), strict=True)
        for path in folder.glob(way)
    ]
    return max(paths, key=_version_key, default=None)


def _version_key(path: str) -> list[int]:
    match = _VERSION.search(path)
    return [int(n) for n in match[0].split(".")] if match else []


def _path_version(path: str | None) -> str | None:
    """The version in the name of a profiler's folder; None if the path does not contain it."""
    if path is None:
        return None
    match = re.search(r"nsight-(?:systems|compute)[-/]([\d.]+)", str(Path(path).resolve()))
    return match[1].rstrip(".") if match else None
