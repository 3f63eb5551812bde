"""JUnit XML, as continuous integration servers read it: one test case per benchmark.

JUnit knows passed, failure, error and skipped. A benchmark without a verdict because of noise is skipped with its
reason, never passed. Elements and attributes are those that Jenkins, GitLab and GitHub readers agree on: `testsuites`,
`testsuite` (tests, failures, errors, skipped, time, timestamp), `properties`, `testcase` (classname, name, time) with
at most one of `failure`, `error`, `skipped`, then `system-out`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, SubElement, tostring

from aisp_mcp.runs.export.outcomes import Row, State, count
from aisp_mcp.server.text import numbers
from aisp_mcp.server.text.escape import visible

TAGS = {State.FAILED: "failure", State.BROKEN: "error", State.UNJUDGED: "skipped"}
MAX_MESSAGE = 1000


def to_junit(rows: Sequence[Row], name: str, at: float, seconds: float, about: Mapping[str, str]) -> bytes:
    """The file. name: the suite's; at: UTC seconds of its start; seconds: wall time; about: properties."""
    counts = {
        "tests": str(len(rows)),
        "failures": str(count(rows, State.FAILED)),
        "errors": str(count(rows, State.BROKEN)),
        "skipped": str(count(rows, State.UNJUDGED)),
        "time": f"{seconds:.3f}",
    }
    root = Element("testsuites", {"name": "aisp", **counts})
    moment = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    suite = SubElement(root, "testsuite", {"name": _line(name), **counts, "timestamp": moment})
    properties = SubElement(suite, "properties")
    for key, value in about.items():
        SubElement(properties, "property", {"name": _line(key), "value": _line(value)})
    for row in rows:
        _case(suite, row)
    document: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _case(suite: Element, row: Row) -> None:
    chapter, colon, name = _line(row.target).partition(":")
    names = {"classname": chapter, "name": name} if colon else {"classname": "aisp", "name": chapter}
    case = SubElement(suite, "testcase", {**names, "time": f"{row.seconds:.3f}"})
    sentence = _line(row.sentence)
    if row.state in TAGS:
        message = sentence if sentence.startswith(row.word) else f"{row.word}: {sentence}"
        message = f"provisional: {message}" if row.provisional else message
        attributes = {"message": message[:MAX_MESSAGE]}
        if row.state is not State.UNJUDGED:
            attributes["type"] = row.word
        SubElement(case, TAGS[row.state], attributes).text = sentence
    SubElement(case, "system-out").text = f"{sentence}\n{_figures(row)}"


def _figures(row: Row) -> str:
    """The ratio, never without its interval and noise floor."""
    if row.ratio is None or row.low is None or row.high is None:
        return "no ratio"
    floor = numbers.percent(row.noise_floor)
    bound = numbers.bound(row.ratio) if row.at_least else ""
    return f"ratio {bound}{row.ratio:.4g} (interval {row.low:.4g} to {row.high:.4g}), noise floor {floor}"


def _line(text: str) -> str:
    """One line without characters that XML forbids."""
    return visible(text).replace("\n", " ")
