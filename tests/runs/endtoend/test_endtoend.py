"""A pair inside its user's program: what is replaced, what is counted, and what the verdict says."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import AispError
from aisp_mcp.front.cli import launch_flags
from aisp_mcp.judge.records.endtoend import EndToEnd
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.judge.verdict import endtoend as rule
from aisp_mcp.judge.verdict.endtoend import Alone, Inside
from aisp_mcp.runs.endtoend import measuring
from aisp_mcp.runs.endtoend.measuring import Broken, Request, Turns
from aisp_mcp.store.records.run import Run


def inside(logs: list[float], half: float, share: float | None = 0.18) -> Inside:
    noise = [half * sign for sign in (1, -1, 1, -1, 1)]
    return Inside("p", "m:f", "time", [log + n for log, n in zip(logs, noise, strict=True)], noise, 1.0, 1.0, 32,
                  share, 10)  # fmt: skip


@pytest.mark.parametrize(
    ("alone", "word", "program", "half", "share", "verdict", "arrival", "passed"),
    [
        (1.31, "faster", 1.044, 0.001, 0.18, "faster", "arrives", True),
        (1.31, "faster", 0.97, 0.001, 0.18, "slower", "does not arrive", False),
        (0.8, "slower", 0.95, 0.001, 0.18, "slower", "arrives", False),
        (1.31, "faster", 1.0, 0.001, 0.18, "same", "does not arrive", True),
        (1.31, "faster", 1.0, 0.001, 0.01, "same", "too small", True),
        (1.31, "faster", 1.0, 0.001, None, "same", "does not arrive", True),
        (1.31, "faster", 1.01, 0.1, 0.18, "inconclusive", "not shown", None),
        (30.0, "faster", 1.01, 0.1, 0.9, "inconclusive", "does not arrive", None),
    ],
)
def test_the_gain_alone_is_laid_beside_the_programs(
    alone: float, word: str, program: float, half: float, share: float | None, verdict: str, arrival: str,
    passed: bool | None,
) -> None:  # fmt: skip
    found = rule.conclude(Alone(word, alone), inside([math.log(program)] * 5, half, share))
    assert (found.verdict, found.arrival, found.passed) == (verdict, arrival, passed), found.sentence
    assert found.predicted == (None if share is None else pytest.approx(1 / (1 - share + share / alone)))


def test_a_lost_gain_reads_as_one_sentence() -> None:
    found = rule.conclude(Alone("faster", 1.31), inside([math.log(0.97)] * 5, 0.001))
    assert found.sentence.startswith("slower: 1.31x alone, program 0.970x (0.9")
    assert found.sentence.endswith("; predicted 1.044x from 18 % of its time in 10 calls; the gain does not arrive")


@pytest.mark.parametrize(
    ("word", "program", "passed"),
    [("faster", True, True), ("faster", False, False), ("faster", None, None), ("slower", True, False),
     ("inconclusive", False, False), ("inconclusive", True, None)],
)  # fmt: skip
def test_a_run_passes_only_if_pair_and_program_do(word: str, program: bool | None, passed: bool | None) -> None:
    pair = Comparison(target="t", candidate="", verdict=Verdict(word), sentence="", isolation="L2", replicates=3)
    verdict = rule.failed(Alone(word, 2.0), "p", "m:f", "time", "why").model_copy(update={"passed": program})
    run = Run(id="r", created_at=0, preset="quick", profile="portable", environment={}, comparisons=[pair])
    assert run.model_copy(update={"program": verdict}).passed is passed


def test_a_shell_may_call_the_option_of_a_step_by_its_own_name() -> None:
    words = ["slow.py:f", "fast.py:f", "--in-step", "train.py:step", "--inputs", "--in-steps"]
    assert launch_flags.of_a_pair(words) == [*words[:2], "--in", *words[3:]]
    assert launch_flags.of_a_pair(["--in-step=train.py:step"]) == ["--in=train.py:step"]


# Each call of the baseline costs two units, and one of the candidate's one; programs print their sum.
OPERATIONS = """
cost = []
def f(x):
    cost.append(2)
    return x
class Layer:
    def forward(self, x):
        return f(x)
