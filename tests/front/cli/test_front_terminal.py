"""Output for a person: on a terminal a progress bar that goes away, and tables that fit without breaking a word."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_support import Cli
from rich.console import Console

from aisp_mcp.front.cli import run
from aisp_mcp.front.cli.render import render
from aisp_mcp.server.context import Context

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ROW = {
    "target": "ch07:row_sum", "verdict": "faster", "sentence": "faster: 2.00x (95 % interval 1.90-2.10)", "ratio": 2.0,
    "interval": [1.9, 2.1], "noise_floor": 0.012, "time_s": [2e-3, 1e-3], "clock": "worker", "isolation": "L3",
    "flags": ["clock_resolution_low"],
}  # fmt: skip


class Terminal:
    """A terminal of 80 columns: the end a program writes to, and what came out of it."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.seen = ""

    def until(self, text: str) -> None:
        """Read on until the text was seen."""
        while text not in ESCAPES.sub("", self.seen):
            assert self._read(), f"ended before {text!r}: {self.seen}"

    def rest(self) -> None:
        """Read to the end."""
        while self._read():
            continue

    def _read(self) -> bool:
        try:
            more = os.read(self._master, 4096).decode()
        except OSError:  # nobody has the other end any more
            more = ""
        self.seen += more
        return bool(more)

    def close(self) -> None:
        os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def test_a_progress_bar_moves_with_the_job_and_goes_away(home: Path, tmp_path: Path, terminal: Terminal) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pipe = os.open(gate, os.O_RDWR)
    argv = [sys.executable, "-m", "aisp_mcp.front.cli.main", "demo", "count", "--steps", "4", "--gate", str(gate)]
    env = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=terminal.slave, text=True, env=env) as process:
        os.close(terminal.slave)
        os.write(pipe, b"x")
        terminal.until("25 %")
        terminal.until("step 1")
        os.write(pipe, b"x")
        terminal.until("50 %")
        os.write(pipe, b"xx")
        terminal.rest()
        output = process.communicate(timeout=50)[0]
    os.close(pipe)
    assert process.returncode == 0
    assert "\x1b[?25l" in terminal.seen  # the cursor is hidden while the bar is drawn
    assert "4" in output
    assert "\x1b" not in output  # standard output is not a terminal here
    assert "%" not in output


@pytest.mark.parametrize(("word", "cancelled"), [("n", True), ("", False)])
def test_an_interrupted_person_is_asked_once(
    ctx: Context, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], word: str, cancelled: bool
) -> None:
    asked, ended = list[str](), list[str]()
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or word)
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(type(ctx.jobs), "cancel", lambda _, job_id: ended.append(job_id))
    run._leave("j_1", ctx)
    said = capsys.readouterr().err
    assert len(asked) == 1
    assert (ended == ["j_1"], "aisp job cancel j_1" in said) == (cancelled, not cancelled)


def test_schemas_are_for_programs(cli: Cli) -> None:
    """A person who is told of a tool asks it with --help."""
    shown, whole = cli("suggest", "tools", "disk"), cli("suggest", "tools", "disk", "--json")
    assert "aisp hw disk" in shown.stdout
    assert "parameters" not in shown.stdout
    assert "additionalProperties" in whole.stdout


def test_an_answer_without_rows_says_so(cli: Cli) -> None:
    done = cli("job", "list")
    assert (done.returncode, done.stdout.strip()) == (0, "jobs: none")


