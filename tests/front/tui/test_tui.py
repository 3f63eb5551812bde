"""The terminal view as a person meets it: what is on the screen at two sizes, and what keys do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textual", reason="needs the tui extra")

from rich.console import Console
from screens import screen, source, until
from textual.pilot import Pilot
from textual.widgets import Input
from waiting import PATIENCE_S

from aisp_mcp.front.tui.app import Tui
from aisp_mcp.front.tui.source import ListSource
from aisp_mcp.front.tui.widgets import ChoosePreset, Confirm, Help
from aisp_mcp.store.records.job import JobState
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import RunKind

SNAPSHOTS = Path(__file__).parent / "snapshots"
SIZES = ((80, 24), (120, 40))


@pytest.fixture
def seen(home: Path, tmp_path: Path, demo_tools: None, monkeypatch: pytest.MonkeyPatch) -> ListSource:
    monkeypatch.chdir(tmp_path)  # so that paths on the screen are short and the same everywhere
    return source(home, Path("suites"))


def same_as(name: str, app: Tui) -> None:
    """Compare with the snapshot, but for the machine line; a missing one is written, to be looked at."""
    text = screen(app).partition("\n")[2]
    path = SNAPSHOTS / f"{name}.txt"
    if not path.exists():
        path.write_text(text, "utf-8")
        pytest.fail(f"{path} was missing and has been written")
    assert text == path.read_text("utf-8")


def still(seen: ListSource) -> Tui:
    """The view without animations: the line below the tabs would be on its way, and drawn again for each step."""
    app = Tui(lambda: seen)
    app.animation_level = "none"
    return app


async def ready(pilot: Pilot[Any], app: Tui) -> None:
    """Jobs, targets and verdicts have been read."""
    await until(pilot, lambda: app._tree.targets and app._jobs.selected)
    await until(pilot, lambda: "GPU" in screen(app).splitlines()[0])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.anyio
async def test_the_screen_at_two_sizes(seen: ListSource, size: tuple[int, int]) -> None:
    app = still(seen)
    async with app.run_test(size=size) as pilot:
        await ready(pilot, app)
        for tab, key, words in (
            ("jobs", "1", "job id"),
            ("targets", "2", "Sum of [bold]rows[/]."),
            ("verdicts", "3", "isolation"),
        ):
            await pilot.press(key, *(["down", "down"] if tab == "targets" else []))
            await until(pilot, lambda words=words: words in details(app))  # type: ignore[misc]
            app.screen.set_focus(None)
            await pilot.pause()
            same_as(f"{tab}-{size[0]}x{size[1]}", app)
            assert max(map(len, screen(app).splitlines())) <= size[0]


@pytest.mark.anyio
async def test_a_hostile_name_is_text(seen: ListSource) -> None:
    app = still(seen)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot, app)
        await until(pilot, lambda: "failed: [red]because␛[31m" in screen(app))
        await pilot.press("3")
        await until(pilot, lambda: "ch07:<b>[red]␛[31m<U+" in screen(app))
        assert "\x1b" not in screen(app)
        assert "\u202e" not in screen(app)


@pytest.mark.anyio
async def test_a_run_is_started_from_the_tree_and_ended_from_the_list(
    seen: ListSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(_: ListSource, name: str, preset: str) -> str:
        requests.append((name, preset))
        os.mkfifo(gate)
        job = seen._ctx.jobs.submit("aisp_demo_count", {"steps": 1, "gate": str(gate)}, timeout_s=50)
        return job.id

    gate = seen._ctx.settings.home / "gate"  # nobody opens its other end
    requests: list[tuple[str, str]] = []
    monkeypatch.setattr(ListSource, "start", begun)  # a run takes torch and minutes; submitting is the same
    app = still(seen)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, app)
        await pilot.press("2", "down", "down", "down")
        await until(pilot, lambda: app._tree.selected == "ch07:row_sum")
        await pilot.press("f5")
        await until(pilot, lambda: isinstance(app.screen, ChoosePreset))
        await pilot.press("enter")
        rows = app._jobs
        await until(pilot, lambda: rows.active and "demo_count" in screen(app))
        assert requests == [("ch07:row_sum", "quick")]
        job_id = rows.selected
        assert job_id is not None
        await until(pilot, lambda: "running" in screen(app))
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("n")
        assert not seen._ctx.store.job(job_id).state.terminal
        await pilot.press("k")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: seen._ctx.store.job(job_id).state is JobState.CANCELLED)
        await until(pilot, lambda: not rows.active)
        await pilot.press("f9")
        assert not isinstance(app.screen, Confirm)


@pytest.mark.anyio
async def test_keys_typed_into_the_filter_do_nothing_else(seen: ListSource) -> None:
    app = still(seen)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await ready(pilot, app)
        await pilot.press("slash", *"row q r 3 k")
        assert isinstance(app.focused, Input)
        assert app.focused.value == "row q r 3 k"
        app.focused.value = "verdict:faster"
        await pilot.press("enter")
        await until(pilot, lambda: "inconclusive" not in screen(app) and "faster" in screen(app))
        await pilot.press("slash", *"colour:red", "enter")
        await until(pilot, lambda: "BAD_FILTER" in screen(app))
        await pilot.press("escape")
        await until(pilot, lambda: "inconclusive" in screen(app))
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, Help))
        await pilot.press("escape", "q")
    assert app.return_code == 0


def test_inconclusive_is_grey_and_no_ratio_stands_alone(seen: ListSource) -> None:
    rows = {row.cells[0].plain: row.cells for row in seen.verdicts("")}
    assert str(rows["inconclusive"][0].style) == "bright_black"
    assert "green" in str(rows["faster"][0].style)
    assert rows["faster"][2].plain == "2.5x (2.25–2.75)"
    assert rows["invalid"][2].plain == ""


def test_a_hint_is_hollow_and_hides_no_verdict(seen: ListSource) -> None:
    """A quick run after a default one, and a gate: the tree keeps the confirmed verdict of the target."""
    store = seen._ctx.store
    (name,) = [run_id for run_id in store.run_ids() if run_id.endswith("2")]
    confirmed = store.run(Run, name)
    hint = confirmed.comparisons[0].model_copy(update={"replicates": 1, "ratio": 9.0})
    store.save_run(confirmed.model_copy(update={"id": "r_q", "preset": "quick", "comparisons": [hint]}), None)
    commits = {"environment": {"commits": {"base": "b" * 40, "head": "c" * 40}}, "kind": RunKind.GATE}
    store.save_run(confirmed.model_copy(update={"id": "r_g", **commits}), None)
    gate, quick = (row.cells for row in seen.verdicts("row_sum_tiled")[:2])
    assert gate[1].plain == "gate bbbbbbbbbb..cccccccccc: ch07:row_sum_tiled"
    assert quick[0].plain == "○ faster"
    assert seen.latest()["ch07:row_sum_tiled"].plain.startswith("faster 2.5x")


def test_the_plain_menu_answers_line_by_line(cli: Any, seen: ListSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_BENCH_ROOT", str(seen._ctx.settings.bench_roots[0]))
    done = cli(
        "bench", "tui", "--simple", stdin=None, input="j\nt\nd 1\nv verdict:faster\nd 1\nd 7\nr nothing quick\nz\n"
    )
    assert done.returncode == 0, done.stderr
    for words in (
        "GPU",
        "run_benchmarks",
        "Plain.",
        "2.5x (2.25–2.75)",
        "faster: as measured",
        "BAD_NUMBER",
        "UNKNOWN_",
    ):
        assert words in done.stdout, words
    assert "\x1b" not in done.stdout


def test_without_textual_or_terminal_the_command_says_what_to_do(cli: Any, tmp_path: Path) -> None:
    done = cli("bench", "tui")
    assert (done.returncode, "NO_TERMINAL" in done.stderr) == (2, True)
    run = "from aisp_mcp.front.cli.main import main; sys.exit(main(sys.argv[1:]))"
    hide = f"import sys; sys.modules['textual'] = None; {run}"
    argv = [sys.executable, "-c", hide, "bench", "tui"]
    gone = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=50)
    assert gone.returncode == 1
    assert "aisp-mcp[tui]" in gone.stderr


def test_the_first_frame_needs_no_models_and_no_tools_and_the_view_neither_mcp_nor_torch(home: Path) -> None:
    """The modules imported once the screen is shown, in a separate process, before anything uses the source; and with
    the source.
    """
    code = (
        "import sys, anyio\n"
        "from aisp_mcp.front.cli.main import main\n"
        "from aisp_mcp.front.tui.app import Tui\n"
        "def frame(app):\n"
        "    app._start_polling = lambda: print(*sys.modules)\n"
        "    async def shown():\n"
        "        async with app.run_test(size=(80, 24)) as pilot:\n"
        "            await pilot.pause()\n"
        "            assert app.screen.size.width == 80\n"
        "    anyio.run(shown)\n"
        "Tui.run = frame\n"
        "import aisp_mcp.front.tui.command as command\n"
        "command._require_screen = lambda: None\n"
        "code = main(['bench', 'tui'])\n"
        "import aisp_mcp.front.tui.source\n"
        "print(*sys.modules)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    frame, view = (set(line.split()) for line in done.stdout.splitlines())
    assert "textual.app" in frame
    assert "aisp_mcp.front.tui.source" in view
    heavy = {"mcp", "torch", "numpy", "starlette", "jinja2", "uvicorn"}
    assert not heavy & view
    assert not {"pydantic", "sqlite3", "aisp_mcp.server.dispatch"} & frame


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_it_draws_and_leaves_in_a_real_terminal(seen: ListSource, tmp_path: Path) -> None:
    wire = ["tmux", "-S", str(tmp_path / "tmux")]
    command = f"{sys.executable} -m aisp_mcp.front.cli.main bench tui; echo left with $?; exec cat"
    subprocess.run([*wire, "new-session", "-d", "-x", "80", "-y", "24", command], check=True, timeout=PATIENCE_S)

    def shown() -> str:
        return subprocess.run([*wire, "capture-pane", "-p"], capture_output=True, text=True, timeout=PATIENCE_S).stdout

    try:
        for words, key in (("run_benchmarks", "3"), ("2.5x", "q"), ("left with 0", "")):
            while words not in shown():
                pass
            subprocess.run([*wire, "send-keys", key], check=True, timeout=PATIENCE_S)
        assert "run_benchmarks" not in shown()
    finally:
        subprocess.run([*wire, "kill-server"], check=False, timeout=PATIENCE_S)


def details(app: Tui) -> str:
    """The lower half, whole."""
    console = Console(width=100, no_color=True)
    with console.capture() as captured:
        console.print(app._detail.content)
    return captured.get()
