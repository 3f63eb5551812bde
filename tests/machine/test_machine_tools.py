"""The families Machine and Hardware probes on this machine: useful answers, useful refusals, no torch in the server."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aisp_mcp.machine import facts
from aisp_mcp.server import registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import load_catalog
from aisp_mcp.server.dispatch.calls import execute
from aisp_mcp.settings import Settings
from aisp_mcp.system.records import Finding

READERS = [
    "aisp_triage",
    "aisp_status",
    "aisp_gpu_topology",
    "aisp_system_software",
    "aisp_system_dependencies",
    "aisp_system_capabilities",
    "aisp_info_features",
    "aisp_system_full",
    "aisp_system_context",
    "aisp_context_summary",
    "aisp_context_full",
    "aisp_ai_status",
]
NEED_GPU = {
    "aisp_gpu_info": "NO_GPU",
    "aisp_gpu_power": "NO_GPU",
    "aisp_gpu_bandwidth": "NO_GPU",
    "aisp_gpu_topology_matrix": "NOT_INSTALLED",
    "aisp_hw_pcie": "NO_GPU",
    "aisp_hw_p2p": "NO_GPU",
}
JOBS = [
    "aisp_hw_speed",
    "aisp_hw_tc",
    "aisp_hw_roofline",
    "aisp_hw_cache",
    "aisp_hw_nccl",
    "aisp_hw_network",
    "aisp_hw_disk",
]


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    settings = dataclasses.replace(Settings.from_env({}), home=tmp_path / "home")
    load_catalog(settings)
    return Context(settings=settings)


def call(name: str, ctx: Context, **args: Any) -> dict[str, Any]:
    return execute(name, args, ctx).model_dump(mode="json")


@pytest.fixture(autouse=True)
def _without_gpu() -> None:
    from aisp_mcp.system.gpu.nvml import gpu_uuids

    if gpu_uuids():
        pytest.skip("these tests describe a machine without an NVIDIA GPU")


@pytest.mark.parametrize("name", READERS)
def test_readers_answer_without_a_gpu(name: str, ctx: Context) -> None:
    answer = call(name, ctx)
    assert answer["status"] == "ok", answer["error"]
    assert answer["result"]


@pytest.mark.parametrize(("name", "code"), NEED_GPU.items())
def test_a_refusal_says_what_was_looked_for_and_where_to_go(name: str, code: str, ctx: Context) -> None:
    error = call(name, ctx)["error"]
    assert error["code"] == code
    assert error["hint"]
    assert error["next_steps"]
    for step in error["next_steps"]:
        step_tool = registry.get(step["tool"])
        # the next call must be possible here: it answers, or is a job whose dry run does
        arguments = {**step["args"], "dry_run": True} if step_tool.job else step["args"]
        assert call(step_tool.name, ctx, **arguments)["status"] == "ok"


@pytest.mark.parametrize("name", JOBS)
def test_a_dry_run_plans_and_runs_nothing(name: str, ctx: Context) -> None:
    plan = call(name, ctx, dry_run=True)["result"]
    assert plan["argv"][1:] == ["-P", "-m", "aisp_mcp.server.worker", name]
    assert plan["resources"] == ["cpu"]
    assert plan["timeout_s"] > 0


@pytest.mark.parametrize("name", ["aisp_hw_pcie", "aisp_hw_p2p", "aisp_hw_ib", "aisp_gpu_bandwidth"])
def test_a_dry_run_refuses_as_the_run_would(name: str, ctx: Context) -> None:
    dry, wet = call(name, ctx, dry_run=True), call(name, ctx)
    assert dry["error"]["code"] == wet["error"]["code"]


def test_every_finding_of_triage_leads_somewhere(ctx: Context) -> None:
    for finding in call("aisp_triage", ctx)["result"]["findings"]:
        assert finding["severity"] in ("critical", "warning", "note")
        assert finding["message"]
        registry.get(finding["next"]["tool"])


@pytest.mark.parametrize(("number", "words"), [(0, "0 notes"), (1, "1 note"), (4, "4 notes")])
def test_the_summary_counts_findings_in_the_plural(ctx: Context, number: int, words: str) -> None:
    state = facts.look(ctx)
    notes = [Finding(severity="note", code="ANY", message="Good to know.")] * number
    assert facts.summary_line(state, notes).endswith(f"findings: 0 critical, 0 warnings, {words}.")


def test_unknown_cards_are_not_guessed(ctx: Context) -> None:
    answer = call("aisp_system_capabilities", ctx, gpu="H10")["result"]
    assert answer["gpus"][0]["facts"] is None
    assert "H100-SXM" in answer["notes"][0]
    known = call("aisp_system_capabilities", ctx, gpu="H100-SXM")["result"]["gpus"][0]
    assert known["facts"]["peak"]["bf16"]["dense"] == pytest.approx(known["facts"]["peak"]["bf16"]["sparse"] / 2)
    assert known["limits"]["threads_per_sm"] == 2048


def test_disks_outside_the_roots_are_refused(ctx: Context, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    assert call("aisp_hw_disk", ctx, dir=str(outside))["error"]["code"] == "OUTSIDE_ROOTS"
    opened = dataclasses.replace(ctx, allow_write=(outside,))
    answer = call("aisp_hw_disk", opened, dir=str(outside), size_mb=4, block_kb=256, engine="builtin")
    assert answer["status"] == "ok"
    assert list(outside.iterdir()) == []


def test_a_bundle_is_written_once_and_only_where_allowed(ctx: Context, tmp_path: Path) -> None:
    assert call("aisp_info_bundle", ctx, to=str(tmp_path / "x"))["error"]["code"] == "OUTSIDE_ROOTS"
    folder = str(ctx.settings.home / "bundle")
    assert set(call("aisp_info_bundle", ctx, to=folder)["result"]["files"]) >= {"README.md", "machine.json"}
    assert call("aisp_info_bundle", ctx, to=folder)["error"]["code"] == "ALREADY_EXISTS"


def test_network_needs_a_host_only_when_it_leaves(ctx: Context) -> None:
    assert call("aisp_hw_network", ctx, mode="host")["error"]["code"] == "MISSING_HOST"


def test_an_llm_that_is_not_there_is_not_reachable(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_LLM_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("AISP_LLM_KEY", "local-secret")
    answer = call("aisp_ai_status", ctx)
    assert answer["result"]["reachable"] is False
    assert answer["result"]["key_set"] is True
    assert "local-secret" not in str(answer)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_peaks_are_kept_and_graded_against(ctx: Context) -> None:
    first = call("aisp_bench_peak", ctx)["result"]
    assert first["kept"] == len(first["results"]) >= 6
    assert all(item["best"] is None for item in first["results"])
    graded = call("aisp_gpu_bandwidth", ctx, cpu=True, kinds=["copy"])["result"]
    (copy,) = graded["results"]
    assert copy["best"]["value"] == next(i["rate"]["median"] for i in first["results"] if i["name"] == "bandwidth copy")
    assert copy["best"]["share"] == pytest.approx(copy["rate"]["median"] / copy["best"]["value"], abs=1e-4)
    assert call("aisp_context_summary", ctx)["result"]["context"]["ceilings"]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_roofline_draws_and_places(ctx: Context, tmp_path: Path) -> None:
    inside = dataclasses.replace(ctx, run_dir=tmp_path)
    roofline = call("aisp_hw_roofline", inside, dtypes=["fp32"], timeout_s=220.0)["result"]
    assert Path(roofline["chart"]).read_text().startswith("<svg")
    ridge = roofline["ridge"]["fp32"]
    assert ridge == pytest.approx(
        roofline["ceilings"][0]["rate"]["median"] / roofline["bandwidth"]["rate"]["median"], rel=0.01
    )
    for point in roofline["points"]:
        assert (point["bound"] == "memory") == (point["intensity"] < ridge)


def test_neither_triage_nor_status_loads_a_tensor_library(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom aisp_mcp.server.context import Context\nfrom aisp_mcp.server.dispatch.calls import execute\n"
        "from aisp_mcp.server.dispatch.loading import load_catalog\nctx = Context(); load_catalog(ctx.settings)\n"
        "for name in ('aisp_status', 'aisp_triage'): assert execute(name, {}, ctx).status == 'ok'\n"
        "print(sorted({'torch', 'triton', 'numpy', 'mcp'} & set(sys.modules)))"
    )
    env = {**os.environ, "AISP_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_low_isolation_is_a_warning() -> None:
    from aisp_mcp.machine import facts
    from aisp_mcp.process.isolation import Isolation

    (finding,) = facts._isolation(Isolation("L1", ["limits"], ["user namespaces are off"]))
    assert finding.severity == "warning"
    assert finding.evidence == {"missing": ["user namespaces are off"]}
    assert list(facts._isolation(Isolation("L3", [], []))) == []


def test_the_cpu_hierarchy_is_measured_with_the_stated_caches_beside_it(ctx: Context) -> None:
    hierarchy = call("aisp_hw_cache", ctx, max_mb=1, timeout_s=30.0)["result"]
    sizes = [level["bytes"] for level in hierarchy["levels"]]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 1 << 20
    assert hierarchy["method"]
    assert all(level["latency_ns"]["rounds"] >= 1 for level in hierarchy["levels"])
    assert list(ctx.settings.home.glob("chase-*")) == []


# What torchrun starts, from one process that has imported torch.
RANKS = """
import os, socket, torch.distributed
from aisp_mcp.machine.probes.children import nccl
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
child = os.fork()
os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(int(child == 0))
code = nccl._rank_main()
if child:
    code |= os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
raise SystemExit(code)
"""


@pytest.mark.torch  # with torchrun: test_collectives_run_on_cpu_ranks in test_probes.py
def test_collectives_on_cpus_are_labelled_so(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    from aisp_mcp.machine.probes.children import nccl

    monkeypatch.setattr(nccl, "argv", lambda _: [sys.executable, "-P", "-c", RANKS])
    collectives = call("aisp_hw_nccl", ctx, min_bytes=1024, max_bytes=4096)["result"]
    assert (collectives["backend"], collectives["ranks"]) == ("gloo", 2)
    assert "nothing about a GPU fabric" in collectives["notes"][0]
    assert [row["bytes"] for row in collectives["rows"]] == [1024, 4096]
    assert call("aisp_hw_nccl", ctx, min_bytes=8192, max_bytes=4096)["error"]["code"] == "BAD_SIZES"


@pytest.mark.slow
@pytest.mark.torch
def test_the_score_card_says_cpu(ctx: Context) -> None:
    card = call("aisp_hw_speed", ctx, types=["launch"])["result"]
    assert card["device"].startswith("cpu: ")
    assert card["device_id"] == "cpu"
    assert card["kept"] == 0
    assert {item["unit"] for item in card["results"]} == {"s"}
