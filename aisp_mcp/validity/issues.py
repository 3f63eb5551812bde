"""The validity issues and their cases, read from issues/<category>/<slug>.md and the shared/*.md that they build on.

An issue is one Markdown file: front matter, a title, the list of paragraphs, and a section for every baseline, snippet,
attack and honest twin. README.md describes the format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

Kind = Literal["attack", "honest"]
Finding = Literal["stopped", "through", "passed", "flagged wrongly", "lost", "skipped"]
DEADLINE_S = 240.0


@dataclass(frozen=True)
class Undefended:
    """Gain of an issue's attacks in a harness without defences (tools/undefended.py).

    gain: the largest reported ratio in that harness on that device (cpu, H200, 2xH200). why: the reason if none gained.
    """

    gain: float | None = None
    harness: str = ""
    device: str = ""
    why: str = ""


@dataclass(frozen=True)
class Issue:
    """One of the validity issues.

    kind: B neutralised by construction, D hard signal, N numeric reference, R disclosed. hardware: C any CPU, G one
    GPU, M two or more. isolation: the lowest level at which the control holds. executed_on: devices on which one of its
    attacks was stopped. facts: for kind R, the dotted names of the facts that show it, in a run's environment or among
    a comparison's disclosed facts. reason: why there is no attack. control: by default the paragraph "What we do" of
    its page. file: its path in this folder.
    """

    id: int
    kind: Literal["B", "D", "N", "R"]
    hardware: Literal["C", "G", "M"] = "C"
    isolation: str = "L1"
    control: str = ""
    undefended: Undefended = Undefended()
    executed_on: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    reason: str = ""
    category: str = ""
    title: str = ""
    file: str = ""

    @property
    def attacked(self) -> bool:
        """True if it has attacks and honest twins, and a page that explains them."""
        return not self.reason


@dataclass(frozen=True)
class Case:
    """One candidate against one tiny benchmark, both as source text.

    truth: the true speed ratio, baseline time over candidate time, of work that fulfils the contract; 1.0 if the
    candidate only cheats. needs: "torch.compile"; "g++", a C++ compiler; "namespaces", isolation from level L2 on,
    without which the attack would harm the machine. issue: its number.
    """

    name: str
    kind: Kind
    baseline: str
    candidate: str
    truth: float = 1.0
    device: str = "cpu"
    needs: tuple[str, ...] = ()
    slow: bool = False
    suffix: str = ".py"
    issue: int = 0


@dataclass(frozen=True)
class Outcome:
    """Outcome of one run of a case. comparison: the verdict record as data, or None.

    error: the reason if there is no record. A run that the candidate managed to destroy is "lost", which is also a
    finding.
    """

    case: str
    comparison: dict[str, Any] | None = None
    error: str | None = None
    skipped: str | None = None
    seconds: float = 0.0


HERE = Path(__file__).parent
HEADS = ("What happens", "Why it misleads", "What we do", "Limits")
NO_ATTACK = "Why there is no attack"
CLASSES = {
    "B": "neutralised by construction",
    "D": "a hard signal",
    "N": "a numeric oracle",
    "R": "disclosed",
}
SUFFIXES = {"": ".py", "python": ".py", "cpp": ".cpp", "cuda": ".cu"}  # by the language of a code block

CHECKS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "true or false": lambda value: isinstance(value, bool),
    "list of texts": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    "mapping of texts": lambda value: isinstance(value, dict) and all(isinstance(item, str) for item in value.values()),
    "mapping": lambda value: isinstance(value, dict),
    "cpu or cuda": lambda value: value in ("cpu", "cuda"),
    "B, D, N or R": lambda value: value in CLASSES,
    "C, G or M": lambda value: value in ("C", "G", "M"),
}
FRONT_MATTER = {
    "id": "number",
    "class": "B, D, N or R",
    "hardware": "C, G or M",
    "isolation": "text",
    "control": "text",
    "undefended": "mapping",
    "executed_on": "list of texts",
    "facts": "list of texts",
}
CASE = {
    "baseline": "text",
    "before": "list of texts",
    "replace": "mapping of texts",
    "truth": "number",
    "device": "cpu or cuda",
    "needs": "list of texts",
    "slow": "true or false",
}
METADATA = {
    "baseline": {"variant_of": "text", "replace": "mapping of texts"},
    "snippet": {"before": "list of texts", "replace": "mapping of texts"},
    "attack": CASE,
    "honest": CASE,
}
FENCE = re.compile(r"(`{3,})\w*$")
LABELLED = re.compile(r"^- \*\*(.+?):\*\* (.+(?:\n  .+)*)", re.MULTILINE)
CODE = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1$", re.DOTALL | re.MULTILINE)


class MalformedIssue(ValueError):
    """A malformed file of the corpus. The message begins with its path and line."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        name = path.relative_to(HERE) if path.is_relative_to(HERE) else path
        super().__init__(f"{name}:{line}: {reason}")


