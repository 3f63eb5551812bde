"""Targets as this machine knows them: which are the user's own, which were measured, and which can run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from aisp_mcp.server.context import Context
from aisp_mcp.settings import shipped_bench_roots
from aisp_mcp.store.records.verdict_row import VerdictFilter, VerdictRow
from aisp_mcp.suites.discovery import full_name
from aisp_mcp.suites.records import Target
from aisp_mcp.system import software
from aisp_mcp.system.gpu import nvml

OF_A_GPU = frozenset({"gpus", "sm", "memory_gb", "gpu"})


class Here:
    """The newest verdict of each candidate here, and the number of GPUs; read once for a list."""

    def __init__(self, ctx: Context) -> None:
        self._gpus = len(nvml.gpu_uuids())
        self._shipped = [root.resolve() for root in shipped_bench_roots()]
        stored = (ctx.settings.home / "aisp.db").exists()  # a list does not create a store
        rows = ctx.store.latest_verdicts(VerdictFilter(), ctx.sees) if stored else []
        self._newest: dict[str, VerdictRow] = {}
        for row in sorted(rows, key=lambda row: row.seq):
            self._newest[row.target] = row

    def sorted(self, targets: Sequence[Target]) -> list[Target]:
        """One's own first, then those measured here, newest first, then the others as they come."""
        return sorted(targets, key=lambda target: (not self._is_own(target), -self._last(target)))

    def measured(self, target: Target) -> str | None:
        """The newest verdict of the target; None if none was stored."""
        rows = [row for name in _names(target) if (row := self._newest.get(name))]
        newest = max(rows, key=lambda row: row.seq, default=None)
        if newest is None:
            return None
        return newest.verdict if newest.ratio is None else f"{newest.verdict} {newest.ratio:.2f}x"

    def runs(self, target: Target) -> str:
        """Return "yes", or "no" with what is missing."""
        if target.problem:
            return "no: its file"
        lacks = ", ".join(self._lacks(target))
        return f"no: {lacks}" if lacks else "yes"

    def _lacks(self, target: Target) -> Iterator[str]:
        gpus = max(int(float(target.needs.get("gpus", 0))), 1) if OF_A_GPU & target.needs.keys() else 0
        if gpus > self._gpus:
            yield "a GPU" if gpus == 1 else f"{gpus} GPUs"
        packages = map(str.strip, str(target.needs.get("packages", "")).split(","))
        yield from (name for name in packages if name and software.version(name) is None)

    def _is_own(self, target: Target) -> bool:
        path = Path(target.path).resolve()
        return not any(path.is_relative_to(root) for root in self._shipped)

    def _last(self, target: Target) -> int:
        return max((self._newest[name].seq for name in _names(target) if name in self._newest), default=0)


def _names(target: Target) -> list[str]:
    return [full_name(target, variant) for variant in target.variants]
