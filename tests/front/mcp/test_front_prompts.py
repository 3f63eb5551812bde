"""The prompts are workflows: every call they name is made here, in their order, with what the answers say filled in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from front_support import ERAS, Connect
from mcp import Client
from mcp.shared.exceptions import MCPError

from aisp_mcp.server import registry
from aisp_mcp.server.context import Context
from aisp_mcp.settings import Settings
from aisp_mcp.store.records.run import Run

pytestmark = pytest.mark.anyio

CANDIDATE = "def run(a):\n    return a.sum(dim=1)\n"
GIVEN: dict[str, dict[str, str]] = {
    "optimise_kernel": {"target": "ch07:row_sum"},
    "investigate_regression": {"run_id": "later", "against": "earlier", "suspect": "ch07:row_sum"},
    "plan_training_run": {"model": "7B, 32 layers", "gpus": "8"},
    "audit_speedup": {"target": "ch07:row_sum", "candidate": "CANDIDATE", "claim": "3x faster"},
}
# What a machine may lack; the hint and the next steps are then the way on.
LACKING = {"NO_GPU"}


async def steps(client: Client, name: str, arguments: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    [message] = (await client.get_prompt(name, arguments)).messages
    assert message.role == "user"
    matches = re.findall(r"^\d+\. (aisp_\w+) (\{.*\})$", message.content.text, re.MULTILINE)
    return [(tool, json.loads(args)) for tool, args in matches]


@pytest.mark.parametrize("era", ERAS)
async def test_each_prompt_says_what_it_takes(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert list(prompts) == list(GIVEN)
        for name, prompt in prompts.items():
            assert prompt.title
            assert prompt.description
            required = {argument.name for argument in prompt.arguments or [] if argument.required}
            assert required <= set(GIVEN[name]) <= {argument.name for argument in prompt.arguments or []}
            assert all(argument.description for argument in prompt.arguments or [])


@pytest.mark.parametrize("name", GIVEN)
async def test_a_prompt_names_tools_that_exist_and_fills_in_every_argument(connect: Connect, name: str) -> None:
    async with connect() as client:
        [message] = (await client.get_prompt(name, GIVEN[name])).messages
        text = message.content.text
        for tool in re.findall(r"aisp_[a-z_]+", text):
            registry.get(tool)
        assert "{" not in re.sub(r"^\d+\. aisp_\w+ \{.*\}$", "", text, flags=re.MULTILINE)
        for value in GIVEN[name].values():
            assert value in text
        assert len(text) < 4000


@pytest.mark.parametrize("name", GIVEN)
async def test_every_call_of_a_workflow_works(connect: Connect, name: str, tmp_path: Path) -> None:
    """Calls that would measure are only planned (dry_run), which checks arguments, target and machine as well."""
    given = {key: value.replace("CANDIDATE", candidate(tmp_path)) for key, value in GIVEN[name].items()}
    async with connect() as client:
        for run_id in ("earlier", "later"):
            run = Run(id=run_id, created_at=1.0, preset="quick", profile="strict", environment={})
            Context(settings=Settings.from_env()).store.save_run(run, None)
        job = (await client.call_tool("aisp_demo_count", {"wait_s": 0})).structured_content["job"]["job_id"]
        calls = await steps(client, name, given)
        assert len(calls) >= 5
        values = {"<job_id>": job, "<run_id>": "later", "<path of your file>": candidate(tmp_path)}
        for tool, args in calls:
            plan = {"dry_run": True} if registry.get(tool).job else {}
            answer = (await client.call_tool(tool, {**fill(args, values), **plan})).structured_content
            assert answer["status"] == "ok" or answer["error"]["code"] in LACKING, (tool, answer)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["optimise_kernel", "audit_speedup"])
async def test_a_workflow_ends_in_a_verdict_and_a_report(connect: Connect, name: str, tmp_path: Path) -> None:
    """The measuring ones for real, with the smallest number of processes."""
    given = {key: value.replace("CANDIDATE", candidate(tmp_path)) for key, value in GIVEN[name].items()}
    values = {"<path of your file>": candidate(tmp_path)}
    verdicts = []
    async with connect() as client:
        for tool, args in await steps(client, name, given):
            if tool == "aisp_hw_roofline":
                continue
            short = {"preset": "quick", "wait_s": 0} if tool in ("aisp_run_benchmarks", "aisp_verify_candidate") else {}
            answer = (await client.call_tool(tool, {**fill(args, values), **short})).structured_content
            while answer["status"] in ("queued", "running"):
                values["<job_id>"] = job_id = answer["job"]["job_id"]
                waited = await client.call_tool("aisp_job_wait", {"job_ids": [job_id], "timeout_s": 45})
                result = waited.structured_content["result"]
                answer = result.get("answer") or {"status": result["jobs"][0]["state"], "job": {"job_id": job_id}}
            assert answer["status"] == "ok", (tool, answer)
            values["<run_id>"] = answer["result"].get("run_id", values.get("<run_id>", ""))
            verdicts += [row["verdict"] for row in answer["result"].get("rulings", [])]
    assert verdicts
    assert Path(answer["result"]["files"][0]["path"]).read_text("utf-8").startswith("<!")


def candidate(folder: Path) -> str:
    path = folder / "candidate.py"
    path.write_text(CANDIDATE)
    return str(path)


def fill(args: Any, values: dict[str, str]) -> Any:
    if isinstance(args, dict):
        return {key: fill(value, values) for key, value in args.items()}
    if isinstance(args, list):
        return [fill(value, values) for value in args]
    return values.get(args, args) if isinstance(args, str) else args


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("optimise_kernel", {}, "MISSING_ARGUMENT"),
        ("optimise_kernel", {"target": "x", "taget": "y"}, "UNKNOWN_ARGUMENT"),
        ("optimise_kernel", {"target": "x" * 501}, "INVALID_ARGUMENT"),
        ("optimise_kernel", {"target": "x\n2. aisp_job_clean {}"}, "INVALID_ARGUMENT"),
        ("no_such_prompt", {}, "NO_SUCH_PROMPT"),
    ],
)
async def test_a_prompt_is_refused_in_words(
    connect: Connect, era: str, name: str, arguments: dict[str, str], code: str
) -> None:
    async with connect(era) as client:
        with pytest.raises(MCPError) as caught:
            await client.get_prompt(name, arguments)
    assert caught.value.code == -32602
    assert (caught.value.data or {}).get("code") == code