@dataclass(frozen=True)
class Incident:
    """A public incident. issues: the numbers of the issues it shows; source: where it was reported."""

    year: int
    title: str
    what: str
    issues: tuple[int, ...]
    source: str


@dataclass(frozen=True)
class Section:
    """A heading `kind: name` at this line, the list of metadata that follows it, and its code block."""

    heading: str
    line: int
    metadata: dict[str, Any]
    code: str
    language: str


@dataclass(frozen=True)
class Document:
    """A parsed file. page: the paragraphs under its title, by label."""

    path: Path
    front_matter: dict[str, Any]
    title: str
    page: dict[str, str]
    sections: tuple[Section, ...]

    def error(self, section: Section, reason: str) -> MalformedIssue:
        """An error in this section."""
        return MalformedIssue(self.path, section.line, f"{section.heading}: {reason}")


@dataclass
class Sources:
    """The texts that cases refer to by name."""

    baselines: dict[str, str] = field(default_factory=dict)
    snippets: dict[str, str] = field(default_factory=dict)

    def add(self, document: Document, section: Section) -> None:
        """Remember a section `baseline: name` or `snippet: name`."""
        kind, name = _kind_and_name(document, section)
        texts = self.baselines if kind == "baseline" else self.snippets
        if name in texts:
            raise document.error(section, "the name is taken")
        texts[name] = self.text(document, section)

    def text(self, document: Document, section: Section) -> str:
        """The code of a section after the snippets it begins with, separated by blank lines, with
        replacements applied.
        """
        parts = [self._look_up(document, section, "snippet", name) for name in section.metadata.get("before", ())]
        if original := section.metadata.get("variant_of"):
            parts.append(self._look_up(document, section, "baseline", original))
        text = "\n".join([*parts, section.code] if section.code else parts)
        for old, new in section.metadata.get("replace", {}).items():
            if old not in text:
                raise document.error(section, f"replace: {old!r} does not occur")
            text = text.replace(old, new)
        if not text:
            raise document.error(section, "there is no code block")
        return text

    def baseline(self, document: Document, section: Section) -> str:
        """The baseline of a case."""
        if "baseline" not in section.metadata:
            raise document.error(section, "a case needs a line `- baseline: name`")
        return self._look_up(document, section, "baseline", section.metadata["baseline"])

    def _look_up(self, document: Document, section: Section, kind: str, name: str) -> str:
        texts = self.baselines if kind == "baseline" else self.snippets
        if name not in texts:
            raise document.error(section, f"no {kind} is named {name!r}; there are {', '.join(sorted(texts))}")
        return texts[name]


@dataclass(frozen=True)
class Entry:
    """An issue with the paragraphs of its page, by heading, and its cases."""

    issue: Issue
    page: dict[str, str]
    cases: tuple[Case, ...]


def issues() -> tuple[Issue, ...]:
    """All issues by number."""
    return tuple(sorted((entry.issue for entry in _entries()), key=lambda issue: issue.id))


