"""The same call gives the same envelope over MCP and on the command line, errors included."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from front_support import Cli, Connect

pytestmark = pytest.mark.anyio

CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("aisp_demo_echo", {"count": 2}, ["demo", "echo", "2"]),
    ("aisp_demo_echo", {"count": 2, "names": ["a", "b"], "loud": True, "ratio": 0.5, "colour": "blue"},
     ["demo", "echo", "--count", "2", "--names", "a,b", "--loud", "--ratio", "0.5", "--colour", "blue"]),
    ("aisp_demo_echo", {"count": 2, "either": ["x"]}, ["demo", "echo", "2", "--either", "x"]),
    ("aisp_demo_repeat", {"count": 2}, ["aisp_demo_repeat", "2"]),
    ("aisp_demo_numbers", {}, ["demo", "numbers"]),
    ("aisp_demo_big", {"items": 200, "text": 500}, ["demo", "big", "--items", "200", "--text", "500"]),
    ("aisp_demo_big", {"items": 0}, ["demo", "big", "--items", "0"]),
    ("aisp_demo_judge", {"passed": False}, ["demo", "judge", "--no-passed"]),
    ("aisp_demo_refuse", {}, ["demo", "refuse"]),
    ("aisp_demo_boom", {}, ["demo", "boom"]),
    ("aisp_demo_echo", {}, ["demo", "echo"]),
    ("aisp_demo_echo", {"count": "x"}, ["demo", "echo", "x"]),
    ("aisp_demo_echo", {"count": 99}, ["demo", "echo", "99"]),
    ("aisp_demo_echo", {"cuont": 1}, ["demo", "echo", "--cuont", "1"]),
    ("aisp_demo_echo", {"count": 1, "mode": "loud"}, ["demo", "echo", "1", "--mode", "loud"]),
    ("aisp_demo_count", {"steps": 4, "dry_run": True}, ["demo", "count", "4", "--dry-run"]),
    ("aisp_demo_count", {"steps": 13}, ["demo", "count", "13"]),
    ("aisp_suggest_tools", {"query": "judge a demo"}, ["suggest", "tools", "judge a demo"]),
    ("aisp_suggest_tools", {"query": "zzzz"}, ["suggest", "tools", "zzzz"]),
    ("aisp_analyze_pareto", {}, ["bench", "pareto"]),
    ("aisp_analyze_scaling", {"n": [1.0, 2.0, 4.0], "throughput": [10.0, 19.0, 34.0]},
     ["bench", "scaling", "--n", "1", "2", "4", "--throughput", "10", "19", "34"]),
    ("aisp_analyze_memory_patterns", {"stride": 32}, ["profile", "memory-patterns", "--stride", "32"]),
    ("aisp_predict_scaling", {"params_b": 8.0, "layers": 32, "hidden": 4096, "gpus": 8, "gpu": "B200", "batch": 64},
     ["predict", "scaling", "--params-b", "8", "--layers", "32", "--hidden", "4096", "--gpus", "8", "--gpu", "B200",
      "--batch", "64"]),
]  # fmt: skip


# Exit codes of the commands above, where it is not 0: an error of the tool, a usage error, a judgement that is no.
EXIT = {
    **dict.fromkeys(("demo refuse", "demo boom", "demo count 13", "bench pareto"), 1),
    **dict.fromkeys(("demo echo", "demo echo x", "demo echo 99", "demo echo --cuont 1", "demo echo 1 --mode loud"), 2),
    "demo judge --no-passed": 3,
}


def comparable(envelope: dict[str, Any]) -> dict[str, Any]:
    """Without what must differ: when, how long, and numbers that are given out once."""
    text = json.dumps({name: part for name, part in envelope.items() if name != "meta"})
    text = re.sub(r"incident [0-9a-f]{8}", "incident N", text)
    data: dict[str, Any] = json.loads(re.sub(r"\bj_[\w-]{22}", "JOB", text))
    return data


@pytest.mark.parametrize(("tool", "arguments", "argv"), CASES, ids=[" ".join(case[2]) for case in CASES])
async def test_mcp_and_cli_give_the_same_envelope(
    connect: Connect, cli: Cli, tool: str, arguments: dict[str, Any], argv: list[str]
) -> None:
    async with connect() as client:
        over_mcp = (await client.call_tool(tool, arguments)).structured_content
    done = cli(*argv, "--json")
    on_cli = json.loads(done.stdout)
    assert comparable(on_cli) == comparable(over_mcp)
    assert done.returncode == EXIT.get(" ".join(argv), 0)
    assert set(on_cli["meta"]) == set(over_mcp["meta"])
