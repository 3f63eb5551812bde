"""aisp_hf against a hub on loopback: search, trending, confirmation, resuming, and a listing that tries to escape."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import forks
import pytest
from stub_servers import COMMIT, FILES, Served, hub, serving

TOTAL = sum(map(len, FILES.values()))


def ask(home: Path, served: Served, *words: str, **env: str) -> dict[str, Any]:
    """The command line's JSON, in a process of its own: the library reads the endpoint when it is imported."""
    environment = os.environ | {"HF_ENDPOINT": served.url, "HF_HOME": str(home / "hf"), "HF_HUB_DISABLE_XET": "1"} | env
    environment |= {"AISP_EXECUTOR": "inprocess"}
    argv = [sys.executable, "-m", "aisp_mcp.front.cli.main", "hf", *words, "--wait-s", "45", "--json"]
    done = forks.run(argv, env=environment, capture_output=True, text=True, timeout=50)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_search_and_trending(home: Path) -> None:
    with serving(hub) as served:
        (model,) = ask(home, served, "search", "--query", "tiny", HF_TOKEN="hf_stub")["result"]["models"]
        (trending,) = ask(home, served, "trending")["result"]["models"]
    assert (model["id"], model["downloads"]) == ("org/tiny", 12)
    assert trending["trending_score"] == 7
    paths = [path for _, path, _, _ in served.seen]
    assert any("search=tiny" in path for path in paths)
    assert any("trendingScore" in path for path in paths)
    assert any(headers.get("authorization") == "Bearer hf_stub" for *_, headers, _ in served.seen)


def test_a_download_states_its_size_first_and_resumes(home: Path) -> None:
    with serving(hub) as served:
        refused = ask(home, served, "download", "--query", "org/tiny")
        assert refused["error"]["code"] == "CONFIRM_FIRST"
        assert "103 kB" in refused["error"]["message"] or "102 kB" in refused["error"]["message"]
        folder = home / "models" / "org--tiny"
        assert not any((folder / name).exists() for name in FILES)
        done = ask(home, served, "download", "--query", "org/tiny", "--max-mb", "1")["result"]
        assert (done["files"], done["bytes"], done["bytes_fetched"], done["revision"]) == (2, TOTAL, TOTAL, COMMIT)
        assert {name: (folder / name).read_bytes() for name in FILES} == FILES
        again = ask(home, served, "download", "--query", "org/tiny", "--max-mb", "1")["result"]
        assert again["bytes_fetched"] == 0
        (folder / "weights.bin").unlink()
        rest = ask(home, served, "download", "--query", "org/tiny", "--max-mb", "1")["result"]
        assert rest["bytes_fetched"] == len(FILES["weights.bin"])


def test_names_that_leave_the_folder_are_refused(home: Path) -> None:
    evil = {"../../evil.txt": b"x"}
    with serving(lambda request, body: hub(request, body, evil)) as served:
        listed = ask(home, served, "download", "--query", "org/tiny", "--max-mb", "1")
        named = ask(home, served, "download", "--query", "../../etc", "--max-mb", "1")
    assert listed["status"] == "error"
    assert not list(home.rglob("evil.txt"))
    assert not (home.parent / "evil.txt").exists()
    assert named["error"]["code"] == "BAD_REPOSITORY"


def test_what_the_hub_lacks_and_a_hub_that_is_not_there(home: Path) -> None:
    with serving(hub) as served:
        assert ask(home, served, "download", "--query", "org/none")["error"]["code"] == "NO_SUCH_REPOSITORY"
        typed = ask(home, served, "download", "--query", "org/tiny", "--dir", str(home.parent))
        assert typed["error"]["code"] == "CONFIRM_FIRST"  # whoever types a folder may write to it
    gone = ask(home, dataclasses.replace(served), "search", "--query", "x")
    assert gone["error"]["code"] == "HUB_UNREACHABLE"


@pytest.mark.parametrize("words", [("search",), ("download",)])
def test_a_query_is_needed(home: Path, words: tuple[str, ...]) -> None:
    with serving(hub) as served:
        assert ask(home, served, *words)["error"]["code"] == "NO_QUERY"
