"""Facts about torch.compile in a recorded script: breaks, frames given up, recompilation; what rules say of it."""

import pytest
from simulate import Sim, compute, step

from aisp_mcp.profile import load
from aisp_mcp.profile.insights.engine import insights
from aisp_mcp.profile.records import CompileProfile, OpCount
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import execute, load_catalog
from aisp_mcp.settings import Settings

SCRIPT = """
import sys, torch
def bridged(x):
    x = x * 2
    torch._dynamo.graph_break()
    return x + 1
def given_up(x):
    for _ in range(3):
        x = x * 2
        torch._dynamo.graph_break()
    return x
def shaped(x):
    return (x * 2).sum()
function = torch.compile(globals()[sys.argv[1]], backend="eager", dynamic=False)
for number in range(4):
    function(torch.ones(8 + (number if sys.argv[1] == "shaped" else 0)))
"""
MS = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "rule", "words"),
    [
        ("bridged", "graph_breaks", "graph_break"),
        ("given_up", "graph_breaks", "loop"),
        ("shaped", "recompiles", "size mismatch"),
    ],
)
def test_a_script_tells_what_was_compiled(function, rule, words, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "net.py"
    script.write_text(SCRIPT)
    settings = Settings(home=tmp_path / "home", bench_roots=(tmp_path,))
    load_catalog(settings)
    answer = execute(
        "aisp_profile_torch", {"script": str(script), "args": [function], "cost": "never"}, Context(settings=settings)
    )
    assert answer.error is None, answer.error
    result = answer.model_dump(mode="json")["result"]
    assert [i["rule"] for i in result["insights"]] == [rule]
    reasons = result["compile"]["graph_breaks"] + result["compile"]["recompile_reasons"]
    assert any(words in row["what"] for row in reasons), reasons


def _profile(folder, compiling_ns):
    """Eight steps, each beginning with compilation while the device has nothing to do."""
    sim = Sim()
    for number in range(8):
        step(sim, number, lambda: _compiles(sim, compiling_ns))
    sim.sync("cudaDeviceSynchronize")
    done = CompileProfile(frames=8, graphs=8, recompiles=7, recompile_reasons=[OpCount(what="size mismatch", count=7)])
    path = sim.kineto(folder / "trace.json.gz")
    return load.load(path, "steady").model_copy(update={"compile": done})


def _compiles(sim, ns):
    sim.drained()
    if ns:
        with sim.range("torch_compile: _dynamo.convert_frame"):
            sim.host(ns)
    compute(sim, 20)


def test_compiling_again_costs_what_the_device_waited(tmp_path):
    findings = insights(_profile(tmp_path, 6 * MS)).found
    assert findings[0].rule == "recompiles"
    assert findings[0].gain_ceiling == pytest.approx(0.6, abs=0.05)
    assert "compile_in_window" not in {i.rule for i in findings}


def test_compiling_again_before_the_window_costs_nothing(tmp_path):
    assert "recompiles" not in {i.rule for i in insights(_profile(tmp_path, 0)).found}
