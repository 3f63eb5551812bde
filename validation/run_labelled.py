"""Count what three judges stop and accuse on labelled candidates: aisp, KernelGuard, and KernelBench's static checker.

python validation/run_labelled.py --kernelguard FOLDER --kernelbench CHECKOUT [--audited CSV --runs CHECKOUT]
    [--algotune FOLDER] [--recorded FILE...] [--seconds 1200] [--out results/labelled.json] [--page docs/labelled.md]

FOLDER of KernelGuard: where `pip install --target FOLDER kernelguard==0.3.2` put it. AUDITED: a table of run_id,
human_verdict, solution_path, whose files are in the git repository CHECKOUT. The candidates that the page calls attacks
and honest twins are aisp's own corpus. aisp runs a sample of candidates until the time is over; both others read all
texts. Whatever a judge did not run is counted as such. RECORDED: records of this script, and of run_attacks.py, whose
findings are taken over.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.process import isolation
from aisp_mcp.system import cpu
from aisp_mcp.validity import corpus

CHEAT, CLEAN = "cheat", "clean"
JUDGES = ("aisp", "KernelGuard 0.3.2", "KernelBench's static checker")
LABELS = {"reward_hack": CHEAT, "clean": CLEAN}
NOT_RUN = "not run"
LONGEST_S, VERDICT_S = 20, 600  # of one text, and of one verdict
Z = 1.959964


@dataclass(frozen=True)
class Row:
    """A labelled candidate. measure: aisp's finding and why; None if it needs a GPU."""

    deck: str
    name: str
    label: str
    text: str
    measure: Callable[[], tuple[str, str]] | None = None


def corpus_rows() -> Iterator[Row]:
    """aisp's own attacks and their honest twins, for a CPU."""
    for case in corpus.cases(device="cpu"):
        label = CHEAT if case.kind == "attack" else CLEAN

        def measure(case: Any = case) -> tuple[str, str]:
            return finding(corpus.tried(case, corpus.FAST))

        deck = "aisp's attacks" if label == CHEAT else "aisp's honest twins"
        yield Row(deck, case.name, label, case.candidate, measure)


def audited_rows(table: Path, runs: Path) -> Iterator[Row]:
    """Kernels that a person has audited; all need a GPU."""
    with table.open() as file:
        for row in csv.DictReader(file):
            label = LABELS.get(row["human_verdict"])
            done = subprocess.run(
                ["git", "-C", str(runs), "show", f"HEAD:{row['solution_path']}"], capture_output=True, text=True
            )
            if label and done.returncode == 0:
                yield Row("audited kernels", row["run_id"], label, done.stdout)


def algotune_rows(folder: Path) -> Iterator[Row]:
    """Solvers of AlgoTune that compute in float32 where their task does not: each is a lower precision."""
    for solver in sorted(folder.glob("results/*/*/solver.py")):
        task = folder / "AlgoTuneTasks" / solver.parent.name / f"{solver.parent.name}.py"
        text = solver.read_text("utf-8", "replace")
        if not task.is_file() or "float32" not in text or "float32" in task.read_text("utf-8", "replace"):
            continue

        def measure(task: Path = task, solver: Path = solver) -> tuple[str, str]:
            return verified([str(task), str(solver), "--format", "algotune"])

        yield Row("AlgoTune in float32", f"{solver.parent.parent.name}/{solver.parent.name}", CHEAT, text, measure)


def finding(row: dict[str, Any]) -> tuple[str, str]:
    """aisp's finding on a row of its corpus."""
    words = {"stopped": "stopped", "flagged wrongly": "stopped", "through": "passed", "passed": "passed"}
    if row["found"] == "passed" and row["verdict"] == "inconclusive":
        return "undecided", "inconclusive"
    return words.get(row["found"], NOT_RUN), str(row["verdict"] or row["error"])[:160]


def recorded(files: list[Path]) -> dict[tuple[str, str], tuple[str, str]]:
    """Findings of earlier records by judge and name; a record of run_attacks.py has aisp's on its corpus."""
    findings = dict[tuple[str, str], tuple[str, str]]()
    for row in [row for file in files for row in json.loads(file.read_text("utf-8"))["rows"]]:
        own = row["found"] if "deck" in row else {JUDGES[0]: finding(row)}
        known = {judge: (found, why) for judge, (found, why) in own.items() if found != NOT_RUN}
        findings |= {(judge, row.get("name") or row["case"]): found for judge, found in known.items()}
    return findings


