"""Reads scattered over a large table in 4 KiB pages: nearly each one misses the translation buffer (TLB)."""

from aisp_mcp.bench import Benchmark, Needs, Work


class HugePages(Benchmark):
    table, picked = 1 << 28, 1 << 22
    sizes = {"small": {"table": 1 << 24, "picked": 1 << 18}, "large": {"table": 1 << 29}}
    needs = Needs(device="cpu")

    def params(self, rng):
        return {"table": rng.randn(self.table)}

    def inputs(self, rng):
        return {"places": rng.randint(0, self.table, self.picked)}

    def work(self):
        return Work(flops=self.picked, bytes=self.picked * (8 + 4 + 4), items=self.picked)

    def run(self, places, table):
        return table.take(places)