def cases() -> Iterator[tuple[str, Case]]:
    """(category, case) of all attacks and honest twins."""
    for entry in _entries():
        for case in entry.cases:
            yield entry.issue.category, case


def page(issue: Issue) -> dict[str, str]:
    """The four paragraphs of an issue's page, by heading; empty without attacks."""
    return next(entry.page for entry in _entries() if entry.issue.id == issue.id)


def baseline(name: str) -> str:
    """The source text of a shared baseline. Raises KeyError."""
    return _shared().baselines[name]


def snippet(name: str) -> str:
    """The source text of a shared snippet. Raises KeyError."""
    return _shared().snippets[name]


@cache
def incidents() -> tuple[Incident, ...]:
    """All incidents, oldest first."""
    rows = _yaml(HERE / "incidents.yaml", 1, (HERE / "incidents.yaml").read_text("utf-8"))
    unsorted = [Incident(**{**row, "issues": tuple(row["issues"])}) for row in rows]
    return tuple(sorted(unsorted, key=lambda incident: (incident.year, incident.title)))


def attack_round() -> str:
    """The table of the last round of fresh attacks, in Markdown."""
    return (HERE / "attack_round.md").read_text("utf-8").rstrip()


@cache
def _entries() -> tuple[Entry, ...]:
    return tuple(read_issue(path) for path in sorted((HERE / "issues").glob("*/*.md")))


@cache
def _shared() -> Sources:
    sources = Sources()
    for path in sorted((HERE / "shared").glob("*.md")):
        document = parse(path)
        for section in document.sections:
            sources.add(document, section)
    return sources


def read_issue(path: Path) -> Entry:
    """The issue of one file. Its category is the folder. Raises MalformedIssue."""
    document = parse(path)
    _check(path, 1, document.front_matter, FRONT_MATTER)
    if missing := {"id", "class"} - document.front_matter.keys():
        raise MalformedIssue(path, 1, f"missing in the front matter: {', '.join(sorted(missing))}")
    labels = [label for label in document.page if label != "Attacks"]
    if labels not in ([NO_ATTACK], list(HEADS)):
        reason = f"below its title are the paragraphs {', '.join(HEADS)}; or, without attacks, {NO_ATTACK}"
        raise MalformedIssue(path, 1, reason)
    issue = _issue(document)
    cases = tuple(_cases(document, issue))
    if issue.attacked != bool(cases):
        raise MalformedIssue(path, 1, f"it has either cases or the paragraph {NO_ATTACK!r}")
    return Entry(issue, {head: document.page[head] for head in HEADS} if cases else {}, cases)


def _issue(document: Document) -> Issue:
    front, path = document.front_matter, document.path
    if unknown := front.get("undefended", {}).keys() - {"gain", "harness", "device", "why"}:
        raise MalformedIssue(path, 1, f"undefended: unknown key {', '.join(sorted(unknown))}")
    return Issue(
        id=front["id"],
        kind=front["class"],
        hardware=front.get("hardware", "C"),
        isolation=front.get("isolation", "L1"),
        control=front.get("control") or document.page.get("What we do", "").removesuffix("."),
        undefended=Undefended(**front.get("undefended", {})),
        executed_on=tuple(front.get("executed_on", ())),
        facts=tuple(front.get("facts", ())),
        reason=document.page.get(NO_ATTACK, ""),
        category=path.parent.name,
        title=document.title,
        file=f"issues/{path.parent.name}/{path.name}",
    )


def _cases(document: Document, issue: Issue) -> Iterator[Case]:
    shared = _shared()
    sources = Sources(dict(shared.baselines), dict(shared.snippets))
    for section in document.sections:
        kind, name = _kind_and_name(document, section)
        if kind in ("baseline", "snippet"):
            sources.add(document, section)
            continue
        metadata = section.metadata
        yield Case(
            name=name,
            kind="attack" if kind == "attack" else "honest",
            baseline=sources.baseline(document, section),
            candidate=sources.text(document, section),
            truth=float(metadata.get("truth", 1.0)),
            device=metadata.get("device", "cpu"),
            needs=tuple(metadata.get("needs", ())),
            slow=metadata.get("slow", False),
            suffix=SUFFIXES[section.language],
            issue=issue.id,
        )