def drawn(item: Any, width: int) -> list[str]:
    """The lines, at this width."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(render(item))
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_tables_fit_and_never_break_a_word(width: int) -> None:
    lines = drawn({"rulings": [ROW, ROW, ROW, {**ROW, "target": "ch07:row_sum_tiled_by_someone"}]}, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for word in ("ch07:row_sum_tiled_by_someone", "clock_resolution_low", "faster", "2.00×", "1.2", "isolation", "L3"):
        assert re.search(rf"(^|\s){re.escape(word)}(\s|$)", text, re.MULTILINE), word


@pytest.mark.parametrize("width", range(40, 130, 10))
def test_numbers_are_never_cut(width: int) -> None:
    row = {
        "device": 0, "span_ns": 3060797749, "exposed_communication": 0.4321, "idle_before_first_operation": 123456.7,
        "flop_per_s": 7.8e14, "time_s": [2.105e-3, 6.411e-4], "name": "a kernel of some length", "count": 123456789,
    }  # fmt: skip
    lines = drawn({"rows": [row, row]}, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for number in ("3.061 s", "43.2 %", "1.235e+05", "780 TFLOP/s", "2.105 ms", "641.1 µs", "123,456,789"):
        assert len(re.findall(rf"(^|\s){re.escape(number)}(?=[,\s]|$)", text, re.MULTILINE)) == 2, number


def test_a_few_verdicts_are_sentences_and_flags_are_words() -> None:
    slower = {**ROW, "target": "ch07:b", "verdict": "slower", "sentence": "slower: 0.5x"}
    answer = {
        "run_id": "j_1",
        "passed": False,
        "rulings": [ROW, slower],
        "flags": {"clock_resolution_low": "Too short."},
    }
    text = drawn({**answer, "next_cursor": "9", "note": ""}, 100)
    assert text[:2] == ["ch07:row_sum faster: 2.00x (95 % interval 1.90-2.10)", "ch07:b slower: 0.5x"]
    assert "  clock resolution low  Too short." in text
    assert text[-1] == "More: the same command with --cursor 9"
    assert not any(word in "\n".join(text) for word in ("isolation", "rulings", "note", "worker"))
    many = drawn({"rulings": [ROW, ROW, ROW, slower]}, 100)
    assert many[0] == "ch07:b slower: 0.5x", "a table has the numbers of the others"
    hint = {**ROW, "provisional": True, "verified": [90, 342]}
    many = drawn({"rulings": [hint, hint, hint, slower]}, 160)
    assert [line for line in many if "faster: 2.00x" in line] == [], "nor are they listed and in the table"
    assert "90 of 342" in "\n".join(many)


def test_metrics_have_units_and_what_explains_them_comes_last() -> None:
    metric = {"metric": "time_s", "baseline": 0.05641, "candidate": 0.0006888, "improvement": 81.9}
    lines = drawn({"more": 0, "definition": "Above 1 is better.", "metrics": [metric], "without": ["energy_j"]}, 120)
    text = "\n".join(lines)
    for words in ("56.41 ms", "688.8 µs", "81.90×"):
        assert words in text
    assert "time_s" not in text
    assert (lines[-1], "more" in text) == ("Above 1 is better.", False)
    assert drawn({"concept": "roofline", "definition": "Two ceilings.", "helps": "Fusion."}, 80)[0] == "Two ceilings."


def test_texts_name_commands_and_paths_into_a_document_are_left_out() -> None:
    opening = [{"text": "Run aisp_triage first.", "rows": ["operators[0].total_ns"]}]
    lines = drawn({"trace": "t.json", "opening": opening, "assumptions": ["One thing.", "Another."]}, 80)
    assert lines[0] == "Run aisp triage first."
    assert not any("operators[0]" in line for line in lines)
    assert any(line.endswith("One thing.") for line in lines)


def test_a_recording_opens_with_its_paragraph_and_says_what_it_cost_once() -> None:
    cost = {"ratio": 1.4, "recorded_s": [1.4], "plain_s": [1.0], "timed": "the command,", "sentence": "It cost 1.4x."}
    opening = [{"text": "It cost 1.4x.", "rows": ["cost.ratio"]}, {"text": "The GPU idled.", "rows": []}]
    lines = drawn({"database": "r.sqlite", "cost": cost, "summary": {"opening": opening, "section": "overview"}}, 80)
    assert lines[:2] == ["It cost 1.4x.", "The GPU idled."]
    text = "\n".join(lines)
    assert (text.count("It cost"), "the command," in text, "overview" in text) == (1, False, True)


def test_a_measured_rate_is_one_cell_in_its_unit() -> None:
    rate = {"median": 4.2e12, "low": 4.1e12, "high": 4.3e12, "level": 0.95, "rounds": 12}
    spec = {"value": 4.8e12, "share": 0.875, "source": "datasheet"}
    latency = {"name": "b", "unit": "s", "rate": {**rate, "median": 2e-6, "low": 1e-6, "high": 3e-6}, "spec": None}
    text = "\n".join(drawn({"results": [{"name": "a", "unit": "B/s", "rate": rate, "spec": spec}, latency]}, 120))
    assert "4.2 TB/s [4.1 TB/s, 4.3 TB/s]" in text
    assert "87.5 % of 4.8 TB/s, datasheet" in text
    assert "2 µs [1 µs, 3 µs]" in text
    assert "unit" not in text
    served = {"name": "ttft", "unit": "s", "value": 0.05559, "interval": [0.03656, 0.07461], "repeats": [0.05, 0.06]}
    text = "\n".join(drawn([served, served], 120))
    assert "55.59 ms  36.56 ms, 74.61 ms  50 ms, 60 ms" in text


def test_without_a_terminal_no_line_ends_in_blanks(cli: Cli) -> None:
    lines = cli("status").stdout.splitlines()
    assert lines
    assert [line for line in lines if line != line.rstrip()] == []


def test_the_sentence_stands_above_its_row() -> None:
    lines = drawn([ROW], 100)
    assert lines[0] == "ch07:row_sum faster: 2.00x (95 % interval 1.90-2.10)"
    assert "sentence" not in "\n".join(lines)


def test_rows_without_a_name_are_named_by_their_number_and_hashes_are_short() -> None:
    rows = [{"number": 3, "state": "judged", "sentence": "incorrect: wrong", "sha256": "5b5a23d8eaed" + "0" * 52}]
    lines = drawn(rows, 160)
    assert lines[0] == "3 incorrect: wrong"
    assert lines[-1].split() == ["sha256", "5b5a23d8eaed"]


def test_a_table_with_no_room_becomes_records() -> None:
    lines = drawn([{"identifier": "x" * 30, "note": "y"}], 26)
    assert lines[0].startswith("identifier  xxx")
    assert "".join(lines).count("x") == 30
    assert lines[-1] == "note        y"