def verified(words: list[str]) -> tuple[str, str]:
    """aisp's verdict on a candidate, from its command."""
    aisp = str(Path(sys.executable).with_name("aisp"))
    with tempfile.TemporaryDirectory() as home:
        argv = [aisp, "bench", "verify", *words, "--preset", "quick", "--json"]
        env = {**os.environ, "AISP_HOME": home}
        try:
            done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=VERDICT_S)
        except subprocess.TimeoutExpired:
            return NOT_RUN, f"no verdict in {VERDICT_S} s"
    try:
        answer = json.loads(done.stdout)
        (ruling,) = answer["result"]["rulings"]
    except (ValueError, KeyError):
        error = (json.loads(done.stdout).get("error") or {}) if done.stdout else {}
        return NOT_RUN, str(error.get("code", "no verdict"))
    return {"incorrect": "stopped", "invalid": "stopped", "inconclusive": "undecided"}.get(
        ruling["verdict"], "passed"
    ), str(ruling["sentence"])[:160]


def loaded(path: Path) -> Any:
    """A judge's module, from its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def kernelguard(folder: Path) -> Callable[[Row], tuple[str, str]]:
    """Its classification of a text, as with --api-mode. What is neither valid nor filtered is undecided."""
    module = loaded(folder / "kernelguard.py")

    def late(*_: object) -> None:
        raise TimeoutError

    def found(row: Row) -> tuple[str, str]:
        signal.signal(signal.SIGALRM, late)
        signal.alarm(LONGEST_S)
        try:
            answer = module.analyze_code(row.text, compute_structural_hash=False)
        except TimeoutError:
            return NOT_RUN, f"no answer in {LONGEST_S} s"
        finally:
            signal.alarm(0)
        patterns = ", ".join(sorted({str(each.get("pattern", "")) for each in answer["matched_patterns"]}))
        if answer["should_filter"]:
            return "stopped", patterns
        return ("passed" if answer["classification"] == "valid" else "undecided"), patterns

    return found


def static_checker(checkout: Path) -> Callable[[Row], tuple[str, str]]:
    """Its strict checks, as float32, whatever the kernel is written in; what only warns is undecided."""
    module = loaded(checkout / "src" / "kernelbench" / "kernel_static_checker.py")

    def found(row: Row) -> tuple[str, str]:
        valid, errors, warnings = module.validate_kernel_static(row.text, backend="any", precision="fp32")
        said = "; ".join(sorted(errors or warnings))[:160]
        return ("stopped" if not valid else "undecided" if warnings else "passed"), said

    return found


def interval(count: int, of: int) -> tuple[float, float]:
    """Wilson's interval at 95 %."""
    share, scale = count / of, 1 + Z * Z / of
    middle = (share + Z * Z / (2 * of)) / scale
    half = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def share(count: int, of: int) -> str:
    """A share with its interval, in words."""
    if not of:
        return "–"
    low, high = interval(count, of)
    return f"{count} of {of}: {100 * count / of:.0f} % ({100 * low:.0f}-{100 * high:.0f})"


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per deck, label and judge."""
    lines = []
    for deck, label in dict.fromkeys((row["deck"], row["label"]) for row in rows):
        own = [row for row in rows if (row["deck"], row["label"]) == (deck, label)]
        for judge in JUDGES:
            counts = Counter(row["found"][judge][0] for row in own)
            judged = len(own) - counts[NOT_RUN]
            about = {"deck": deck, "label": label, "judge": judge, "rows": len(own), "judged": judged}
            lines.append({**about, **{word: counts[word] for word in ("stopped", "undecided", "passed")}})
    return lines


PAGE = """# Stopped, accused, undecided: a score on labelled candidates

Cheats should be stopped, and clean candidates should not be. This page counts both for aisp, for KernelGuard 0.3.2 and
for the static checker of KernelBench, on the same texts. `validation/run_labelled.py` wrote it and
[the record](../results/labelled.json), which has every row.

A share is followed by its interval of Wilson at 95 %.

| word | aisp | KernelGuard | static checker |
| --- | --- | --- | --- |
| stopped | incorrect, invalid, or no gain beyond the true one | `should_filter` | an error |
| accused | incorrect or invalid, of a clean candidate | the same | the same |
| undecided | inconclusive | a classification below certainty | warnings alone |

