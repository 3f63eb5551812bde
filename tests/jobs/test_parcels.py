"""What is sent to another machine: the folders that arguments name, and nothing that should stay."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import forks
import pytest

from aisp_mcp.envelope import Envelope
from aisp_mcp.jobs.executors import parcels
from aisp_mcp.process.python import module
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import load_catalog, start
from aisp_mcp.settings import Settings

HOST = "ssh://gpubox"


def planned(monkeypatch: pytest.MonkeyPatch, ctx: Context, **args: object) -> Envelope:
    monkeypatch.setenv("AISP_EXECUTOR", HOST)
    answer = start("aisp_verify_candidate", {"dry_run": True, "inputs": "x=randn(9)", **args}, ctx)
    assert isinstance(answer, Envelope)
    return answer


@pytest.fixture
def ctx(home: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.delenv("AISP_TOOL_MODULES")
    made = Context(settings=replace(Settings.from_env(), tool_modules=""))
    load_catalog(made.settings)
    return made


def written(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("def f(x):\n    return x\n")
    return folder


def test_the_folder_of_a_named_file_is_sent_without_what_is_hidden(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = written(tmp_path / "work", "slow.py", "lib/helper.py", ".ssh/id_ed25519", "venv/pyvenv.cfg", "venv/x.py")
    other = written(tmp_path / "other", "fast.py")
    monkeypatch.chdir(here)
    answer = planned(monkeypatch, ctx, target="slow.py:f", candidate="../other/fast.py:f")
    assert answer.error is None
    sent = {row["folder"]: row["files"] for row in answer.result["details"]["sent_once"]}
    assert (sent[str(here)], sent[str(other)]) == (2, 1)
    names = {str(here): "/there/a", str(other): "/there/b"}
    whole = parcels.whole({"target": "slow.py:f", "candidate": "../other/fast.py:f"}, str(here))
    assert parcels.renamed(whole, names) == {"target": "slow.py:f", "candidate": "/there/b/fast.py:f"}


@pytest.mark.parametrize("large", [True, False])
def test_a_home_folder_or_a_huge_one_is_not_sent(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    written(tmp_path, "slow.py", "fast.py")
    if large:
        with open(tmp_path / "data", "wb") as file:
            file.truncate(parcels.MAX_BYTES + 1)
    else:
        monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    answer = planned(monkeypatch, ctx, target="slow.py:f", candidate="fast.py:f")
    assert answer.error is not None
    assert answer.error.code == "NOT_SENT"


def test_what_another_machine_cannot_do_is_refused(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written(tmp_path / "work", "slow.py", "fast.py"))
    pair = {"target": "slow.py:f", "candidate": "fast.py:f"}
    guest = ctx.under("http:guest", {"AISP_EXECUTOR": HOST})
    monkeypatch.delenv("AISP_EXECUTOR", raising=False)
    stranger = start("aisp_verify_candidate", {"dry_run": True, "inputs": "x=randn(9)", **pair}, guest)
    assert isinstance(stranger, Envelope)
    assert stranger.error is not None
    assert stranger.error.code == "NOT_FOR_YOU"
    session = start("aisp_optimize_submit", {"candidate": "fast.py"}, ctx.under("local", {"AISP_EXECUTOR": HOST}))
    assert isinstance(session, Envelope)
    assert session.error is not None
    assert session.error.code == "BAD_PLACEMENT"


def test_of_a_repository_only_the_commits_that_are_compared_are_sent(tmp_path: Path) -> None:
    repo = tmp_path / "repo"

    def git(*words: str, folder: Path = repo) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True).stdout

    written(repo, "a.py")
    git("init", "--quiet")
    commits = []
    for number in range(3):
        (repo / "a.py").write_text(f"{number}\n")
        git("add", ".")
        git("commit", "--quiet", "-m", str(number))
        commits.append(git("rev-parse", "HEAD").strip())
    (repo / "new.py").write_text("new\n")
    copy = parcels.repository(repo, commits[1:], tmp_path / "copies")
    assert git("show", f"{commits[1]}:a.py", folder=copy) == "1\n"
    known = git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)", folder=copy).split()
    assert (commits[0] in known, commits[2] in known) == (False, True)
    assert git("ls-files", "--others", folder=copy).split() == ["a.py", "new.py"]


def test_a_name_that_is_an_option_is_no_host(home: Path) -> None:
    words = ("doctor", "--executor", "ssh://-oProxyCommand=touch", "--json")
    done = forks.run(module("aisp_mcp.front.cli.main", *words), capture_output=True, text=True, timeout=50)
    assert done.returncode == 2
    assert "BAD_EXECUTOR" in done.stderr
