"""Network interfaces and InfiniBand adapters from /sys: names and rates, never addresses."""

from __future__ import annotations

from pathlib import Path

from aisp_mcp.system.files import ROOT, exists, names, number, text
from aisp_mcp.system.records import Hca, Network, Nic

_NET = "/sys/class/net"
_IB = "/sys/class/infiniband"


def read(root: Path = ROOT) -> Network:
    """All interfaces of this network namespace and all InfiniBand or RoCE ports."""
    return Network(
        nics=[_nic(root, name) for name in names(root, _NET) if not name.startswith("bonding")],
        hcas=[_hca(root, device, port) for device in names(root, _IB) for port in _ports(root, device)],
        gpudirect_rdma=any(exists(root, f"/sys/module/{m}") for m in ("nvidia_peermem", "nv_peer_mem")),
    )


def _nic(root: Path, name: str) -> Nic:
    folder = f"{_NET}/{name}"
    speed = number(root, f"{folder}/speed")
    return Nic(
        name=name,
        kind=_kind(root, folder, name),
        state=text(root, f"{folder}/operstate"),
        speed_mbps=speed if speed is not None and speed > 0 else None,  # the kernel writes -1 for "not known"
        mtu=number(root, f"{folder}/mtu"),
        driver=_link_name(root, f"{folder}/device/driver"),
        numa_node=_node(number(root, f"{folder}/device/numa_node")),
        pci=_pci(root, f"{folder}/device"),
    )


def _kind(root: Path, folder: str, name: str) -> str:
    if name == "lo":
        return "loopback"
    kind = number(root, f"{folder}/type")
    if kind == 32:
        return "infiniband"
    if exists(root, f"{folder}/device"):
        return "ethernet"
    for sign, label in (("bridge", "bridge"), ("bonding", "bond"), ("tun_flags", "tunnel")):
        if exists(root, f"{folder}/{sign}"):
            return label
    return "virtual"


def _link_name(root: Path, path: str) -> str | None:
    target = root / path.lstrip("/")
    try:
        return target.resolve(strict=True).name
    except OSError:
        return None


def _pci(root: Path, path: str) -> str | None:
    """The PCI address: the last folder named like 0000:17:00.0 on the device's path."""
    try:
        parts = (root / path.lstrip("/")).resolve(strict=True).parts
    except OSError:
        return None
    return next((p for p in reversed(parts) if p.count(":") == 2 and "." in p), None)


def _node(value: int | None) -> int | None:
    return value if value is not None and value >= 0 else None


def _ports(root: Path, device: str) -> list[int]:
    return [int(p) for p in names(root, f"{_IB}/{device}/ports") if p.isdigit()]


def _hca(root: Path, device: str, port: int) -> Hca:
    folder = f"{_IB}/{device}/ports/{port}"
    return Hca(
        device=device,
        port=port,
        link_layer=text(root, f"{folder}/link_layer"),
        state=(text(root, f"{folder}/state") or "").partition(": ")[2] or text(root, f"{folder}/state"),
        rate=text(root, f"{folder}/rate"),
        numa_node=_node(number(root, f"{_IB}/{device}/device/numa_node")),
        firmware=text(root, f"{_IB}/{device}/fw_ver"),
    )
