"""Every check of the repository: what `make test` runs. Each step is a command you can run by itself.

A step that cannot run, because its tool is missing for example, has failed. All steps run even if one fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Step(NamedTuple):
    """One check. live: its output is shown as it comes, not only when it fails."""

    name: str
    argv: list[str]
    live: bool = False


def python(*arguments: str) -> list[str]:
    """A command in the environment this script runs in."""
    return [sys.executable, *arguments]


STATIC = [
    Step("format", python("-m", "ruff", "format", "--check", ".")),
    Step("lint", python("-m", "ruff", "check", ".")),
    Step("types", python("-m", "mypy")),
    Step("layers", python("-c", "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())")),
    Step("budgets", python("tools/budgets.py")),
    Step("prose", python("tools/prose.py")),
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
    if not passed and not step.live:
        print(done.stdout.rstrip())
    print(f"{'ok  ' if passed else 'FAIL'} {time.monotonic() - started:6.1f} s  {step.name}", flush=True)
    return passed


def main() -> int:
    """Run the steps; 1 if one failed."""
    parser = argparse.ArgumentParser(description="Run every check of the repository.")
    parser.add_argument("--fast", action="store_true", help="leave out the test suite")
    options, pytest_arguments = parser.parse_known_args()
    steps = list(STATIC)
    if not options.fast:
        steps.append(
            Step("tests", python("-m", "pytest", "-n", "2", "--dist", "loadfile", *pytest_arguments), live=True)
        )
    failed = [step.name for step in steps if not run(step)]
    print(
        f"{len(steps) - len(failed)} of {len(steps)} checks passed"
        + (f"; failed: {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
