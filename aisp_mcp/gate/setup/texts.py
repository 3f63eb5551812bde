"""Texts of the files of a first suite."""

from __future__ import annotations

import pprint
from collections.abc import Sequence

FOLDER = "aisp_gate"

SETTINGS = """[pytest]
# Of this folder alone, so that the project's own options do not disturb what is timed.
python_files = test_*.py
"""
CONFTEST = '''"""The project's own folders come first on the search path, at each commit its own."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("src", "lib", "python", "") if (ROOT / name).is_dir()]
'''
ASV = '''"""Benchmarks of asv's suite as tests that `pytest --aisp` measures. Memory and tracking are left to asv."""

import importlib
import itertools
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).resolve().parents[1] / "{folder}"
SELECTED = {names}
COMBINATIONS = 1  # of parameters, the first ones

sys.path.insert(0, str(SUITE.parent))


def find(name):
    """(module, class or None, name of the function) of MODULE:CLASS.time_NAME."""
    module, _, rest = name.partition(":")
    owner, _, function = rest.rpartition(".")
    module = importlib.import_module(f"{{SUITE.name}}.{{module}}")
    return module, getattr(module, owner) if owner else None, function


def combinations(subject, function):
    """Tuples of arguments, as asv makes them of `params`."""
    params = getattr(getattr(subject, function), "params", None) or getattr(subject, "params", None) or []
    if params and not isinstance(params[0], (list, tuple)):
        params = [params]
    return list(itertools.product(*params)) if params else [()]


@pytest.mark.parametrize("number", range(COMBINATIONS))
@pytest.mark.parametrize("name", SELECTED)
def test_asv(aisp_bench, name, number):
    module, owner, function = find(name)
    subject = owner() if owner else module
    arguments = combinations(subject, function)[number:number + 1]
    if not arguments:
        pytest.skip("it has fewer combinations of parameters")
    call, (arguments,) = getattr(subject, function), arguments
    own = subject if owner else call
    if hasattr(own, "setup_cache"):
        arguments = (own.setup_cache(), *arguments)

    def setup():
        for scope in dict.fromkeys((module, own)):
            if hasattr(scope, "setup"):
                scope.setup(*(arguments if scope is own else ()))

    try:
        setup()
    except NotImplementedError:
        pytest.skip("its setup says that it does not apply here")
    if getattr(own, "number", 0) == 1:  # asv sets up before each call
        aisp_bench.pedantic(call, args=arguments, setup=setup)
    else:
        aisp_bench(call, *arguments)
    if hasattr(own, "teardown"):
        own.teardown(*arguments)
'''
PROGRAMS = '''"""Programs of this project, each run as a whole in its own process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [str(ROOT / name) for name in ("src", "lib", "python", "") if (ROOT / name).is_dir()]
PROGRAMS = {programs}


def run(words):
    path = os.pathsep.join([*SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=ROOT, env={{**os.environ, "PYTHONPATH": path}}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1:]


@pytest.mark.parametrize("words", PROGRAMS, ids=" ".join)
def test_program(aisp_bench, words):
    aisp_bench(run, words)


# A function of the project is judged more finely than a program:
#
# def test_parse(aisp_bench):
#     assert aisp_bench(parse, TEXT) == EXPECTED
'''
# The command as a step of the workflow, which leaves the comment in the working folder.
GATE = """{command} --json > gate.json || code=$?
          cp "$(python3 -c "import json; print(json.load(open('gate.json'))['result']['comment_path'])")" {comment}
          exit ${{code:-0}}"""
WORKFLOW = """# Judges each pull request against its base, interleaved on one machine. Written by `aisp gate init`.
name: performance
on:
  pull_request:
permissions:
  contents: read
  pull-requests: write
jobs:
  gate:
    runs-on: ubuntu-latest
    timeout-minutes: 60
    steps:
      - uses: actions/checkout@v4
        with:
          fetch-depth: 0 # the base commit must be there
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install "aisp-mcp[bench]" pytest && pip install -e .
      - run: |
          {command}
        env:
          BASE: ${{{{ github.event.pull_request.base.sha }}}}
      - if: ${{{{ !cancelled() && hashFiles('{comment}') != '' }}}}
        env:
          GH_TOKEN: ${{{{ github.token }}}}
          PULL: ${{{{ github.event.pull_request.number }}}}
        run: |
          cat {comment} >> "$GITHUB_STEP_SUMMARY"
          gh pr comment "$PULL" --body-file {comment} --edit-last || gh pr comment "$PULL" --body-file {comment}
"""


def asv(folder: str, names: Sequence[str]) -> str:
    """The tests that represent benchmarks of asv."""
    return ASV.format(folder=folder, names=pprint.pformat(list(names), width=110))


def programs(words: Sequence[Sequence[str]]) -> str:
    """The tests that represent programs."""
    return PROGRAMS.format(programs=pprint.pformat([list(command) for command in words], width=110))
