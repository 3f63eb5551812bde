"""The machine's GPUs and links as a drawing: NUMA nodes as columns, GPUs and adapters inside, NVLinks as lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aisp_mcp.server.charts.drawing import Drawing, Shape, box, line, words
from aisp_mcp.server.text.escape import short

ROW, HEAD, GAP = 30.0, 26.0, 8.0


def of_topology(result: Mapping[str, Any]) -> Drawing | None:
    """None where the machine shows neither GPUs nor NUMA nodes."""
    nodes = {one["node"]: one for one in result.get("numa", [])}
    parts = [*_named(result.get("gpus", []), "GPU"), *_named(result.get("nics", []), "")]
    parts = [(node if node in nodes else min(nodes, default=0), name, number) for node, name, number in parts]
    if not nodes:
        return None
    width, places, shapes, rows = 100 / len(nodes), dict[int, tuple[float, float]](), list[Shape](), []
    tallest = max(sum(part[0] == node for part in parts) for node in nodes)
    height = HEAD + ROW * tallest + GAP
    for column, (node, facts) in enumerate(sorted(nodes.items())):
        left = column * width
        shapes.append(box("floor", left, 0, left + width - 1, height, f"NUMA node {node}, CPUs {facts.get('cpus')}"))
        shapes.append(words("soft", left + 1, 17, f"NUMA {node} · CPUs {short(str(facts.get('cpus')), 20)}"))
        for row, (_, name, number) in enumerate(part for part in parts if part[0] == node):
            top = HEAD + ROW * row
            shapes.append(box("grid node", left + 1, top, left + width * 0.7, top + ROW - 6, name))
            shapes.append(words("", left + 2, top + 17, short(name, 30)))
            rows.append((f"NUMA {node}", name))
            if number is not None:
                places[number] = (left + width * 0.7, top + ROW / 2 - 3)
    linked = [(pair["a"], pair["b"]) for pair in result.get("pairs", []) if pair.get("nvlink")]
    for a, b in linked:
        if a in places and b in places:
            shapes.append(line("roof c0", *places[a], *places[b], f"NVLink: GPU {a} and GPU {b}"))
    about = f"{len(nodes)} NUMA nodes, {len(places)} GPUs, {len(linked)} pairs with NVLink."
    return Drawing("Topology", about, height + 4, shapes, ("node", "part"), rows)


def _named(items: list[dict[str, Any]], kind: str) -> list[tuple[int | None, str, int | None]]:
    """(NUMA node, name, GPU's index) of GPUs or real adapters."""
    if kind:
        return [(one.get("numa_node"), f"GPU {one['index']} {one.get('name') or ''}", one["index"]) for one in items]
    real = [one for one in items if one.get("kind") not in ("virtual", "loopback")]
    return [(one.get("numa_node"), f"{one['name']} ({one.get('kind')})", None) for one in real]
