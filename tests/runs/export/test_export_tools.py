"""Exports as a user meets them: the command line, the files they leave, and what they refuse."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from export_runs import comparison, run_of, write_log

from aisp_mcp.errors import AispError, Unavailable
from aisp_mcp.front.cli import arguments, commands
from aisp_mcp.judge.audit_log import ChainLog
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.runs.export import pdf, tables
from aisp_mcp.server import registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute
from aisp_mcp.settings import Settings
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.run import Run


@pytest.fixture
def stored(home: Path) -> Run:
    """A run in the store with its raw log."""
    with Store(home) as store:
        path, head = write_log(store.run_dir("r_test"))
        row = comparison("ch01:a", 2.0, Verdict.FASTER, log_path=path, log_sha256=head)
        run = run_of(row)
        store.save_run(run, None)
    return run


def answer(done: object) -> dict[str, object]:
    return json.loads(done.stdout)  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("tool", ["report", "export"])
@pytest.mark.parametrize("kind", ["markdown", "other"])
def test_a_file_in_the_runs_folder_with_its_hash(cli_here: Any, home: Path, stored: Run, tool: str, kind: str) -> None:
    kind = kind if kind == "markdown" else {"report": "html", "export": "json"}[tool]
    done = cli_here("bench", tool, "r_test", "--format", kind, "--json")
    assert done.returncode == 0, done.stderr
    written = answer(done)["result"]["files"][0]  # type: ignore[index]
    data = Path(written["path"]).read_bytes()
    assert Path(written["path"]).parent == home / "runs" / "r_test"
    assert (written["bytes"], written["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(("kind", "begins"), [("csv", "run_id,"), ("html", "<!doctype html>")])
def test_one_file_of_one_kind(cli_here: Any, home: Path, stored: Run, kind: str, begins: str) -> None:
    done = cli_here("export", kind, "r_test", "--json")
    assert done.returncode == 0, done.stderr
    [written] = answer(done)["result"]["files"]  # type: ignore[index]
    text = Path(written["path"]).read_text("utf-8")
    assert text.lower().startswith(begins)
    assert "ch01:a" in text
    same = {"csv": ("export", "csv"), "html": ("report", "html")}[kind]
    again = answer(cli_here("bench", same[0], "r_test", "--format", same[1], "--json"))
    assert again["result"]["files"] == [written]  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "args", "file"),
    [
        ("aisp_benchmark_report", {}, "report.html"),
        ("aisp_benchmark_report", {"format": "markdown"}, "report.md"),
        ("aisp_export_csv", {}, "results.csv"),
        ("aisp_export_html", {}, "report.html"),
    ],
)
def test_other_names_imply_a_format(ctx: Context, stored: Run, name: str, args: dict[str, str], file: str) -> None:
    answer = execute(name, {"run_id": "r_test", **args}, ctx)
    assert answer.tool == "aisp_benchmark_export"
    assert Path(answer.model_dump()["result"]["files"][0]["path"]).name == file
    words = commands.command_line(name, {"run_id": "r_test", **args}).split()
    tool, rest = commands.find(words[1:])
    assert arguments.parse(tool, rest)[0] == {"run_id": "r_test", "format": file.partition(".")[2], **args}
    tool, rest = commands.find([name, "r_test"])
    assert arguments.parse(tool, rest)[0] == {"run_id": "r_test", **registry.implied(name)}


def test_a_pdf_is_real_or_says_what_is_missing(cli_here: Any, stored: Run) -> None:
    found = answer(cli_here("export", "pdf", "r_test", "--json"))
    if has_browser():
        assert Path(found["result"]["files"][0]["path"]).read_bytes().startswith(b"%PDF-")  # type: ignore[index]
    else:
        assert found["error"]["code"] == "NOT_INSTALLED"  # type: ignore[index]


def test_samples_lie_beside_the_results(cli_here: Any, stored: Run) -> None:
    done = cli_here("bench", "export", "r_test", "--samples", "--json")
    results, calls = (Path(item["path"]) for item in answer(done)["result"]["files"])  # type: ignore[index]
    assert calls.name == "results.samples.csv"
    assert results.parent == calls.parent
    rows = list(csv.DictReader(calls.read_text().splitlines()))
    assert [(row["side"], row["duration_ns"]) for row in rows[:3]] == [
        ("baseline", "0"), ("baseline", "1"), ("baseline_again", "1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["report", "r_none"], "UNKNOWN_RUN"),
        (["export", "../../etc"], "UNKNOWN_RUN"),
        (["export", "r_test", "--format", "markdown", "--samples"], "NO_SAMPLES_IN_FORMAT"),
    ],
)
def test_refusals(cli_here: Any, stored: Run, args: list[str], code: str) -> None:
    done = cli_here("bench", *args, "--json")
    assert done.returncode in (1, 2)
    assert answer(done)["error"]["code"] == code  # type: ignore[index]


def test_the_store_itself_cannot_be_overwritten(cli_here: Any, home: Path, stored: Run) -> None:
    done = cli_here("bench", "export", "r_test", "--to", str(home / "aisp.db"), "--json")
    assert answer(done)["error"]["code"] == "OUTSIDE_ROOTS"  # type: ignore[index]


def test_a_file_that_is_typed_may_be_written(cli_here: Any, tmp_path: Path, stored: Run) -> None:
    assert cli_here("bench", "export", "r_test", "--to", str(tmp_path / "x.csv")).returncode == 0
    assert (tmp_path / "x.csv").read_text().startswith("run_id,")


def test_an_opened_folder_may_be_written_but_not_left(
    tmp_path: Path, stored: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tmp_path / "opened"
    opened.mkdir()
    (opened / "way_out").symlink_to(tmp_path)
    monkeypatch.setenv("AISP_ALLOW_WRITE", str(opened))
    ctx = Context(settings=Settings.from_env())
    written = execute("aisp_benchmark_export", {"run_id": "r_test", "to": str(opened / "x.csv")}, ctx)
    assert written.error is None
    assert (opened / "x.csv").read_text().startswith("run_id,")
    left = execute("aisp_benchmark_export", {"run_id": "r_test", "to": str(opened / "way_out" / "x.csv")}, ctx)
    assert left.error is not None
    assert left.error.code == "OUTSIDE_ROOTS"
    assert not (tmp_path / "x.csv").exists()


def test_a_changed_log_gives_no_samples(home: Path, stored: Run) -> None:
    folder = home / "runs" / "r_test"
    log = folder / "pair.rounds.jsonl"
    assert len(tables.read_samples(stored, folder)) == 6
    lines = log.read_text().splitlines()
    for forged in (lines[:-1], [*lines[:-1], lines[-1].replace('"elapsed_s":0.1', '"elapsed_s":0.2')], lines[1:]):
        log.write_text("\n".join(forged) + "\n")
        with pytest.raises(AispError) as caught:
            tables.read_samples(stored, folder)
        assert caught.value.code == "LOG_CHANGED"
    log.unlink()
    with pytest.raises(Unavailable) as gone:
        tables.read_samples(stored, folder)
    assert gone.value.code == "NO_SAMPLES"


@pytest.mark.parametrize("coding", [lambda role: role.value, lambda role: role.number], ids=["now", "formerly"])
def test_samples_name_the_side_of_each_role(coding: Callable[[Role], object], tmp_path: Path) -> None:
    log = ChainLog(tmp_path / "pair.rounds.jsonl")
    for turn, role in enumerate(Role):
        log.append("round", replicate=0, turn=turn, side=coding(role), elapsed_s=0.1, durations_ns=[1])
    log.close()
    run = run_of(comparison("ch01:a", 2.0, Verdict.FASTER, log_path=str(log.path), log_sha256=log.head))
    sides = [sample.side for sample in tables.read_samples(run, tmp_path)]
    assert sides == ["baseline", "baseline_again", "optimized"]


def has_browser() -> bool:
    try:
        return bool(pdf.find_browser())
    except Unavailable:
        return False


def test_a_pdf_without_a_browser_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable) as caught:
        pdf.to_pdf(b"<html></html>")
    assert caught.value.code == "NOT_INSTALLED"
    assert "chromium" in caught.value.message


def test_a_browser_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "chromium"
    fake.write_text("#!/bin/sh\necho broken display >&2\nexit 7\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(AispError, match="broken display"):
        pdf.to_pdf(b"<html></html>")
