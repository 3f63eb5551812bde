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
from aisp_mcp.front.cli import main as cli
from aisp_mcp.gate.keep import decide
from aisp_mcp.gate.keep.records import Kept
from aisp_mcp.gate.keep.step import Request, step
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
            "run_timeout_s": 30.0,
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
    assert (kept.outcome, kept.exit_code) == ("keep", 0)
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
    assert (kept.outcome, "train.sh, which is fixed" in kept.sentence) == ("discard", True)


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
        ("while :; do :; done", {"run_timeout_s": 0.2}, "The candidate did not end within 0.2 s"),
        ("cat nowhere", {}, "name them with --share"),
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
    writes = "import json\njson.dump({'eval': {'loss': LOSS}}, open('out.json', 'w'))\nblock = b'x' * (SIZE << 20)\n"
    commit(repo, train=f"LOSS, SIZE = 1.5, 40\n{writes}")
    edit(repo, "1.5, 40", "1.0, 16")
    assert keep(*python, metric="eval.loss", output="out.json").gain == pytest.approx(0.5)
    memory = keep(*python, metric="memory", runs=1)
    assert memory.before is not None
    assert memory.after is not None
    assert 20e6 < memory.before - memory.after < 30e6
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


def test_the_command_exits_with_the_answer(repo: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    edit(repo, "2000", "1500")
    options = ["--metric", "val_loss: ([0-9.e-]+)", "--require", "acc >= 0.9", "--json"]
    assert cli.main(["keep", *options, "--", "sh", "train.sh"]) == 0
    assert json.loads(capfd.readouterr().out)["result"]["outcome"] == "keep"
    edit(repo, "echo", "exit 1; echo")
    assert cli.main(["keep", *options, "sh", "train.sh"]) == 5
