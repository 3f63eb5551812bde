"""A folder that tlparse wrote, as its version 0.4.3 names things."""

import json

import pytest

from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, load_catalog
from aisp_mcp.settings import Settings

BREAK = "Graph break in user code at /src/net.py:5\nGraph Break Reason: Data-dependent branching\n  Explanation: …\n"
AGAIN = "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 16"


def _event(kind, at_s, number, **more):
    args = {"compile_id": number, **more}
    return {"ph": kind, "name": "dynamo", "pid": 0, "tid": 0, "ts": at_s * 1e6, "args": args}


@pytest.fixture
def ask(tmp_path):
    ctx = Context(settings=Settings(home=tmp_path / "home", bench_roots=(tmp_path,)))
    load_catalog(ctx.settings)

    def call(folder):
        return execute("aisp_profile_read", {"profile": str(folder)}, ctx).model_dump(mode="json", exclude_none=True)

    return call


@pytest.fixture
def folder(tmp_path):
    """Two compilations of one function; an artifact of 0/0 points out of the folder."""
    output = tmp_path / "output"
    texts = {"-_0_0_0/dynamo_graph_break_reason_1.txt": BREAK, "-_0_1_0/recompile_reasons_9.json": AGAIN}
    for url, text in texts.items():
        (output / url).parent.mkdir(parents=True)
        (output / url).write_text(text)
    (tmp_path / "recompile_reasons_2.json").write_text("secret")
    artifacts = {
        "[-/-]": [],
        "[0/0]": ["-_0_0_0/dynamo_graph_break_reason_1.txt", "../recompile_reasons_2.json"],
        "[0/1]": ["-_0_1_0/recompile_reasons_9.json"],
    }
    listed = {
        key: {"artifacts": [{"name": url.rpartition("/")[2], "url": url} for url in urls]}
        for key, urls in artifacts.items()
    }
    (output / "compile_directory.json").write_text(json.dumps(listed))
    code = {"co_name": "f", "co_filename": "/src/net.py", "co_firstlineno": 2}
    events = [_event("B", 10, "0/0"), _event("E", 13, "0/0", **code), _event("B", 20, "0/1"), _event("E", 21, "0/1")]
    (output / "chromium_events.json").write_text(json.dumps(events))
    return output


def test_compilations_recompilations_and_breaks_are_said(ask, folder):
    answer = ask(folder)["result"]
    assert [statement["text"] for statement in answer["opening"]] == [
        "torch.compile compiled 1 frame in 2 compilations, which took 4 s; the longest took 3 s: f (net.py:2).",
        "1 of them compiled a frame again; such as: tensor 'x' size mismatch at index 0. expected 8, actual 16.",
        "1 of them broke the graph; such as: Data-dependent branching at /src/net.py:5.",
    ]
    assert [row["seconds"] for row in answer["frames"]] == [3, 1]
    assert "secret" not in json.dumps(answer)


def test_a_damaged_folder_is_refused_and_a_missing_part_is_no_time(ask, folder):
    (folder / "chromium_events.json").unlink()
    assert "took" not in ask(folder)["result"]["opening"][0]["text"]
    (folder / "compile_directory.json").write_text("{")
    assert ask(folder)["error"]["code"] == "BAD_PROFILE"
