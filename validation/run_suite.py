"""Judge the shipped pairs on this machine: sides of several pairs start in parallel, one pair is measured.

python validation/run_suite.py TARGET... [--out RUN.json] [--preset quick] [--seconds 500] [--at-once 4]

RUN.json is a run as `aisp bench run` keeps it; it is written again after each pair, so that what was judged survives an
end by force. A pair that is in RUN.json already is not judged again. `aisp bench run` measures the same way and starts
one pair at a time; this script exists for rented machines, whose minutes are short and whose cores are idle.
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aisp_mcp.errors import AispError
from aisp_mcp.judge import comparison
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.runs import measure
from aisp_mcp.settings import default_bench_roots
from aisp_mcp.store.records.run import Failure, Run
from aisp_mcp.suites import selection
from aisp_mcp.system import manifest
from aisp_mcp.system.gpu import nvml
from aisp_mcp.validity import corpus


def main() -> None:
    """Judge what the seconds allow, and print a line per pair."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", default=["all"])
    parser.add_argument("--out", type=Path, default=Path("run.json"))
    parser.add_argument("--preset", choices=sorted(measure.PRESETS), default="quick")
    parser.add_argument("--size", help="instead of default on a GPU and small on a CPU")
    parser.add_argument("--seconds", type=float, default=500.0, help="start no pair after that")
    parser.add_argument("--at-once", type=int, default=4, help="pairs that start in parallel")
    Suite(parser.parse_args()).judge()


class Suite:
    """The run so far, and what is left to judge."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.asked, self.begin, self.lock = options, time.monotonic(), threading.Lock()
        chosen, broken = selection.pairs(list(default_bench_roots()), options.targets or ["all"])
        self.run = self._before() or Run(
            id=f"r_{secrets.token_urlsafe(16)}",
            created_at=time.time(),
            preset=options.preset,
            profile="portable",
            environment=manifest.manifest(),
        )
        skipped = [skip for skip in broken if isinstance(skip, Skip)]
        self.run = self.run.model_copy(update={"skipped": [*self.run.skipped, *skipped]})
        judged = {f"{comparison.target}_{comparison.candidate}".rstrip("_") for comparison in self.run.comparisons}
        self.left = [pair for pair in chosen if pair.label not in judged]

    def _before(self) -> Run | None:
        return Run.model_validate_json(self.asked.out.read_text("utf-8")) if self.asked.out.is_file() else None

    def judge(self) -> None:
        """All pairs that are left, as far as the seconds reach."""
        with tempfile.NamedTemporaryFile() as turn, ThreadPoolExecutor(self.asked.at_once) as pool:
            list(pool.map(lambda pair: self._one(pair, Path(turn.name)), self.left))
        print(f"{len(self.run.comparisons)} judged, {time.monotonic() - self.begin:.0f} s")

    def _one(self, pair: Pair, turn: Path) -> None:
        if time.monotonic() - self.begin > self.asked.seconds:
            return
        kind = nvml.benchmark_device()
        size = self.asked.size or ("default" if kind == "cuda" else "small")
        options = Options(measure.PRESETS[self.asked.preset], size, kind, Path(tempfile.mkdtemp()))
        try:
            with corpus.in_turn(turn) as report:
                result: Comparison | Skip | Failure = comparison.compare(pair, options, report)
        except AispError as error:
            result = Failure(target=pair.label, code=error.code, message=error.message, hint=error.hint)
        except Exception as error:
            traceback.print_exc()
            result = Failure(target=pair.label, code="INTERNAL", message=f"{type(error).__name__}: {error}")
        with self.lock:
            self._keep(pair, result)

    def _keep(self, pair: Pair, result: Comparison | Skip | Failure) -> None:
        name = {Comparison: "comparisons", Skip: "skipped", Failure: "failed"}[type(result)]
        seconds = time.monotonic() - self.begin
        self.run = self.run.model_copy(update={name: [*getattr(self.run, name), result], "seconds": seconds})
        self.asked.out.write_text(self.run.model_dump_json(), "utf-8")
        if isinstance(result, Comparison):
            ratio = f"{result.ratio:.4g} {result.interval}" if result.ratio else ""
            codes = ",".join(flag.code for flag in result.flags)
            print(f"{seconds:5.0f} {pair.label} {result.verdict} {ratio} {result.seconds:.1f}s [{codes}]", flush=True)
        else:
            print(f"{seconds:5.0f} {pair.label} {name}: {str(result)[:600]}", flush=True)


if __name__ == "__main__":
    main()
