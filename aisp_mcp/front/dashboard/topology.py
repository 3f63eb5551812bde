"""Draw the machine's topology: NUMA nodes as columns of GPUs and network adapters, NVLinks as lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aisp_mcp.server.charts.drawing import Drawing, Shape, box, line, words
from aisp_mcp.server.text.escape import short

ROW, HEAD, GAP = 30.0, 26.0, 8.0


def of_topology(result: Mapping[str, Any]) -> Drawing | None:
    """Draw the topology; None if the machine reports no NUMA nodes."""
    nodes = {node["node"]: node for node in result.get("numa", [])}
    parts = [*_gpus(result.get("gpus", [])), *_adapters(result.get("nics", []))]
    parts = [(node if node in nodes else min(nodes, default=0), name, index) for node, name, index in parts]
    if not nodes:
        return None
    width, positions, shapes, rows = 100 / len(nodes), dict[int, tuple[float, float]](), list[Shape](), []
    tallest = max(sum(part[0] == node for part in parts) for node in nodes)
    height = HEAD + ROW * tallest + GAP
    for column, (node, facts) in enumerate(sorted(nodes.items())):
        left = column * width
        shapes.append(box("floor", left, 0, left + width - 1, height, f"NUMA node {node}, CPUs {facts.get('cpus')}"))
        shapes.append(words("soft", left + 1, 17, f"NUMA {node} · CPUs {short(str(facts.get('cpus')), 20)}"))
        for row, (_, name, index) in enumerate(part for part in parts if part[0] == node):
            top = HEAD + ROW * row
            shapes.append(box("grid node", left + 1, top, left + width * 0.7, top + ROW - 6, name))
            shapes.append(words("", left + 2, top + 17, short(name, 30)))
            rows.append((f"NUMA {node}", name))
            if index is not None:
                positions[index] = (left + width * 0.7, top + ROW / 2 - 3)
    linked = [(pair["a"], pair["b"]) for pair in result.get("pairs", []) if pair.get("nvlink")]
    for a, b in linked:
        if a in positions and b in positions:
            shapes.append(line("roof c0", *positions[a], *positions[b], f"NVLink: GPU {a} and GPU {b}"))
    about = f"{len(nodes)} NUMA nodes, {len(positions)} GPUs, {len(linked)} pairs with NVLink."
    return Drawing("Topology", about, height + 4, shapes, ("node", "part"), rows)


def _gpus(gpus: list[dict[str, Any]]) -> list[tuple[int | None, str, int | None]]:
    """(NUMA node, name, index) of GPUs."""
    return [(gpu.get("numa_node"), f"GPU {gpu['index']} {gpu.get('name') or ''}", gpu["index"]) for gpu in gpus]


def _adapters(nics: list[dict[str, Any]]) -> list[tuple[int | None, str, int | None]]:
    """(NUMA node, name, no index) of physical network adapters."""
    physical = [nic for nic in nics if nic.get("kind") not in ("virtual", "loopback")]
    return [(nic.get("numa_node"), f"{nic['name']} ({nic.get('kind')})", None) for nic in physical]
