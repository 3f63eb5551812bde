"""Every check of the repository: what `make test` runs. Each step is a command you can run by itself.

A step that cannot run, because its tool is missing for example, has failed. All steps run even if one fails: the tests
last and by themselves, the others in parallel.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# More than the two cores of a small machine: a third of a test process's time is waiting for processes it started.
TEST_PROCESSES = 3


class Step(NamedTuple):
    """One check. live: its output is shown as it comes, not only when it fails."""

    name: str
    argv: list[str]
    live: bool = False


def python(*arguments: str) -> list[str]:
    """A command in the environment this script runs in."""
    return [sys.executable, *arguments]


STATIC = [
    Step("types", python("-m", "mypy")),  # as long as all others together
    Step("format", python("-m", "ruff", "format", "--check", ".")),
    Step("lint", python("-m", "ruff", "check", ".")),
    Step("layers", python("-c", "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())")),
    Step("budgets", python("tools/budgets.py")),
    Step("generated files", python("tools/gen.py", "--check")),
]


def run(step: Step) -> bool:
    """Run one step, print its name, result and time; its output too when it fails."""
    started = time.monotonic()
    # Hundreds of processes start in the tests: without bytecode on disk, each would compile all it imports.
    done = subprocess.run(
        step.argv,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        text=True,
        stdout=None if step.live else subprocess.PIPE,
        stderr=None if step.live else subprocess.STDOUT,
        check=False,
    )
    passed = done.returncode == 0
    output = "" if passed or step.live else done.stdout.rstrip() + "\n"
    line = f"{'ok  ' if passed else 'FAIL'} {time.monotonic() - started:6.1f} s  {step.name}\n"
    print(output + line, end="", flush=True)  # one piece: other steps print too
    return passed


def most_complex(count: int = 10) -> list[str]:
    """The functions with the most paths (ruff's C901), as a warning: no limit is set. Empty if ruff cannot run."""
    above = "lint.mccabe.max-complexity=5"  # fewer to read; the worst are far above
    argv = python(
        "-m", "ruff", "check", "--select", "C901", "--config", above, "--output-format", "json", "--exit-zero"
    )
    done = subprocess.run([*argv, "."], cwd=ROOT, capture_output=True, text=True, check=False)
    ranked = []
    for found in json.loads(done.stdout or "[]"):
        if match := re.search(r"`(.+)` is too complex \((\d+)", found["message"]):
            place = f"{Path(found['filename']).relative_to(ROOT)}:{found['location']['row']}"
            ranked.append((int(match[2]), f"{place} {match[1]}"))
    return [f"{complexity:4}  {place}" for complexity, place in sorted(ranked, reverse=True)[:count]]


def main() -> int:
    """Run the steps; 1 if one failed."""
    parser = argparse.ArgumentParser(description="Run every check of the repository.")
    parser.add_argument("--fast", action="store_true", help="leave out the test suite")
    options, pytest_arguments = parser.parse_known_args()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complexity = pool.submit(most_complex)
        results = dict(zip((step.name for step in STATIC), pool.map(run, STATIC), strict=True))
    print("\n".join(["most complex functions (a warning):", *complexity.result()]), flush=True)
    if not options.fast:
        argv = python("-m", "pytest", "-n", str(TEST_PROCESSES), "--dist", "loadfile", *pytest_arguments)
        results["tests"] = run(Step("tests", argv, live=True))
    failed = [name for name, passed in results.items() if not passed]
    print(
        f"{len(results) - len(failed)} of {len(results)} checks passed"
        + (f"; failed: {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
