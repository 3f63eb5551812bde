"""aisp keep: a change measured against the last commit, and kept only on evidence that lasts for a whole loop."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.errors import AispError, NotFound, StoreError, UsageError
from aisp_mcp.gate.keep import decide, runner, trees
from aisp_mcp.gate.keep.records import Kept
from aisp_mcp.gate.keep.step import Request, step
from aisp_mcp.process import tree
from aisp_mcp.runs import metric

# Prints a loss with noise, as a shell script: these tests start it some hundred times.
TRAIN = """
noise=$(od -An -N2 -tu2 /dev/urandom)
echo "epoch 1 loss 3.5"
echo "val_loss: $((LOSS + noise / 8))e-6 acc: 0.95"
"""
EXACT = "echo score: 80\n"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.sh").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "state")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "config", "user.email", "a@example.com")
    git(folder, "config", "user.name", "a")
    commit(folder, train=f"LOSS=2000000\n{TRAIN}")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def keep(tmp_path: Path) -> Callable[..., Kept]:
    """One step, with the given arguments and defaults for the others."""

    def call(*command: str, **given: Any) -> Kept:
        defaults: dict[str, Any] = {
            "metric": r"val_loss: ([0-9.e-]+)",
            "better": "lower",
            "require": (),
            "against": None,
            "gain": 0.02,
            "budget": 0.01,
            "runs": 40,
            "share": (),
            "fixed": (),
            "build": None,
            "output": None,
            "commit": False,
            "loop": "loop",
            "run_timeout_s": 60.0,
        }
        words = command or ("sh", "train.sh")
        return step(Request(command=words, **{**defaults, **given}), Path.cwd(), tmp_path / "home")

    return call


def edit(repo: Path, old: str, new: str, name: str = "train.sh") -> None:
    text = (repo / name).read_text()
    assert old in text
    (repo / name).write_text(text.replace(old, new))


def runs(repo: Path, loop: str = "loop") -> int:
    """Runs that the loop has written down."""
    lines = (repo / f".git/aisp-keep/{loop}.jsonl").read_text().splitlines()
    return 2 * sum(json.loads(line)["kind"] in ("pair", "same") for line in lines)


def simulated(steps: int, gain: float, noise: Callable[[random.Random], float], draw: random.Random) -> list[str]:
    """The answers of a loop, by the decision of the real one. noise: of one run."""

    def difference() -> float:
        return noise(draw) - noise(draw)

    known, answers = [difference() for _ in range(decide.KNOWN)], list[str]()
    for number in range(1, steps + 1):
        differences, outcome = list[float](), "undecided"
        while outcome == "undecided" and len(differences) < 40:
            differences.append(gain + difference())
            alpha = 0.01 * decide.share(number)
            outcome = decide.decide(differences, known[-decide.REMEMBERED :], alpha, math.log1p(0.02))
        answers.append(outcome)
        known += [difference()] if number % 4 == 0 else []
    return answers


NOISE: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda draw: draw.gauss(0, 0.005),
    "two states": lambda draw: 0.01 * (draw.random() < 0.5),
    "long tail": lambda draw: draw.expovariate(1 / 0.005),
}


@pytest.mark.parametrize("kind", NOISE)
def test_identical_candidates_are_not_kept_and_small_gains_are(kind: str) -> None:
    draw = random.Random(63)
    copies = simulated(200, 0.0, NOISE[kind], draw)
    assert copies.count("keep") == 0
    assert copies.count("discard") >= 0.95 * len(copies)
    gains = simulated(50, math.log(1.02), NOISE[kind], draw)
    assert gains.count("keep") >= 45


def test_the_budget_is_never_used_up_and_never_exceeded() -> None:
    shares = [decide.share(number) for number in range(1, 20_000)]
    assert shares == sorted(shares, reverse=True)
    assert 0.99 < sum(shares) < 1


def test_a_better_candidate_is_kept_and_a_worse_one_is_not(repo: Path, keep: Callable[..., Kept]) -> None:
    edit(repo, "2000", "1900")
    kept = keep()
    assert (kept.outcome, kept.exit_code) == ("keep", 0), kept.sentence
    assert kept.gain is not None
    assert kept.low is not None
    assert 0.03 < kept.low < kept.gain < 0.08
    assert kept.sentence.startswith("keep: val_loss 2")
    edit(repo, "1900", "2100")
    assert keep().outcome == "discard"
    edit(repo, "2100", "99000")
    assert re.search(r", \d\d(\.\d)? times worse \(95 % interval \d+(\.\d+)? to ", keep().sentence)
    edit(repo, "99000", "2100")
    assert keep(better="higher").outcome == "keep"


def test_an_unchanged_tree_measures_the_noise(repo: Path, keep: Callable[..., Kept]) -> None:
    kept = keep()
    assert (kept.outcome, kept.step) == ("discard", None)
    assert kept.noise is not None
    assert 0 < kept.noise < 0.01
    assert "; 8 pairs of identical runs differed by 0." in kept.sentence
    assert runs(repo) == 16
    keep()
    assert runs(repo) == 16


def test_a_candidate_is_judged_once(repo: Path, keep: Callable[..., Kept]) -> None:
    edit(repo, "LOSS=", "# the same\nLOSS=")
    first, before = keep(), runs(repo)
    again = keep()
    assert (first.outcome, again.outcome, again.step) == ("discard", "discard", 1)
    assert "Judged before" in again.sentence
    assert runs(repo) == before


def test_an_undecided_step_says_what_it_needs_and_goes_on(repo: Path, keep: Callable[..., Kept]) -> None:
    edit(repo, "2000", "1940")
    first = keep(runs=2)
    assert (first.outcome, first.exit_code, first.pairs) == ("undecided", 4, 2)
    assert first.more_runs
    assert f"needs about {first.more_runs} more runs" in first.sentence
    log = repo / ".git/aisp-keep/loop.jsonl"
    log.write_text(f'{log.read_text()}{{"kind":"pair","step":1,"val')  # killed while it wrote
    second = keep()
    assert (second.outcome, second.step) == ("keep", 1)
    assert second.pairs > 2


def test_a_program_without_noise_needs_a_gain_worth_keeping(repo: Path, keep: Callable[..., Kept]) -> None:
    commit(repo, train=EXACT)
    of = {"metric": "score", "better": "higher"}
    assert keep(**of).noise == 0
    edit(repo, "80", "81")
    assert keep(**of).outcome == "discard"
    kept = keep(**of, gain=0.01)
    assert (kept.outcome, kept.pairs) == ("keep", 2)
    assert "AISP_SEED" in kept.sentence


def test_both_sides_of_a_pair_get_the_same_new_seed(repo: Path, keep: Callable[..., Kept]) -> None:
    seeded = "echo loss = $((200 + AISP_SEED % 100))\n"
    commit(repo, train=seeded)
    edit(repo, "200 +", "100 + 100 +")
    kept = keep(metric="loss")
    assert (kept.outcome, kept.gain) == ("discard", 0)


def test_conditions_are_met_or_the_candidate_is_discarded(repo: Path, keep: Callable[..., Kept]) -> None:
    edit(repo, "2000", "1900")
    edit(repo, "0.95", "0.91")
    refused = keep(require=("acc >= 0.93",))
    assert (refused.outcome, refused.require) == ("discard", {"acc >= 0.93": 0.91})
    assert "not acc >= 0.93" in refused.sentence
    assert keep(require=("acc >= 0.9", "time < 20")).outcome == "keep"


def test_files_that_are_fixed_may_not_change(repo: Path, keep: Callable[..., Kept]) -> None:
    edit(repo, "2000", "1000")
    kept = keep(fixed=("train.sh",))
    assert (kept.outcome, "train.sh, which is fixed." in kept.sentence) == ("discard", True)
    old, new = (repo / name for name in ("old", "new"))
    for folder in (old, new):
        (folder / "lib/check").mkdir(parents=True)
        (folder / "lib/check.py").write_text("")
    (new / "lib/check/data.py").write_text("")  # a folder without __init__ gives way to the module
    (new / "lib/check.toml").write_text("")
    assert trees.changed(["lib/check.py"], old, new) is None
    (new / "lib/check/__init__.py").write_text("")
    words = "lib/check.py, which is fixed: Python imports lib/check/__init__.py in its place"
    assert trees.changed(["lib/check.py"], old, new) == words


def test_commit_keeps_or_reverts_and_loses_nothing(repo: Path, keep: Callable[..., Kept]) -> None:
    edit(repo, "2000", "1900")
    (repo / "helper.py").write_text("new = 1\n")
    kept = keep(commit=True)
    assert git(repo, "rev-parse", "HEAD").startswith(kept.commit or "none")
    assert git(repo, "status", "--short") == ""
    edit(repo, "1900", "2100")
    (repo / "worse.py").write_text("worse = 1\n")
    discarded = keep(commit=True)
    assert git(repo, "status", "--short") == ""
    assert not (repo / "worse.py").exists()
    assert git(repo, "show", f"{discarded.saved}:worse.py") == "worse = 1"
    edit(repo, "1900", "1800")
    assert keep(against="step-2").outcome == "keep"


@pytest.mark.parametrize(
    ("program", "given", "words"),
    [
        ("echo nothing", {}, "The candidate: standard output has no match for"),
        ("echo val_loss: 1; echo val_loss: 2", {}, "such as 1 in line 1 and 2 in line 2"),
        ("echo val_loss: 1.2e", {}, "'1.2e' in line 1 of standard output is not a number"),
        ("echo loss = nan", {"metric": "loss"}, "'nan' in line 1"),
        ("echo val_loss: 1.0", {"metric": "loss.*"}, "is not a number. Put parentheses around the number in --met"),
        ("echo out of memory >&2; exit 1", {}, "The candidate ended with 1: out of memory"),
        ("sleep 600", {"run_timeout_s": 2.0}, "The candidate did not end within 2 s"),
        ("cat nowhere", {}, "name them with --share"),
        ("kill -9 $PPID", {}, "The candidate ended the process that starts it."),
        (":", {"build": "test ! -e broken.py"}, "The candidate's build ended with 1"),
    ],
)
def test_what_cannot_be_judged_is_broken(
    repo: Path, keep: Callable[..., Kept], program: str, given: dict[str, Any], words: str
) -> None:
    if given.get("metric"):
        commit(repo, train="echo loss = 1.0")
    (repo / "train.sh").write_text(program)
    (repo / "broken.py").write_text("")
    before = git(repo, "status", "--short")
    kept = keep(**{"commit": True, **given})
    assert (kept.outcome, kept.exit_code, kept.step) == ("broken", 5, None)
    assert words in kept.sentence
    assert git(repo, "status", "--short") == before
    assert "answer" not in (repo / ".git/aisp-keep/loop.jsonl").read_text()


def test_a_broken_incumbent_is_not_the_candidates_fault(repo: Path, keep: Callable[..., Kept]) -> None:
    commit(repo, train="cat data/missing")
    (repo / "train.sh").write_text(f"LOSS=2000000\n{TRAIN}")
    assert keep().sentence.startswith("broken: The incumbent ended with 1: cat: data/missing")


def test_numbers_come_from_json_from_files_and_from_the_process(repo: Path, keep: Callable[..., Kept]) -> None:
    python = (sys.executable, "-I", "-S", "train.sh")
    writes = "import json\njson.dump({'eval': {'loss': LOSS}}, open('out.json', 'w'))\n"
    commit(repo, train=f"LOSS = 1.5\n{writes}")
    edit(repo, "1.5", "1.0")
    assert keep(*python, metric="eval.loss", output="out.json").gain == pytest.approx(0.5)
    assert "below which none can be seen" in keep("true", metric="memory").sentence


def test_ignored_files_are_shared_and_imports_come_from_the_copies(repo: Path, keep: Callable[..., Kept]) -> None:
    python = (sys.executable, "train.sh")
    (repo / ".gitignore").write_text("data\n")
    (repo / "src").mkdir()
    (repo / "src/tool.py").write_text("LOSS = 2.0\n")
    commit(repo, train="import tool\nprint('loss', '=', tool.LOSS, open('data/n').read().strip())\n")
    (repo / "data").mkdir()
    (repo / "data/n").write_text("x")
    edit(repo, "2.0", "1.0", "src/tool.py")
    kept = keep(*python, metric="loss", share=("data",))
    assert (kept.outcome, kept.before, kept.after) == ("keep", 2.0, 1.0)
    with pytest.raises(UsageError, match=r"train.sh is one of the compared files"):
        keep(*python, metric="loss", share=("train.sh",))


def test_a_folder_without_git_is_compared_with_another(
    tmp_path: Path, keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/train.sh").write_text(EXACT)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    edit(tmp_path / "new", "80", "90")
    monkeypatch.chdir(tmp_path / "new")
    assert keep(metric="score", better="higher", against=str(tmp_path / "old")).outcome == "keep"
    assert (tmp_path / "home/keep/loop.jsonl").is_file()
    with pytest.raises(AispError, match=r"in no git repository"):
        keep(metric="score")


def test_a_repository_without_a_commit_is_named(repo: Path, keep: Callable[..., Kept]) -> None:
    git(repo, "update-ref", "-d", "HEAD")
    with pytest.raises(NotFound, match="has no commit yet"):
        keep()


def test_a_changed_log_is_refused(repo: Path, keep: Callable[..., Kept]) -> None:
    keep()
    log = repo / ".git/aisp-keep/loop.jsonl"
    log.write_text("\n".join(log.read_text().splitlines()[1:]) + "\n")
    with pytest.raises(StoreError, match=r"was changed"):
        keep()


@pytest.mark.parametrize(
    ("pattern", "printed", "found"),
    [
        ("loss", "loss: \x1b[1;32m0.5\x1b[0m\n", 0.5),
        (r"loss: ([0-9.]+)", "\x1b[2Kloss: 0.5, 3 left", 0.5),
        (r"^([0-9.]+),", "0.5,7\n", 0.5),
        ("step", "step: 1.2ms", 1.2),
        (r"2026-11-([0-9]+)", "2026-11-30", 30),
        ("loss", '{"loss": 1e-05}', 1e-05),
        (
            r"loss: ([0-9.]+)",
            "loss: 9.1e-05",
            "takes 9.1, which is only a part of the number in line 1 of it: loss: 9.1e-05",
        ),
        (r"loss: ([0-9.]+)", "loss: 0,93", "takes 0, which is only a part"),
        (r"loss: ([0-9.]+)", "loss: 1\u202f234.5", "takes 1, which is only a part"),
        ("rate", "\nrate: 12,345", "takes 12, which is only a part of the number in line 2"),
        (r"loss.*([0-9.]+)", "loss: 0.93", "takes 3, which is only a part"),
        (r"loss: \D*([0-9.]+)", "loss: -0.93", "takes 0.93, which is only a part"),
        (r"acc: ([0-9]+)", "acc: 93.5 %", "takes 93, which is only a part"),
    ],
)
def test_a_number_is_read_whole_or_not_at_all(tmp_path: Path, pattern: str, printed: str, found: float | str) -> None:
    (tmp_path / "out").write_text(printed)
    if isinstance(found, float | int):
        assert metric.metric(pattern).read(tmp_path / "out", "it") == found
    else:
        with pytest.raises(metric.Unreadable, match=re.escape(found)):
            metric.metric(pattern).read(tmp_path / "out", "it")


@pytest.mark.parametrize(
    ("printed", "is_refused"),
    [
        (["took 900 ms", "took 0.9 s"], True),
        (["took 1.2s/it", "took 1.1it/s"], True),
        (["took 12 MB", "took 12"], True),
        (["took 900 ms", "took 12.5 ms"], False),
        (["took 1 second", "took 2.5 seconds"], False),
        (["took 9 sec, 3 left", "took 1.5s"], False),
        (["took 5 µs", "took 6 us"], False),
        (["took 3 steps", "took 5 minutes"], True),
        (["took 3 steps", "took 5, max 7"], False),
    ],
)
def test_all_runs_print_one_unit(tmp_path: Path, printed: list[str], is_refused: bool) -> None:
    took = metric.metric(r"took ([0-9.]+)")
    (tmp_path / "out").write_text(printed[0])
    took.read(tmp_path / "out", "it")
    (tmp_path / "out").write_text(printed[1])
    if is_refused:
        with pytest.raises(metric.Unreadable, match=r"in one run and .* in another\. Always print the same unit"):
            took.read(tmp_path / "out", "it")
    else:
        took.read(tmp_path / "out", "it")


def test_few_numbers_against_noise_may_be_those_of_lucky_seeds(repo: Path, keep: Callable[..., Kept]) -> None:
    seed = "$(($(od -An -N1 -tu1 /dev/urandom) % 2))"
    (repo / "train.sh").write_text(f"echo val_loss: 1.999{seed}")  # two standard deviations of the incumbent's runs
    lucky = keep(gain=0.001)
    assert lucky.outcome == "undecided", lucky.sentence
    assert "the candidate repeats its numbers, perhaps those of lucky seeds" in lucky.sentence
    assert lucky.pairs < 40
    incumbent = [2.001, 2.004, 2.002, 2.006]
    for value, is_luck in ((2.0, True), (1.9, False)):
        pairs = [(number, value) for number in incumbent]
        assert decide.may_be_luck(pairs, [math.log(old / new) for old, new in pairs]) is is_luck


# Needs MB of memory in a process that nobody waits for, and leaves another one, which has forgotten where it is from.
ORPHANS = """
import os
read, write = os.pipe()
if not os.fork():
    if not os.fork():
        os.write(write, str(len(b"x" * (MB << 20))).encode())
        os.setsid()
        os.execve("/bin/sleep", ["sleep", "100.375"], {})
    os._exit(0)
