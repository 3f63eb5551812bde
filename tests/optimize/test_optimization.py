"""An optimisation from the command line: a clean workspace, walls around earlier solutions, a budget, a bundle."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from waiting import PATIENCE_S, until

from aisp_mcp.optimize.workspace import as_read, fingerprint
from aisp_mcp.process import isolation
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute

SPEC = '''"""Row sums by columns."""
from aisp_mcp.bench import Benchmark, Work


class RowSum(Benchmark):
    rows, cols = 4096, 256

    def inputs(self, rng):
        return {"a": rng.randn(self.rows, self.cols)}

    def work(self):
        return Work(flops=self.rows * self.cols, bytes=4 * self.rows * self.cols)

    def run(self, a):
        total = a[:, 0].clone()
        for column in range(1, a.shape[1]):
            total += a[:, column]
        return total
'''
SOLUTION = '"""A secret of ours."""\n\n\ndef run(a):\n    return a.sum(dim=1)  # the planted one\n'
SPY = """
import os

def reached(name):
    try:
        return os.listdir(name) if os.path.isdir(name) else open(name).read(1)
    except OSError:
        return None

FOUND = [os.path.basename(name) for name in PLACES if reached(name)]

def run(a):
    raise RuntimeError("reached " + (" and ".join(FOUND) or "nothing"))
"""


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's working folder with a suite, with an earlier solution in it, and notes with another one."""
    folder = tmp_path / "project"
    chapter = folder / "benchmarks" / "ch01"
    chapter.mkdir(parents=True)
    (folder / "notes").mkdir()
    (chapter / "baseline_rows.py").write_text(SPEC)
    (chapter / "optimized_rows.py").write_text(SOLUTION)
    (folder / "notes" / "old.py").write_text(SOLUTION)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("AISP_ISOLATION", "L1")  # no processes load libraries for submissions to come
    return folder


@pytest.fixture
def walled_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with the isolation that this machine has."""
    monkeypatch.delenv("AISP_ISOLATION")
    return project


def read_known(ctx: Context, session: str) -> dict[str, str]:
    """Names of known solutions by fingerprint, as a session's log has them."""
    log = ctx.settings.home / "optimizations" / session / "log.jsonl"
    return dict(json.loads(log.read_text().splitlines()[0])["known"])


def serving(warm: Path) -> list[psutil.Process]:
    """The two processes that load libraries for a session. One that executes itself anew is not seen meanwhile."""

    def seen() -> list[psutil.Process]:
        return [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(warm)]

    return until(lambda: found if len(found := seen()) >= 2 else [])


def call(cli_here: Any, *words: str, **options: Any) -> tuple[int, dict[str, Any]]:
    done = cli_here(*words, "--json", **options)
    return done.returncode, json.loads(done.stdout)


def test_the_workspace_holds_the_specification_and_its_rules_alone(cli_here: Any, project: Path, home: Path) -> None:
    code, answer = call(cli_here, "optimize", "start", "ch01:rows", "--candidates", "5")
    begun = answer["result"]
    workspace = Path(begun["workspace"])
    assert code == 0
    assert sorted(path.name for path in workspace.rglob("*")) == ["README.md", "baseline_rows.py"]
    assert not any(path.is_symlink() for path in workspace.rglob("*"))
    assert workspace.stat().st_mode & 0o777 == 0o700
    assert not workspace.is_relative_to(home)
    assert not workspace.is_relative_to(project)
    assert (workspace / "baseline_rows.py").read_text() == SPEC
    page = (workspace / "README.md").read_text()
    assert f"aisp optimize submit candidate.py --session {begun['session']}" in page
    assert "def run(a):" in page
    told = page + json.dumps(answer)
    assert "planted" not in told
    assert "optimized_rows" not in told
    assert str(project) not in told  # nor where it is
    board = call(cli_here, "optimize", "board")[1]["result"]
    assert (board["rows"], board["candidates_left"], board["stop"]) == ([], 5, None)


def test_the_rules_of_an_engine_name_its_own_entry(cli_here: Any, project: Path, home: Path) -> None:
    suite = Path(__file__).parents[2] / "labs"
    _, answer = call(cli_here, "optimize", "start", "labs/serving:engine", "--bench-root", str(suite))
    page = (Path(answer["result"]["workspace"]) / "README.md").read_text()
    assert "def serve(requests, emit, **weights):" in page


COMMON = "def halved(a):\n    return a / 2\n"


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_a_specification_takes_along_what_it_shares(
    cli_here: Any, project: Path, home: Path, least_quick: None
) -> None:
    chapter = project / "benchmarks" / "ch01"
    (chapter / "_common.py").write_text(COMMON)
    spec = SPEC.replace("from aisp_mcp", "from _common import halved\nfrom aisp_mcp").replace(
        "return total", "return halved(total)"
    )
    spec = spec.replace("rows, cols = 4096, 256", "rows, cols = 256, 16")
    (chapter / "baseline_rows.py").write_text(spec)
    _, answer = call(cli_here, "optimize", "start", "ch01:rows", "--preset", "quick")
    assert (Path(answer["result"]["workspace"]) / "_common.py").read_text() == COMMON
    candidate = "from _common import halved\n\n\ndef run(a):\n    return halved(a.sum(dim=1))\n"
    code, answer = call(cli_here, "optimize", "submit", candidate, timeout=170)
    assert answer["result"]["row"]["verdict"] in ("faster", "inconclusive", "same", "slower"), answer
    assert code in (0, 3, 4)


