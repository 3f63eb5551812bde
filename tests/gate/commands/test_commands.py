"""aisp bench commands: whole programs judged by their outputs, times and declared resources."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import AispError, BenchmarkError
from aisp_mcp.gate.commands.judge import CommandRequest, compare
from aisp_mcp.gate.commands.process import Limits, run
from aisp_mcp.gate.commands.records import CommandComparison
from aisp_mcp.process import isolation

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
sys.exit(f"{one} is not {other}" if not abs(one - other) <= 1e-6 else 0)
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
names = [f"../{turn}-{role}/stdout" for turn in range(6) for role in ("baseline", "again")]
os.symlink(next((name for name in names if os.path.exists(name)), names[0]), "latest")
"""
LEFT_IN = {
    "segment": """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
def recall():
    number = libc.shmget(4711, 64, 0)
    return number >= 0 and ctypes.string_at(libc.shmat(number, None, 0)).decode()
def keep(text):
    number = libc.shmget(4711, 64, 0o1600)
    if number >= 0:
        ctypes.memmove(libc.shmat(number, None, 0), text.encode() + bytes(1), len(text) + 1)
""",
    "keyring": """
import ctypes
libc = ctypes.CDLL(None)
def recall():
    text = ctypes.create_string_buffer(64)
    number = libc.syscall(250, 10, -3, b"user", b"aisp-memo", 0)
    return number > 0 and libc.syscall(250, 11, number, text, 64) > 0 and text.value.decode()
def keep(text):
    libc.syscall(248, b"user", b"aisp-memo", text.encode(), len(text), -3)
""",
    "folder": """
import os, tempfile
places = ["/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~"), os.environ["AISP_INPUT"], ".."]
def recall():
    found = [place + "/memo" for place in places if os.path.exists(place + "/memo")]
    return bool(found) and open(found[0]).read()
def keep(text):
    for place in places:
        try:
            open(place + "/memo", "w").write(text)
        except OSError:
            pass
""",
}
RECALLED = """
remembered = recall()
keep("x")
print("remembered" if remembered else sum(map(float, open(sys.argv[1] + "/numbers.txt").read().split())))
"""
ODD_OUTPUTS = {
    "symbolic link": LINKED,
    "circle": "import os; os.symlink('latest', 'latest')",
    "absolute": "import os; os.symlink(os.path.abspath('stdout'), 'latest')",
    "climbing": "import os; os.mkdir('d'); os.symlink('..', 'd/s'); os.symlink('d/s/..', 'latest')",
    "neither a file nor a folder": "import os; os.mkfifo('latest')",
}
# What the baseline leaves, and what leaves nearly the same with less work.
SHORTCUTS = {
    "folders": ("for n in range(9): os.makedirs(f'tree/{n}')", "os.makedirs('tree')"),
    "links": (
        "for n in range(9): open(f'copy{n}', 'w').write('x')",
        "open('copy0', 'w').write('x'); [os.symlink('copy0', f'copy{n}') for n in range(1, 9)]",
    ),
    "names": (
        "for n in range(9): open(f'copy{n}', 'w').write('x')",
        "open('copy0', 'w').write('x'); [os.link('copy0', f'copy{n}') for n in range(1, 9)]",
    ),
    "programs": ("open('tool', 'w').close(); os.chmod('tool', 0o755)", "open('tool', 'w').close()"),
}
ORPHAN = """
import os, signal, time
reader, writer = os.pipe()
if os.fork():
    os.read(reader, 1)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
while time.process_time() < 0.3:
    pass
os.write(writer, b"x")
signal.pause()
"""
ACCEPT = "raise SystemExit(0)"