os.wait()
os.close(write)
print(os.read(read, 20).decode())
"""


def test_orphans_count_and_are_ended(tmp_path: Path) -> None:
    """Run by the process that starts programs for the gate: whole steps of this would take seconds."""
    argv = [sys.executable, "-I", "-S", "-c", f"MB = 20{ORPHANS}"]
    files = {name: str(tmp_path / name) for name in ("out", "err")}
    request = {"argv": argv, "cwd": str(tmp_path), "env": {}, "timeout_s": 60, **files}
    runner_argv = [sys.executable, "-I", "-S", runner.__file__]
    done = subprocess.run(
        runner_argv,
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: tree.prctl(tree.PR_SET_CHILD_SUBREAPER, 1),
    )
    ran = json.loads(done.stdout)
    assert (ran["code"], ran["left"]) == (0, 1)
    assert ran["peak_bytes"] > 20e6  # the first process alone has 10 MB
    assert b"sleep\x00100.375\x00" not in [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline")]


def test_what_a_gain_leaves_out_is_named(repo: Path, keep: Callable[..., Kept]) -> None:
    python = (sys.executable, "-I", "-S", "train.sh")
    commit(repo, train="print(len(b'x' * (40 << 20)))")
    cached = "import os\nif not os.path.exists('cache'):\n    open('cache', 'w').write(str(len(b'x' * (40 << 20))))\n"
    (repo / "train.sh").write_text(f"{cached}block = b'x' * (9 << 20)\nprint(open('cache').read())")
    kept = keep(*python, metric="memory")
    assert (kept.outcome, kept.exit_code) == ("keep", 0), kept.sentence
    assert re.search(
        r"; its first run, which is not counted, took 5\d(\.\d+)? MB: later ones may use wh", kept.sentence
    )
    assert "something else" not in kept.sentence
    assert kept.before is not None
    assert kept.after is not None
    assert 27e6 < kept.before - kept.after < 35e6
    count = "i=0; while [ $((i += 1)) -lt %d ]; do :; done\n"
    commit(repo, train=f"{count % 30_000}echo done", build="")
    (repo / "build.sh").write_text(count % 90_000)
    (repo / "train.sh").write_text("echo finished; exec setsid env -i sh -c 'sleep 100.375 &'")
    built = keep(metric="cpu", build="sh build.sh")
    assert built.outcome == "keep"
    assert "; its build, which is not counted, took" in built.sentence
    assert (
        "; each run left processes running, which were ended; it prints something else than the inc" in built.sentence
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metric.metric("loss: ("), "no regular expression"),
        (lambda: metric.metric("(a)(b)"), "2 groups"),
        (lambda: metric.rule("acc is good"), "not a condition"),
    ],
)
def test_arguments_that_cannot_be_read_are_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call()


def test_the_command_exits_with_the_answer(repo: Path, cli_here: Any) -> None:
    commit(repo, train=EXACT)
    edit(repo, "80", "95")
    options = ["--metric", "score: ([0-9]+)", "--better", "higher", "--require", "score >= 90", "--json"]
    done = cli_here("keep", *options, "--", "sh", "train.sh")
    assert (done.returncode, json.loads(done.stdout)["result"]["outcome"]) == (0, "keep")
    edit(repo, "echo", "exit 1; echo")
    assert cli_here("keep", *options, "sh", "train.sh").returncode == 5
