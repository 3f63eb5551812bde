"""History by commit over a real git repository: order, steps, changed files, and programs that are not run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_support import START, Dashboard, comparison, keep_run

from aisp_mcp.runs.commits import measured_commit
from aisp_mcp.store.database import Store
from aisp_mcp.store.records.run import Run

RATIOS = (2.0, 2.02, 1.99, 2.01, 3.0, 3.02, 2.99)  # by commit: a step at the fifth
SPEC = '''"""Scale and shift."""
from aisp_mcp.bench import Benchmark


class Scale(Benchmark):
    n = 1 << 16

    def inputs(self, rng):
        return {"a": rng.randn(self.n)}

    def run(self, a):
        return a * 2 + 1
'''


def git(repo: Path, *words: str, at: float = START) -> str:
    options = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"]
    env = {**os.environ, "GIT_COMMITTER_DATE": f"{at:.0f} +0000", "GIT_AUTHOR_DATE": f"{at:.0f} +0000"}
    argv = ["git", "-C", str(repo), *options, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True, env=env).stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Seven commits a minute apart that change a candidate."""
    chapter = tmp_path / "project" / "benchmarks" / "ch01"
    chapter.mkdir(parents=True)
    (chapter / "baseline_scale.py").write_text(SPEC)
    git(tmp_path / "project", "init", "-q")
    for number in range(len(RATIOS)):
        (chapter / "optimized_scale.py").write_text(f'"""Version {number}."""\n\n\ndef run(a):\n    return 1 + 2 * a\n')
        git(chapter, "add", "-A")
        git(chapter, "commit", "-qm", f"version {number}", at=START + 60 * number)
    return tmp_path / "project"


def files(repo: Path) -> list[Path]:
    return sorted((repo / "benchmarks").rglob("*.py"))


@pytest.fixture
def shown(home: Path, repo: Path) -> Iterator[Dashboard]:
    """Every commit was measured, newest first; then one with changes, and files of no repository."""
    commits = git(repo, "rev-list", "--reverse", "HEAD").split()
    with Store(home) as store:
        for number in reversed(range(len(commits))):
            git(repo, "checkout", "-q", commits[number])
            row, at = comparison("ch01:scale", "", RATIOS[number]), START + 86_400 * (9 - number)
            keep_run(store, number, [row], at, commit=measured_commit(files(repo)))
        files(repo)[1].write_text("changed = True\n")
        row = comparison("ch01:scale", "", 2.5)
        keep_run(store, 90, [row], START + 864_000, commit=measured_commit(files(repo)))
        keep_run(store, 91, [row], START + 950_400)
    dashboard = Dashboard()
    yield dashboard
    dashboard.stop()


def test_runs_stand_in_the_order_of_their_commits(shown: Dashboard, repo: Path) -> None:
    commits = git(repo, "rev-list", "--reverse", "--all").split()
    with shown.client() as web:
        [series] = web.get("/api/history?target=ch01:scale&axis=commit").json()["series"]
        assert series["commits"] == commits
        points = series["points"]
        assert [point["place"] for point in points] == [0, 0, 1, 2, 3, 4, 5, 6]
        assert [point["revision"] for point in points] == [commits[int(point["place"])] for point in points]
        assert [point["modified"] for point in points] == [False, True] + [False] * 6
        assert series["left_out"] == 1
        [low, high] = series["levels"]
        assert points[high["first"]]["revision"] == commits[4]
        assert low["after"] == high["first"]
        assert high["ratio"] == 3.0
        [timed] = web.get("/api/history?target=ch01:scale").json()["series"]
        assert [point["created_at"] for point in timed["points"]] == sorted(p["created_at"] for p in timed["points"])
        assert timed["points"][0]["revision"] == commits[-1]
        page = web.get("/history?target=ch01:scale&axis=commit").text
        assert "commit, oldest first" in page
        assert f"3.00× from {commits[4][:10]} (3 runs)" in page
        assert f"{commits[0][:10]} with changes" in page
        assert "1 verdict of files without a known commit is not shown" in page
        for wrong in ("?axis=commit", "?target=ch01:scale&axis=branch"):
            assert web.get(f"/api/history{wrong}").status_code == 422, wrong


def test_a_commit_is_known_by_the_files_that_were_measured(repo: Path, tmp_path: Path) -> None:
    spec, candidate = files(repo)
    commit = measured_commit([spec, candidate])
    assert commit == {"id": git(repo, "rev-parse", "HEAD"), "at": START + 60 * (len(RATIOS) - 1), "modified": False}
    (repo / "notes.txt").write_text("not measured")
    assert measured_commit([spec, candidate]) == commit
    candidate.write_text("changed = True\n")
    assert measured_commit([spec, candidate]) == {**commit, "modified": True}
    new = candidate.with_name("optimized_scale_new.py")
    new.write_text("new = True\n")
    assert measured_commit([spec, new]) == {**commit, "modified": True}
    elsewhere = tmp_path / "baseline_other.py"
    elsewhere.write_text(SPEC)
    assert measured_commit([elsewhere]) is None
    assert measured_commit([spec, elsewhere]) is None
    assert measured_commit([]) is None


def test_nothing_that_a_repository_configures_is_run(repo: Path, tmp_path: Path) -> None:
    """Candidates come from repositories of others; git runs programs that a repository names."""
    witness = tmp_path / "ran"
    for name in ("core.fsmonitor", "core.pager", "filter.x.clean", "gpg.program", "core.sshCommand", "diff.external"):
        git(repo, "config", name, f"touch {witness}; false")
    git(repo, "config", "log.showSignature", "true")
    (repo / ".gitattributes").write_text("*.py filter=x diff=x\n")
    files(repo)[1].write_text("changed = True\n")
    commit = measured_commit(files(repo))
    assert commit
    assert commit["modified"] is True
    assert not witness.exists()
    subprocess.run(["git", "-C", str(repo), "status"], capture_output=True, check=False)
    assert witness.exists()  # the trap is a real one


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_keeps_the_commit_it_measured(cli: Any, home: Path, repo: Path) -> None:
    words = ("--targets", "ch01:scale", "--preset", "quick", "--bench-root", str(repo / "benchmarks"), "--json")
    done = cli("bench", "run", *words, timeout=280)
    run_id = json.loads(done.stdout)["result"]["run_id"]
    with Store(home) as store:
        assert store.run(Run, run_id, None).environment["commit"] == measured_commit(files(repo))