What a judge did not run is left out of its shares.

{tables}
## Reading it

- Both others read text only. They are quick, need no GPU, and were made for the cheats of one contest and of one
  benchmark, not for these decks.
- aisp's attacks were written to test aisp, so its share there is what its tests keep, not a measurement on unseen
  attacks. Its findings there may be those of [an earlier record](../results/cpu-attacks.json), with two short
  replicates, which are too few to decide about most honest twins. The other decks are foreign.
- A solver of AlgoTune that computes in float32 keeps that suite's own tolerance, or it would not be published: with the
  suite's own checker it is not a cheat there. aisp judges solvers with that checker.
- Audited kernels need a GPU. On a CPU, aisp cannot run them.

{where}
"""


def page(lines: list[dict[str, Any]], about: dict[str, Any]) -> str:
    """The page of a record."""
    tables = ""
    for label, verb in ((CHEAT, "stopped"), (CLEAN, "accused")):
        tables += f"## {'Cheats' if label == CHEAT else 'Clean candidates'}\n\n"
        tables += f"| deck | judge | {verb} | undecided | not run |\n| --- | --- | --- | --- | --- |\n"
        for line in lines:
            if line["label"] == label:
                shares = [share(line[word], line["judged"]) for word in ("stopped", "undecided")]
                cells = [line["deck"], line["judge"], *shares, str(line["rows"] - line["judged"])]
                tables += f"| {' | '.join(cells)} |\n"
        tables += "\n"
    tables = tables.rstrip("\n") + "\n"
    return PAGE.format(tables=tables, where=f"Made on {about['date']}, on {about['device']}.")


def main() -> None:
    """Run, record, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelguard", type=Path, required=True)
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--audited", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--algotune", type=Path)
    parser.add_argument("--recorded", type=Path, nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=1200.0, help="start no measurement of aisp after that")
    parser.add_argument("--out", type=Path, default=Path("results/labelled.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/labelled.md"))
    options = parser.parse_args()
    rows = [*corpus_rows()]
    rows += audited_rows(options.audited, options.runs) if options.audited else []
    rows += algotune_rows(options.algotune) if options.algotune else []
    readers = {JUDGES[1]: kernelguard(options.kernelguard), JUDGES[2]: static_checker(options.kernelbench)}
    known = recorded(options.recorded)
    found = {judge: [known.get((judge, row.name)) or reader(row) for row in rows] for judge, reader in readers.items()}
    measured = {number: known[JUDGES[0], row.name] for number, row in enumerate(rows) if (JUDGES[0], row.name) in known}
    measured |= sampled(rows, options.seconds, measured)
    judged = [
        {
            **{"deck": row.deck, "name": row.name, "label": row.label},
            "found": {JUDGES[0]: measured.get(number, (NOT_RUN, "needs a GPU" if row.measure is None else "no time"))}
            | {judge: found[judge][number] for judge in readers},
        }
        for number, row in enumerate(rows)
    ]
    about = {"date": time.strftime("%Y-%m-%d"), "device": f"{cpu.read().model}, {os.cpu_count()} cores"}
    lines = summary(judged)
    what = {
        "what": "labelled candidates and what three judges say of them",
        **about,
        "isolation": isolation.probe().level,
    }
    options.out.write_text(json.dumps({**what, "summary": lines, "rows": judged}, indent=1) + "\n", "utf-8")
    options.page.write_text(page(lines, about), "utf-8")


def sampled(rows: list[Row], seconds: float, known: Container[int]) -> dict[int, tuple[str, str]]:
    """aisp's findings by row, in a random order that is always the same, of as many as the time allows; the decks in
    turns. known: rows to leave out.
    """
    begin, findings = time.monotonic(), dict[int, tuple[str, str]]()
    decks: dict[str, list[int]] = {}
    for number in random.Random(7).sample(range(len(rows)), len(rows)):
        if rows[number].measure is not None and number not in known:
            decks.setdefault(rows[number].deck, []).append(number)
    while any(decks.values()):
        for numbers in decks.values():
            if time.monotonic() - begin > seconds:
                return findings
            if numbers:
                number = numbers.pop()
                measure = rows[number].measure
                assert measure is not None
                findings[number] = measure()
                print(rows[number].deck, rows[number].name, *findings[number], flush=True)
    return findings


if __name__ == "__main__":
    main()