class Lab:
    """Programs of a test, and their comparison in one replicate, without command line and job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.make = self.program("make.py", MAKE)

    def program(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def judge(
        self, baseline: str, candidate: str, check: Path | None = None, make: bool = True, cores: int = 1
    ) -> CommandComparison:
        programs = [self.program(f"{n}.py", text) for n, text in enumerate((baseline, candidate))]
        first, second = ([sys.executable, "-IS", str(path), "{input}"] for path in programs)  # starts in a third
        return compare(CommandRequest(first, second, self.make if make else None, check, cores, None, 60, 1, None))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    folder = tmp_path / "programs"
    folder.mkdir()
    return Lab(folder)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_more_work_is_slower_and_less_is_faster(cli: Any, lab: Lab) -> None:
    programs = [lab.program("less.py", TOTAL), lab.program("more.py", SLOW.format(n=400))]
    little, much = (f"{sys.executable} {path} {{input}}" for path in programs)

    def judged(*lines: str) -> tuple[int, dict[str, Any]]:
        done = cli("bench", "commands", *lines, "--make", str(lab.make), "--preset", "quick", "--json", timeout=110)
        return done.returncode, json.loads(done.stdout)["result"]

    code, slower = judged(little, much)
    assert (code, slower["verdict"]) == (3, "slower")
    code, faster = judged(much, little)
    assert (code, faster["verdict"]) == (0, "faster")
    assert faster["checked"] == 6
    assert faster["baseline"]["runs"] == 12


def test_output_for_an_input_that_nobody_knew_is_compared(lab: Lab) -> None:
    answer = lab.judge(TOTAL, "print(1000.0)")
    assert (answer.passed, answer.verdict) == (False, "incorrect")
    assert "stdout" in answer.sentence


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_checker_decides_where_bytes_may_differ(lab: Lab) -> None:
    check = lab.program("check.py", CLOSE)
    near = TOTAL.replace("print(sum(", "print(1e-9 + sum(")
    assert lab.judge(TOTAL, near).verdict == "incorrect"
    assert lab.judge(TOTAL, near, check).verdict != "incorrect"
    assert lab.judge(TOTAL, near.replace("1e-9", "1"), check).verdict == "incorrect"


LENIENT = {
    "whose files are empty": "one, other = map(str.split, texts); wrong = any(a != b for a, b in zip(one, other))",
    "with nan in place": "one, other = map(float, texts); wrong = abs(one - other) > 1e-6",
    "end in the middle": "one, other = texts; wrong = not other or not one.startswith(other)",
    "for another input": "wrong = len(texts[1]) < 12 or not 0 < float(texts[1]) < 2000",
}


@pytest.mark.parametrize("words", LENIENT)
def test_a_checker_that_accepts_nonsense_is_refused(lab: Lab, words: str) -> None:
    read = 'import sys\ntexts = [open(folder + "/stdout").read() for folder in sys.argv[2:4]]\n'
    check = lab.program("check.py", f"{read}{LENIENT[words]}\nsys.exit(wrong)")
    with pytest.raises(BenchmarkError, match=words) as caught:
        lab.judge(TOTAL, TOTAL, check)
    assert caught.value.code == "CHECKER_ACCEPTS"


def test_a_number_whose_first_half_is_close_to_it_is_no_nonsense(lab: Lab) -> None:
    read = "import sys\none, other = (float(open(folder + '/stdout').read()) for folder in sys.argv[2:4])\n"
    check = lab.program("check.py", f"{read}sys.exit(not abs(one - other) <= 1e-3)")
    number = "print(1000.0000000000001)"
    assert lab.judge(number, number, check).verdict != "incorrect"


def test_a_baseline_whose_output_varies_accuses_nobody(lab: Lab) -> None:
    clock = "import time; print(time.time_ns())"
    with pytest.raises(BenchmarkError, match="Two runs of the baseline on one input differ") as caught:
        lab.judge(clock, clock)
    assert caught.value.code == "BASELINE_VARIES"


def test_a_candidate_that_says_nothing_and_fails_is_named_in_a_whole_sentence(lab: Lab) -> None:
    judged = lab.judge("print(1)", "raise SystemExit(3)", make=False)
    assert judged.sentence == "incorrect: the candidate exited with 3"


def test_a_program_pays_for_no_launcher(lab: Lab) -> None:
    answer = lab.judge("pass", "pass")
    assert answer.baseline is not None
    assert answer.baseline.peak_bytes < 30e6  # of this interpreter alone, without what starts it


def test_a_program_cannot_leave_its_cores(lab: Lab) -> None:
    answer = lab.judge("sum(i * i for i in range(10**6))", HUNGRY)
    assert answer.verdict == "incorrect"
    assert "Operation not permitted" in answer.sentence


def test_outputs_of_another_run_cannot_be_read(lab: Lab) -> None:
    answer = lab.judge(TOTAL, NEIGHBOUR, lab.program("check.py", CLOSE))
    assert answer.verdict == "incorrect"
    assert "nothing found" in answer.sentence


@pytest.mark.parametrize("name", ODD_OUTPUTS)
def test_outputs_that_lead_elsewhere_are_incorrect(lab: Lab, name: str) -> None:
    answer = lab.judge(TOTAL, ODD_OUTPUTS[name], lab.program("check.py", ACCEPT))
    assert answer.verdict == "incorrect"
    assert name in answer.sentence or "symbolic link" in answer.sentence


@pytest.mark.parametrize("kind", SHORTCUTS)
def test_folders_links_and_programs_are_compared(lab: Lab, kind: str) -> None:
    whole, less = (f"import os\n{text}" for text in SHORTCUTS[kind])
    answer = lab.judge(whole, less)
    assert (answer.verdict, answer.flags[0].code) == ("incorrect", "incorrect_files")


def test_equal_folders_links_and_programs_are_equal(lab: Lab) -> None:
    linked = SHORTCUTS["links"][1].replace("copy", "linked")
    named = SHORTCUTS["names"][1].replace("copy", "named")
    every = "\n".join(["import os", *(whole for whole, _ in SHORTCUTS.values()), linked, named])
    assert lab.judge(every, every).checked == 2


def test_no_program_sees_an_input_twice(lab: Lab) -> None:
    """Whatever a program keeps, and be it in which pages of a library are cached, it is for another input."""
    seen = lab.folder / "seen"
    text = f"import sys; open({str(seen)!r}, 'a').write(open(sys.argv[1] + '/numbers.txt').read().split()[0] + '\\n')"
    assert lab.judge(TOTAL, TOTAL, lab.program("check.py", text + CLOSE)).checked == 2
    assert len(set(seen.read_text().split())) == 2


@pytest.mark.skipif(isolation.probe().level < "L2", reason="programs share their memory and folders here")
@pytest.mark.parametrize("where", LEFT_IN)
def test_a_run_finds_nothing_of_an_earlier_one(lab: Lab, where: str) -> None:
    """Standard output is compared byte by byte: a candidate that remembers its first run says so in its second."""
    answer = lab.judge(TOTAL, "import sys\n" + LEFT_IN[where] + RECALLED)
    assert answer.verdict.value in ("inconclusive", "same", "faster", "slower"), answer.sentence
    assert answer.checked == 2


@pytest.mark.timeout(120)
def test_files_of_the_working_folder_are_copied_into_each_run(cli_here: Any, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "words.py").write_text("WORD = 'same'")
    program = "import os, sys; sys.path.append('lib'); import words; print(words.WORD); print(sorted(os.listdir()))"
    (tmp_path / "a.py").write_text(program.replace("sorted(os.listdir())", "len(os.listdir())"))
    (tmp_path / "b.py").write_text(program.replace("sorted(os.listdir())", "len(os.listdir())") + "; open('a.py')")
    python = f"{sys.executable} -S"  # with -I it would leave bytecode, which is an output
    line = ["bench", "commands", f"{python} a.py", f"{python} a.py", "--runs", "4", "--json"]
    done = cli_here(*line, "--file", "lib", cwd=tmp_path, timeout=110)
    assert json.loads(done.stdout)["result"]["checked"] == 4, done.stdout
    hidden = cli_here(*line[:3], f"{python} b.py", *line[4:], "--file", "lib", cwd=tmp_path, timeout=110)
    assert hidden.returncode == 3
    assert "No such file or directory: 'a.py'" in json.loads(hidden.stdout)["result"]["sentence"]
    outside = cli_here(*line, "--file", "..", cwd=tmp_path)
    assert json.loads(outside.stdout)["error"]["code"] == "FILE_OUTSIDE"


def test_an_input_that_is_changed_in_place_is_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.txt").write_text("3\n1\n2\n")

    def sentence(candidate: str) -> str:
        sort = ["sort", "-o", "data.txt", "data.txt"]
        return compare(CommandRequest(sort, candidate.split(), None, None, 1, None, 60, 1, None)).sentence

    assert "data.txt differs" in sentence("sort -r -o data.txt data.txt")
    assert (tmp_path / "data.txt").read_text() == "3\n1\n2\n"
    assert "only one of the two programs wrote data.txt" in sentence("true data.txt")


@pytest.mark.skipif(isolation.probe().level < "L2", reason="orphans have no parent that waits for them here")
def test_time_of_an_orphan_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    argv = [sys.executable, "-c", ORPHAN]
    ran = run(argv, folder, isolation.probe().level, Limits(frozenset(os.sched_getaffinity(0)), None, 60), {})
    assert ran.code == 0
    assert ran.cpu_s > 0.25


def test_a_link_to_a_file_of_the_same_run_is_an_output(lab: Lab) -> None:
    own = TOTAL + "; import os; os.symlink('stdout', 'latest')"
    assert lab.judge(own, own).verdict.value in ("inconclusive", "same", "faster", "slower")


@pytest.mark.parametrize("line", ["", " ", "sh -c 'unclosed"])
def test_a_line_without_a_program_is_refused(cli_here: Any, line: str) -> None:
    done = cli_here("bench", "commands", "true", line, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "NO_PROGRAM")


def test_what_cannot_be_compared_is_said(lab: Lab) -> None:
    def refused(*programs: str, **arguments: Any) -> AispError:
        with pytest.raises(AispError) as caught:
            lab.judge(*programs, **arguments)
        return caught.value

    assert refused("raise SystemExit(7)", TOTAL).code == "BASELINE_FAILED"
    without = refused(TOTAL, TOTAL, make=False)
    assert without.code == "BASELINE_FAILED"
    assert "--make" in str(without.hint)
    assert refused(TOTAL, TOTAL, cores=1000).code == "TOO_MANY_CORES"
    assert refused(TOTAL, TOTAL, check=Path("/nowhere/check.py")).code == "NO_SUCH_FILE"