def test_what_cannot_be_begun_or_found_is_said(project: Path, ctx: Context, tmp_path: Path) -> None:
    def code_of(tool: str, **args: Any) -> str | None:
        error = execute(tool, args, ctx).error
        return error and error.code

    assert code_of("aisp_optimize_start", target="ch01:nothing") == "UNKNOWN_TARGET"
    assert code_of("aisp_optimize_start", target="ch01:rows", workspace=str(tmp_path / "x")) == "OUTSIDE_ROOTS"
    ctx.allow_write = (tmp_path,)
    assert code_of("aisp_optimize_start", target="ch01:rows", workspace=str(project)) == "NOT_EMPTY"
    for name in ("o_000000000000", "../../etc", "o_"):
        assert code_of("aisp_optimize_board", session=name) == "UNKNOWN_OPTIMIZATION"
    session = execute("aisp_optimize_start", {"target": "ch01:rows"}, ctx).result["session"]
    assert code_of("aisp_optimize_submit", session=session, candidate="nowhere.py") == "NO_CANDIDATE"
    assert code_of("aisp_optimize_submit", session=session, candidate="/* kernel */\nint run;\n") == "NOT_PYTHON"
    assert code_of("aisp_bench_bundle", run=session) == "NOT_FINISHED"
    other = ctx.under("somebody")
    assert execute("aisp_optimize_board", {"session": session}, other).error.code == "UNKNOWN_OPTIMIZATION"
    log = ctx.settings.home / "optimizations" / session / "log.jsonl"
    log.write_text(log.read_text().replace('"candidates":20', '"candidates":99') + '{"kind":"x","prev":"0"}\n')
    assert code_of("aisp_optimize_board", session=session) == "LOG_BROKEN"


@pytest.mark.skipif(isolation.probe().level not in isolation.NAMESPACES, reason="no namespaces here")
def test_libraries_stay_loaded_until_the_session_ends(walled_project: Path, ctx: Context, home: Path) -> None:
    session = execute("aisp_optimize_start", {"target": "ch01:rows"}, ctx).result["session"]
    (warm,) = home.rglob("warm")
    processes = serving(warm)
    execute("aisp_optimize_finish", {"session": session}, ctx)
    assert not warm.exists()
    assert psutil.wait_procs(processes, timeout=PATIENCE_S)[1] == []