"""
FAST = "def f(x):\n    import ops\n    ops.cost.append(1)\n    return x\n"
PROGRAM = "import ops\nfrom ops import f\nfor _ in range(4):\n    f(1)\nprint('cost:', 2 + sum(ops.cost))\n"

Start = Callable[..., Turns]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Write the files of a program, and run it once with the baseline."""
    monkeypatch.chdir(tmp_path)

    def written(main: str = PROGRAM, fast: str = FAST, replace: str | None = None, **more: Any) -> Turns:
        for name, text in {"ops.py": OPERATIONS, "fast.py": fast, "main.py": main}.items():
            (tmp_path / name).write_text(text)
        given: dict[str, Any] = {"program": "python3 main.py", "metric": "cost"} | more
        request = Request(**given, replace=replace, better="lower", replicates=1, timeout_s=60)
        return Turns(measuring.prepared(request, "ops.py:f", "fast.py:f"), tmp_path / "run", lambda *_: None)

    return written


def verdict(turns: Turns) -> EndToEnd:
    return rule.conclude(Alone("faster", 2.0), turns.seen())


def test_whoever_imports_the_function_gets_the_candidate(start: Start) -> None:
    found = verdict(start())
    assert (found.before, found.after, found.ratio, found.calls) == (10, 6, pytest.approx(10 / 6), 4)
    assert (found.verdict, found.arrival, found.place) == ("faster", "arrives", "ops:f")
    assert found.predicted is None
    assert found.notes == ["The share of cost in the calls is unknown, so nothing is predicted."]


def test_another_place_a_method_and_children_are_replaced(start: Start) -> None:
    program = """
import subprocess, sys
child = "import ops; ops.Layer().forward(1); print('cost:', sum(ops.cost))"
print(subprocess.run([sys.executable, '-c', child], capture_output=True, text=True).stdout)
"""
    found = verdict(start(program, "def f(self, x):\n    import ops\n    ops.cost.append(1)\n", "ops:Layer.forward"))
    assert (found.before, found.after, found.calls) == (2, 1, 1)


def test_a_program_may_choose_by_a_variable(start: Start) -> None:
    program = "import os\nprint('cost:', {'old': 3, 'new': 4}[os.environ['KERNEL']])"
    found = verdict(start(program, replace="env:KERNEL=old,new"))
    assert (found.verdict, found.arrival, found.passed) == ("slower", "does not arrive", False)
    assert found.notes == ["The program chooses the function itself: its calls are not counted."]


def test_a_step_is_timed_and_its_share_is_known(start: Start) -> None:
    program = "from ops import f\ndef step():\n    f(sum(range(3000)))\n    f(1)\n"
    found = verdict(start(program, program="main.py:step", metric="time"))
    assert found.calls == 2
    assert 0 < (found.share or 0) < 1
    assert found.predicted is not None
    assert found.sentence.partition("alone, ")[2].startswith("step ")


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ({"main": "print('cost: 1')"}, "NEVER_CALLED", "python3 main.py never imports ops."),
        ({"main": "import ops\nprint('cost: 1')"}, "NEVER_CALLED", "python3 main.py imports ops and never calls f."),
        ({"replace": "ops:nothing"}, "PROGRAM_FAILED", "ended with 1: AttributeError: ops has no nothing."),
        ({"main": "import ops\nops.f(1)"}, "PROGRAM_FAILED", "gives no number: its output has no match for"),
        ({"main": "import ops\nops.f(1)\nprint('cost: 0')"}, "PROGRAM_FAILED", "printed 0, and a ratio needs"),
        ({"replace": "ops.f"}, "BAD_REPLACE", "'ops.f' is no MODULE:NAME."),
        ({"replace": "env:KERNEL"}, "BAD_REPLACE", "names no variable with two values"),
        ({"program": "python3 ops.py"}, "BAD_PROGRAM", "ops.py defines f itself, and never imports it."),
        ({"program": "no-such-program"}, "NO_SUCH_FILE", "There is no program 'no-such-program'."),
        ({"program": "'"}, "NO_PROGRAM", "is not a command line"),
        ({"program": "ops.py:f", "metric": "time"}, "BAD_PROGRAM", "ops:f needs the arguments x"),
        ({"program": "main.py:step"}, "BAD_METRIC", "A step is judged by its time."),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_named(start: Start, more: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(AispError) as raised:
        start(**more)
    assert (raised.value.code, message in raised.value.message) == (code, True), raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize(
    ("fast", "message"),
    [
        ("def f(y):\n    raise ValueError('no')\n", "ended with 1: ValueError: no."),
        ("def f(y):\n    import ops\n    return ops.f(y)\n", "It calls what it replaces: let it keep the original"),
    ],
)
def test_a_candidate_with_which_the_program_fails_does_not_pass(start: Start, fast: str, message: str) -> None:
    with pytest.raises(Broken, match=message):
        start(fast=fast).seen()