def _kind_and_name(document: Document, section: Section) -> tuple[str, str]:
    kind, _, name = section.heading.partition(": ")
    if kind not in METADATA or not name.isidentifier():
        raise document.error(section, f"a section heading is {', '.join(f'`{key}: name`' for key in METADATA)}")
    _check(document.path, section.line, section.metadata, METADATA[kind])
    return kind, name


def _check(path: Path, line: int, values: dict[str, Any], expected: dict[str, str]) -> None:
    for key, value in values.items():
        if key not in expected:
            raise MalformedIssue(path, line, f"unknown key {key!r}; there are {', '.join(expected)}")
        if not CHECKS[expected[key]](value):
            raise MalformedIssue(path, line, f"{key} is {value!r}, which should be: {expected[key]}")


def parse(path: Path) -> Document:
    """The sections of a Markdown file. Raises MalformedIssue."""
    lines = path.read_text("utf-8").split("\n")
    starts = list(_headings(path, lines))
    front_matter = _yaml(path, 2, "\n".join(lines[1 : lines.index("---", 1)])) if lines[0] == "---" else {}
    if not isinstance(front_matter, dict):
        raise MalformedIssue(path, 2, "the front matter has lines of the form `key: value`")
    if not starts or not lines[starts[0]].startswith("# "):
        raise MalformedIssue(path, 1, "the first heading should be the title: `# Title`")
    ends = [*starts[1:], len(lines)]
    paragraphs = LABELLED.findall("\n".join(lines[starts[0] : ends[0]]))
    page = {label: " ".join(text.split()) for label, text in paragraphs}
    sections = tuple(_section(path, begin, lines[begin:end]) for begin, end in zip(starts[1:], ends[1:], strict=True))
    return Document(path, front_matter, lines[starts[0]][2:], page, sections)


def _headings(path: Path, lines: list[str]) -> Iterator[int]:
    """Indices of the lines that are headings, outside code blocks and front matter."""
    fence, opened = ("---", 0) if lines[0] == "---" else ("", 0)
    for index, line in enumerate(lines):
        if fence:
            fence = "" if line == fence and index > opened else fence
        elif match := FENCE.match(line):
            fence, opened = match[1], index
        elif line.startswith("#"):
            yield index
    if fence:
        raise MalformedIssue(path, opened + 1, f"{fence} is never closed")


def _section(path: Path, begin: int, lines: list[str]) -> Section:
    heading = lines[0].lstrip("#").strip()
    first = next((index for index, line in enumerate(lines) if index and line), len(lines))
    end = first
    while end < len(lines) and lines[end].startswith(("- ", "  ")):
        end += 1
    items = _yaml(path, begin + first + 1, "\n".join(lines[first:end])) or []
    if not all(isinstance(item, dict) for item in items):
        raise MalformedIssue(path, begin + first + 1, "the list after a heading has lines of the form `- key: value`")
    blocks = CODE.findall("\n".join(lines[end:]))
    if len(blocks) > 1:
        raise MalformedIssue(path, begin + 1, f"{heading}: there is more than one code block")
    (_, language, code) = blocks[0] if blocks else ("", "", "")
    if language not in SUFFIXES:
        raise MalformedIssue(path, begin + 1, f"{heading}: code is python, cpp or cuda, not {language}")
    metadata = {key: value for item in items for key, value in item.items()}
    return Section(heading, begin + 1, metadata, code, language)


def _yaml(path: Path, line: int, text: str) -> Any:
    """The value of a text that begins at this line of a file."""
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error)
        raise MalformedIssue(path, line + (mark.line if mark else 0), reason) from error
