"""Brute-force breakdown of a device's time, without any union of intervals: the truth to compare breakdowns with."""

from itertools import pairwise


def brute(trace):
    """Sweep over all edges of all operations: state by state, no unions."""
    edges = sorted({t for op in trace.gpu for t in (op.start, op.end)})
    changes = {}
    for op in trace.gpu:
        kind = "memory" if op.kind in ("memcpy", "memset") else op.kind
        changes.setdefault(op.start, []).append((kind, 1))
        changes.setdefault(op.end, []).append((kind, -1))
    active = {"kernel": 0, "communication": 0, "memory": 0}
    result = dict.fromkeys(("compute", "comm", "memory", "exposed_comm", "exposed_memory", "idle"), 0)
    for at, after in pairwise(edges):
        for kind, change in changes.get(at, []):
            active[kind] += change
        width = after - at
        k, c, m = (active[x] > 0 for x in ("kernel", "communication", "memory"))
        result["compute"] += width * k
        result["comm"] += width * c
        result["memory"] += width * m
        result["exposed_comm"] += width * (c and not k)
        result["exposed_memory"] += width * (m and not c and not k)
        result["idle"] += width * (not (k or c or m))
    return result
