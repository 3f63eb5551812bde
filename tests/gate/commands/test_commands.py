"""aisp bench commands: whole programs judged by their outputs, times and declared resources."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

MAKE = """
import pathlib, random, sys
draw = random.Random(int(sys.argv[1]))
pathlib.Path(sys.argv[2], "numbers.txt").write_text("\\n".join(str(draw.random()) for _ in range(2000)))
"""
TOTAL = "import sys; print(sum(map(float, open(sys.argv[1] + '/numbers.txt').read().split())))"
SLOW = (
    "import sys\nfor _ in range({n}): x = sum(map(float, open(sys.argv[1] + '/numbers.txt').read().split()))\nprint(x)"
)
CLOSE = """
import pathlib, sys
one, other = (float(pathlib.Path(folder, "stdout").read_text()) for folder in sys.argv[2:4])
sys.exit(f"{one} is not {other}" if abs(one - other) > 1e-6 else 0)
"""
HUNGRY = """
import os
os.sched_setaffinity(0, range(os.cpu_count()))
children = [os.fork() for _ in range(1)]
x = sum(i * i for i in range(5 * 10**6))
if children[0]:
    os.waitpid(children[0], 0)
os._exit(0)
"""

NEIGHBOUR = """
import glob
found = [path for path in glob.glob("../*-baseline/stdout") + glob.glob("../*-again/stdout") if open(path).read()]
print(open(found[0]).read() if found else "nothing found", end="")
"""
LINKED = """
import os
os.unlink("stdout")
names = [f"../{turn}-{role}/stdout" for turn in range(6) for role in ("baseline", "again")]
os.symlink(next((name for name in names if os.path.exists(name)), names[0]), "stdout")
"""


class Lab:
    """Programs of a test, and the tool that judges them."""

    def __init__(self, cli: Any, folder: Path) -> None:
        self.cli, self.folder = cli, folder
        self.make = self.program("make.py", MAKE)

    def program(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def judge(self, baseline: str, candidate: str, *words: str, make: bool = True) -> tuple[int, dict[str, Any]]:
        commands = [
            f"{sys.executable} {self.program(f'{n}.py', text)} {{input}}"
            for n, text in enumerate((baseline, candidate))
        ]
        inputs = ["--make", str(self.make)] if make else []
        argv = ["bench", "commands", *commands, *inputs, "--preset", "quick", *words, "--json"]
        done = self.cli(*argv, timeout=110)
        answer: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, answer.get("result") or answer["error"]


@pytest.fixture
def lab(cli: Any, tmp_path: Path) -> Lab:
    folder = tmp_path / "programs"
    folder.mkdir()
    return Lab(cli, folder)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_more_work_is_slower_and_less_is_faster(lab: Lab) -> None:
    code, slower = lab.judge(TOTAL, SLOW.format(n=400))
    assert (code, slower["verdict"]) == (3, "slower")
    code, faster = lab.judge(SLOW.format(n=400), TOTAL)
    assert (code, faster["verdict"]) == (0, "faster")
    assert faster["checked"] == 6
    assert faster["baseline"]["runs"] == 12


@pytest.mark.timeout(120)
def test_output_for_an_input_that_nobody_knew_is_compared(lab: Lab) -> None:
    code, answer = lab.judge(TOTAL, "print(1000.0)")
    assert (code, answer["verdict"]) == (3, "incorrect")
    assert "stdout" in answer["sentence"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_checker_decides_where_bytes_may_differ(lab: Lab) -> None:
    check = str(lab.program("check.py", CLOSE))
    near = TOTAL.replace("print(sum(", "print(1e-9 + sum(")
    assert lab.judge(TOTAL, near)[1]["verdict"] == "incorrect"
    assert lab.judge(TOTAL, near, "--check", check)[1]["verdict"] != "incorrect"
    assert lab.judge(TOTAL, near.replace("1e-9", "1"), "--check", check)[1]["verdict"] == "incorrect"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_more_cores_than_declared_are_invalid(lab: Lab) -> None:
    """A second core brings nothing, and shows nothing, while none is free."""
    answer = lab.judge("sum(i * i for i in range(10**6))", HUNGRY)[1]
    side = answer["candidate"]
    if side and side["cpu_s"] < 1.3 * side["median_s"] and answer["verdict"] != "invalid":
        pytest.skip("no second core was free")
    assert (answer["verdict"], answer["flags"][0]["code"]) == ("invalid", "candidate_cores")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("candidate", [NEIGHBOUR, LINKED], ids=["read", "linked"])
def test_outputs_of_another_run_cannot_be_used(lab: Lab, candidate: str) -> None:
    accept = str(lab.program("check.py", CLOSE))
    code, answer = lab.judge(TOTAL, candidate, "--check", accept)
    assert (code, answer["verdict"]) == (3, "incorrect")
    if candidate == LINKED:
        assert "symbolic link" in answer["sentence"]
    else:
        assert "nothing found" in answer["sentence"]


@pytest.mark.timeout(120)
def test_a_link_to_a_file_of_the_same_run_is_an_output(lab: Lab) -> None:
    own = TOTAL + "; import os; os.symlink('stdout', 'latest')"
    assert lab.judge(own, own)[1]["verdict"] in ("inconclusive", "same", "faster", "slower")


@pytest.mark.parametrize("line", ["", " ", "sh -c 'unclosed"])
def test_a_line_without_a_program_is_refused(cli: Any, line: str) -> None:
    done = cli("bench", "commands", "true", line, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "NO_PROGRAM")


def test_what_cannot_be_compared_is_said(lab: Lab) -> None:
    assert lab.judge("raise SystemExit(7)", TOTAL)[1]["code"] == "BASELINE_FAILED"
    without = lab.judge(TOTAL, TOTAL, make=False)[1]
    assert without.get("code") == "BASELINE_FAILED", without
    assert "--make" in without["hint"]
    assert lab.judge(TOTAL, TOTAL, "--cores", "1000")[1]["code"] == "TOO_MANY_CORES"
    assert lab.judge(TOTAL, TOTAL, "--check", "/nowhere/check.py")[1]["code"] == "NO_SUCH_FILE"
