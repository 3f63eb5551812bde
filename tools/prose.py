"""Rules for words: openings of docstrings, private words of the harness, subjects of commits (tools/prose.py).

    rule      limit  measured in
    opening   0      docstrings that open with What, Whether, Who, Whose, Where, Which or How, per folder
    word      0      words that the harness once used for a standard term, in its code but for attacks
    subject   72     characters of the first line of a commit made since STARTED

A docstring names its subject with a noun or a verb phrase. Exceptions stand in tools/prose_waivers.txt, one per line:
rule, folder, count. The list may only shrink: a count must be exactly what is measured.

`python tools/prose.py --message FILE` checks one commit message, as a hook for commit-msg does.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WAIVERS = "tools/prose_waivers.txt"
FOLDERS = ("aisp_mcp", "examples", "tests", "tools", "validation")
OPENING = re.compile(r"(What|Whether|Who|Whose|Where|Which|How)\b")
PRIVATE = {  # pattern: the term to use in its place
    r"\b[Ss]him\b": "worker",
    r"\b[Rr]eferee": "harness",
    r"\btriples?\b": "replicate",
    r"\bstand-ins?\b": "dummy call",
    r"\b[Ll]ap\b": "RoundTiming or timing",
    r"\bBoard\b": "ControlBlock",
    r"\b_?Pieces?\b": "DeviceAllocation",
    r"\bPlaces\b": "PlacementFactory",
    r"\bReached\b": "MappedMemory",
    r"\bTurn\b": "RoundInputs",
    r"\bDRY\b|\b[Dd]ry rounds?\b": "DUMMY, dummy round",
    r"\bSINGLY\b|\bsingly\b": "ISOLATED, isolated",
    r"\bTrial\b": "Driver or ReplicateRun",
    r"\bAGAIN\b": "Role.BASELINE_REPEAT",
    r"\bTold\b": "IsolatedCallEvidence",
    r"\bLEAST_": "MIN_",
    r"\bMOST_": "MAX_",
    r"\b(paid|singly|handed|asked|rulers|bank|judging|reached|together|proven|shim)\.py\b": "the module's name",
}
HARNESS, SOURCES_OF_ATTACKS = "aisp_mcp/judge/", "aisp_mcp/judge/attacks/"
SUBJECT_CHARS = 72
STARTED = "2026-11-23T12:00:00+00:00"

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def openings(source: str) -> Iterator[tuple[int, str]]:
    """(line, first words) of each docstring that opens with a question word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and OPENING.match(text := ast.get_docstring(node) or ""):
            line = 1 if isinstance(node, ast.Module) else node.lineno
            yield line, " ".join(text.split()[:6])


def private_words(source: str) -> Iterator[tuple[int, str]]:
    """(line, word and its replacement) of each private word."""
    for pattern, term in PRIVATE.items():
        for found in re.finditer(pattern, source):
            yield source.count("\n", 0, found.start()) + 1, f"{found.group()}: say {term}"


def subject_problem(subject: str) -> str | None:
    """The reason why a commit's first line breaks the rule, if it does."""
    if len(subject) > SUBJECT_CHARS and not subject.startswith(("Merge ", "Revert ")):
        return f"subject has {len(subject)} characters, the limit is {SUBJECT_CHARS}: {subject}"
    return None


def measure(root: Path) -> Iterator[tuple[str, str, str]]:
    """(rule, folder, message) of each finding in the files of a tree."""
    for file in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        name, source = file.relative_to(root), file.read_text(encoding="utf-8")
        folder = "/".join(name.parts[:2]) if len(name.parts) > 2 else name.parts[0]
        for line, words in openings(source):
            yield "opening", folder, f"{name}:{line}: opens with a question word: {words}"
        if name.as_posix().startswith(HARNESS) and not name.as_posix().startswith(SOURCES_OF_ATTACKS):
            for line, word in private_words(source):
                yield "word", folder, f"{name}:{line}: {word}"


def parse_waivers(text: str) -> dict[tuple[str, str], int]:
    """Waived counts by (rule, folder)."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {(rule, folder): int(count) for rule, folder, count in rows}


def judge(findings: list[tuple[str, str, str]], waived: dict[tuple[str, str], int]) -> Iterator[str]:
    """Findings beyond what is waived, and waivers that no longer fit."""
    counts = Counter((rule, folder) for rule, folder, _ in findings)
    for rule, folder, message in findings:
        if counts[rule, folder] > waived.get((rule, folder), 0):
            yield message
    for (rule, folder), count in waived.items():
        if counts[rule, folder] < count:
            yield f"{WAIVERS}: `{rule} {folder}` shrank to {counts[rule, folder]}: lower its {count}"


def commits(root: Path) -> list[str]:
    """Subjects of the commits since STARTED; none in an archive."""
    command = ["git", "-C", str(root), "log", "--format=%s", f"--since={STARTED}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def main() -> int:
    """Print what breaks a rule; 1 if anything does."""
    parser = argparse.ArgumentParser(description="Check the repository's prose.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to measure")
    parser.add_argument("--message", type=Path, help="check only this file, a commit message")
    options = parser.parse_args()
    if options.message:
        problems = [subject_problem(options.message.read_text(encoding="utf-8").partition("\n")[0])]
    else:
        root = options.root.resolve()
        file = root / WAIVERS
        waived = parse_waivers(file.read_text(encoding="utf-8")) if file.exists() else {}
        problems = [*judge(list(measure(root)), waived), *map(subject_problem, commits(root))]
    found = [problem for problem in problems if problem]
    for problem in found:
        print(problem)
    print(f"prose: {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
