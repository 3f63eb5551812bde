"""File systems that matter to measurements: space, type, device kind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from aisp_mcp.system.files import ROOT, number, text
from aisp_mcp.system.records import Disk

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "ceph", "gpfs", "fuse.sshfs", "9p", "virtiofs", "wekafs"}
_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}
_ESCAPE = re.compile(r"\\([0-7]{3})")


def read(paths: Iterable[Path], root: Path = ROOT) -> list[Disk]:
    """The file system under each path (the nearest folder that exists), each mount point once."""
    table = mounts(root)
    disks: dict[str, Disk] = {}
    for path in paths:
        here = _existing(root / str(path).lstrip("/"))
        mounted = _mount_of(table, Path("/") / here.relative_to(root))
        if mounted is not None and mounted[0] not in disks:
            disks[mounted[0]] = _disk(root, here, *mounted)
    return list(disks.values())


def mounts(root: Path = ROOT) -> list[tuple[str, str, str]]:
    """(mount point, device, type) in mount order."""
    rows = []
    for line in (text(root, "/proc/self/mounts") or text(root, "/proc/mounts") or "").splitlines():
        parts = line.split()
        if len(parts) >= 3:
            point = _ESCAPE.sub(lambda m: chr(int(m[1], 8)), parts[1])
            rows.append((point, parts[0], parts[2]))
    return rows


def _existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _mount_of(table: list[tuple[str, str, str]], path: Path) -> tuple[str, str, str] | None:
    best = None
    for row in table:  # the last mount on a point hides those before it
        if path.is_relative_to(row[0]) and (best is None or len(row[0]) >= len(best[0])):
            best = row
    return best


def _disk(root: Path, here: Path, point: str, device: str, kind: str) -> Disk:
    try:
        stat = os.statvfs(here)
    except OSError:
        return Disk(path=point, filesystem=kind, device=device)
    block = _block(root, device)
    return Disk(
        path=point,
        filesystem=kind,
        device=device,
        total_bytes=stat.f_blocks * stat.f_frsize,
        free_bytes=stat.f_bavail * stat.f_frsize,
        kind=_kind(root, kind, block),
        scheduler=_scheduler(root, block),
    )


def _block(root: Path, device: str) -> str | None:
    """The whole disk's name under /sys/block, from a partition's device node."""
    name = device.removeprefix("/dev/")
    for candidate in (name, re.sub(r"p?\d+$", "", name)):
        if candidate and (root / "sys/block" / candidate).exists():
            return candidate
    return None


def _kind(root: Path, filesystem: str, block: str | None) -> str:
    if filesystem in _NETWORK:
        return "network"
    if filesystem in _MEMORY:
        return "memory"
    if block is None:
        return "unknown"
    if block.startswith("nvme"):
        return "nvme"
    if block.startswith("vd"):
        return "virtio"
    rotational = number(root, f"/sys/block/{block}/queue/rotational")
    return {0: "ssd", 1: "hdd"}.get(-1 if rotational is None else rotational, "unknown")


def _scheduler(root: Path, block: str | None) -> str | None:
    raw = text(root, f"/sys/block/{block}/queue/scheduler") if block else None
    match = re.search(r"\[(.+?)\]", raw or "")
    return match[1] if match else raw
