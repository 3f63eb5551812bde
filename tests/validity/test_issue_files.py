"""Files of validity issues: what the loader reads from one, and the line it names when it cannot read one."""

from __future__ import annotations

from pathlib import Path

import pytest

from aisp_mcp.validity import issues
from aisp_mcp.validity.issues import Case, MalformedIssue, Undefended

PAGE = """---
id: 900
class: D
undefended: {gain: 2.5, harness: own word, device: cpu}
---

# Borrowed Answers

- **What happens:** An answer is borrowed from a very long
  list.
- **Why it misleads:** Nothing is computed.
- **What we do:** Inputs are secret.
- **Limits:** None known.
"""
CASES = """
## baseline: larger_copy

- variant_of: copy
- replace: {"1024, 1024": "2048, 2048"}

## snippet: borrow

```python
def borrow(x):
    return x
```

## attack: borrowed

- baseline: larger_copy
- before: [loop, borrow]
- truth: 1.25
- needs: [namespaces]
- slow: true

The comment below is not a heading.

```python
# ## attack: a_comment
def run(x):
    return borrow(x)
```

## honest: native_copy

- baseline: copy
- device: cuda

```cuda
extern "C" int copy();
```
"""
REASON = "\n- **Why there is no attack:** Nobody can tell.\n"


def issue_file(folder: Path, text: str) -> Path:
    path = folder / "output" / "borrowed_answers.md"
    path.parent.mkdir()
    path.write_text(text, "utf-8")
    return path


def test_an_issue_has_its_page_and_its_cases(tmp_path: Path) -> None:
    entry = issues.read_issue(issue_file(tmp_path, PAGE + CASES))
    issue = entry.issue
    assert (issue.id, issue.kind, issue.category, issue.title) == (900, "D", "output", "Borrowed Answers")
    assert (issue.control, issue.undefended) == ("Inputs are secret", Undefended(2.5, "own word", "cpu"))
    assert issue.attacked
    assert list(entry.page) == list(issues.HEADS)
    assert entry.page["What happens"] == "An answer is borrowed from a very long list."
    larger = issues.baseline("copy").replace("1024, 1024", "2048, 2048")
    candidate = (
        issues.snippet("loop")
        + "\ndef borrow(x):\n    return x\n"
        + "\n# ## attack: a_comment\ndef run(x):\n    return borrow(x)\n"
    )
    native = Case("native_copy", "honest", issues.baseline("copy"), 'extern "C" int copy();\n', device="cuda")
    assert entry.cases == (
        Case("borrowed", "attack", larger, candidate, 1.25, needs=("namespaces",), slow=True, issue=900),
        Case(**{**vars(native), "suffix": ".cu", "issue": 900}),
    )


def test_an_issue_without_cases_has_a_reason(tmp_path: Path) -> None:
    text = PAGE.partition("\n- **")[0] + REASON
    entry = issues.read_issue(issue_file(tmp_path, text))
    assert (entry.issue.reason, entry.page, entry.cases) == ("Nobody can tell.", {}, ())
    assert not entry.issue.attacked


def test_a_snippet_includes_the_one_it_begins_with() -> None:
    assert issues.snippet("worker").startswith(issues.snippet("loop"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("id: 900\n", "", "1: missing in the front matter: id"),
        ("class: D", "class: [D", "4: did not find expected ',' or ']'"),
        ("class: D", "class: X", "1: class is 'X', which should be: B, D, N or R"),
        ("class: D", "color: red", "1: unknown key 'color'"),
        ("gain: 2.5", "profit: 2.5", "1: undefended: unknown key profit"),
        ("---\n\n#", "\n#", "1: --- is never closed"),
        ("# Borrowed Answers\n", "", "1: the first heading should be the title"),
        ("**Limits:**", "**Limit:**", "1: below its title are the paragraphs What happens"),
        (CASES, "", "1: it has either cases or the paragraph 'Why there is no attack'"),
        ("attack: borrowed", "atack: borrowed", "27: atack: borrowed: a section heading is `baseline: name`"),
        ("attack: borrowed", "attack: two words", "27: attack: two words: a section heading is"),
        ("- baseline: larger_copy\n", "", "27: attack: borrowed: a case needs a line `- baseline: name`"),
        ("- baseline: larger_copy", "- baseline: coppy", "27: attack: borrowed: no baseline is named 'coppy'"),
        ("[loop, borrow]", "[lop]", "27: attack: borrowed: no snippet is named 'lop'"),
        ("[loop, borrow]", "loop", "27: before is 'loop', which should be: list of texts"),
        ("truth: 1.25", "truth: true", "27: truth is True, which should be: number"),
        ("- truth: 1.25", "- a truth", "29: the list after a heading has lines of the form `- key: value`"),
        ("- slow: true", "- hurry: true", "27: unknown key 'hurry'"),
        ('{"1024, 1024"', '{"512, 512"', "15: baseline: larger_copy: replace: '512, 512' does not occur"),
        ("baseline: larger_copy\n\n-", "baseline: copy\n\n-", "15: baseline: copy: the name is taken"),
        ("```cuda", "```rust", "43: honest: native_copy: code is python, cpp or cuda, not rust"),
        ('extern "C" int copy();\n```\n', "", "48: ``` is never closed"),
        ('```cuda\nextern "C" int copy();\n```\n', "", "43: honest: native_copy: there is no code block"),
        ("- device: cuda", "- device: cuda\n\n```\n```", "43: honest: native_copy: there is more than one code block"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = PAGE + CASES
    assert old in text
    path = issue_file(tmp_path, text.replace(old, new, 1))
    with pytest.raises(MalformedIssue) as raised:
        issues.read_issue(path)
    assert str(raised.value).startswith(f"{path}:{message}")