def test_nothing_submitted_is_nothing_confirmed(project: Path, ctx: Context) -> None:
    begun = execute("aisp_optimize_start", {"target": "ch01:rows"}, ctx).result
    (Path(begun["workspace"]) / "draft.py").write_text("# kept\n")
    ended = execute("aisp_optimize_finish", {"session": begun["session"]}, ctx).result
    assert (ended["passed"], ended["board"]["best"], ended["board"]["stop"]) == (False, None, "finished")
    assert not Path(begun["workspace"]).exists()
    assert list((ctx.settings.home / "optimizations").rglob("draft.py"))
    report = execute("aisp_verify_bundle", {"path": ended["bundle"]["path"]}, ctx).result
    assert (report["kind"], report["claims"], report["chains"]) == ("optimization", [], 1)
    refusal = execute("aisp_optimize_submit", {"session": begun["session"], "candidate": "x\n"}, ctx).error
    assert refusal.code == "OPTIMIZATION_OVER"


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(isolation.probe().level not in isolation.NAMESPACES, reason="no namespaces here")
def test_an_earlier_solution_is_reached_outside_and_not_from_a_candidate(
    cli: Any, walled_project: Path, home: Path
) -> None:
    earlier = call(cli, "optimize", "start", "ch01:rows", "--preset", "quick")[1]["result"]
    code, answer = call(cli, "optimize", "submit", "notes/old.py", timeout=200)
    assert (code, answer["result"]["row"]["copied_from"]) == (0, "optimized_rows.py")
    (files,) = home.rglob("001.py")
    sockets = [path for folder in home.rglob("warm") for path in folder.iterdir()]
    assert len(sockets) >= 2
    assert [path for path in sockets if path.suffix == ".opening"]  # a verifier for the next submission
    planted = [
        walled_project / "benchmarks/ch01/optimized_rows.py",
        walled_project / "notes/old.py",
        files,
        Path(earlier["workspace"]),
        sockets[0].parent,
    ]
    spy = walled_project.parent / "spy.py"
    spy.write_text(f"PLACES = {[str(path) for path in planted]}\n{SPY}")
    words = ("--candidate", str(spy), "--preset", "quick")
    _, outside = call(cli, "bench", "verify", "ch01:rows", *words, timeout=200)
    assert "reached optimized_rows.py and old.py" in json.dumps(outside)
    call(cli, "optimize", "start", "ch01:rows", "--preset", "quick")
    _, inside = call(cli, "optimize", "submit", str(spy), timeout=200)
    row = inside["result"]["row"]
    (evidence,) = (home / "runs" / row["run_id"]).glob("*.rounds.jsonl")
    assert row["verdict"] == "incorrect"
    assert "RuntimeError: reached nothing" in evidence.read_text()


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_identical_candidates_are_never_best_and_the_end_travels(cli: Any, walled_project: Path) -> None:
    same = SPEC.partition("    def run(self, a):\n")[2]
    begun = call(cli, "optimize", "start", "ch01:rows", "--candidates", "3", "--patience", "3")[1]["result"]
    for number in range(2):
        path = Path(begun["workspace"]) / f"same_{number}.py"
        path.write_text(
            f"def run(a):\n    assert a.shape[1] > {number}\n" + re.sub(r"^    ", "", same, flags=re.MULTILINE)
        )
        _, answer = call(cli, "optimize", "submit", str(path), timeout=250)
        assert answer["result"]["row"]["state"] in ("judged", "provisional")
    again = call(cli, "optimize", "submit", str(path))[1]
    assert again["error"]["code"] == "DUPLICATE_CANDIDATE"
    path.write_text(SOLUTION)
    _, answer = call(cli, "optimize", "submit", str(path), timeout=250)
    assert (answer["result"]["stop"], answer["result"]["row"]["copied_from"]) == ("candidates", "optimized_rows.py")
    code, ended = call(cli, "optimize", "finish", begun["session"], timeout=400)
    best = ended["result"]["board"]["best"]
    assert (code, best) in ((0, 3), (3, None))  # on a machine that is too restless, nothing is confirmed
    bundle = ended["result"]["bundle"]
    code, report = call(cli, "verify-bundle", bundle["path"], "--key", bundle["fingerprint"])
    assert (code, [claim["confirmed"] for claim in report["result"]["claims"]]) == (0, [True] if best else [])
    altered = bytearray(Path(bundle["path"]).read_bytes())
    altered[len(altered) // 2] ^= 1
    Path("altered").write_bytes(altered)
    assert call(cli, "verify-bundle", "altered")[1]["error"]["code"] == "BUNDLE_ALTERED"
    assert os.path.exists(bundle["path"])


@pytest.mark.anyio
async def test_an_agent_begins_and_looks_over_mcp(project: Path, connect: Any) -> None:
    async with connect(over="stdio") as client:
        begun = (
            await client.call_tool("aisp_optimize_start", {"target": "ch01:rows", "candidates": 2})
        ).structured_content
        board = (await client.call_tool("aisp_optimize_board", {})).structured_content
        refused = (
            await client.call_tool("aisp_optimize_submit", {"candidate": "x", "session": "o_0"})
        ).structured_content
    assert board["result"]["session"] == begun["result"]["session"]
    assert board["result"]["candidates_left"] == 2
    assert refused["error"]["code"] == "UNKNOWN_OPTIMIZATION"


def test_comments_and_import_aliases_make_no_new_code() -> None:
    plain = "import torch\ndef run(a):\n    return torch.add(a, a)\n"
    for same in (
        "import torch as t\n# faster\ndef run(a):\n    return t.add(a, a)\n",
        "from torch import add as plus\ndef run(a):\n    return plus(a, a)\n",
    ):
        assert fingerprint(same) == fingerprint(plain)
    assert fingerprint(plain.replace("torch.add", "torch.sub")) != fingerprint(plain)


def test_a_known_solution_in_another_encoding_is_a_copy(project: Path, ctx: Context) -> None:
    session = execute("aisp_optimize_start", {"target": "ch01:rows"}, ctx).result["session"]
    lines = ("", *SOLUTION.partition("\n\n\n")[2].splitlines(), "")
    known = read_known(ctx, session)
    assert fingerprint(as_read(("# coding: utf-7\n# " + "+AAo-".join(lines)).encode())) in known
    assert fingerprint(as_read(SOLUTION.encode())) in known
    assert fingerprint(as_read(b"# coding: nonsense\ndef run(a):\n    return a\n")) not in known


def test_processes_that_wait_for_submissions_outlive_the_server_that_started_them(
    connect: Callable[..., Any], home: Path
) -> None:
    if isolation.probe().level not in isolation.NAMESPACES:
        pytest.skip("none wait below L2")

    async def start() -> str:
        async with connect(over="stdio") as client:
            answer = await client.call_tool("aisp_optimize_start", {"target": "ch07:row_sum"})
            assert not answer.is_error, answer.content
            return str(answer.structured_content["result"]["workspace"])

    shutil.rmtree(anyio.run(start))
    [warm] = (home / "optimizations").glob("*/warm")
    processes = serving(warm)
    shutil.rmtree(warm.parent)
    assert psutil.wait_procs(processes, timeout=PATIENCE_S)[1] == []
