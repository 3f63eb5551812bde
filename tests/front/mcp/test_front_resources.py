"""Jobs, logs, files, runs and pages as resources, and the completion of their names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from front_support import ERAS, Cli, Connect
from mcp import Client
from mcp.shared.exceptions import MCPError

from aisp_mcp.errors import AispError
from aisp_mcp.server.context import Context
from aisp_mcp.settings import Settings
from aisp_mcp.store.artifacts import list_artifacts, read_artifact
from aisp_mcp.store.records.run import Run

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("era", ERAS)
PLACES = pytest.mark.parametrize(("era", "over"), [("legacy", "memory"), ("auto", "memory"), ("auto", "stdio")])
OUTSIDE = ("../secret", "..%2Fsecret", "%2Fetc%2Fpasswd", "link", "out/secret", "a%00b", ".", "missing", "sub", "pipe")


async def counted(client: Client) -> str:
    """A job that has ended."""
    result = await client.call_tool("aisp_demo_count", {"steps": 2, "wait_s": 40})
    job_id: str = result.structured_content["job"]["job_id"]
    return job_id


async def text(client: Client, uri: str) -> Any:
    [content] = (await client.read_resource(uri)).contents
    assert content.uri == uri
    return content.text


def folder(job_id: str) -> Path:
    return Context(settings=Settings.from_env()).store.run_dir(job_id)


@PLACES
async def test_a_job_its_log_and_its_files(connect: Connect, era: str, over: str) -> None:
    async with connect(era, over) as client:
        job_id = await counted(client)
        home = folder(job_id)
        (home / "sub").mkdir()
        (home / "sub" / "a b%.csv").write_text("x,y\n1,ü\n")
        (home / "trace.bin").write_bytes(b"\xff\x00\x01")
        job = json.loads(await text(client, f"aisp://jobs/{job_id}"))
        assert (job["job"]["state"], job["answer"]["result"]) == ("succeeded", {"steps": 2, "job": True})
        files = {file["name"]: file["uri"] for file in job["artifacts"]}
        assert {"envelope.json", "sub/a b%.csv", "trace.bin"} <= set(files)
        assert await text(client, files["sub/a b%.csv"]) == "x,y\n1,ü\n"
        [blob] = (await client.read_resource(files["trace.bin"])).contents
        assert (blob.blob, blob.mime_type) == ("/wAB", "application/octet-stream")
        assert await text(client, job["log"]) == ""


@BOTH
async def test_what_a_cut_answer_left_out_is_a_resource(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        cut = (await client.call_tool("aisp_demo_big", {"items": 60})).structured_content
        where = cut["truncated"]["how_to_get"].rpartition(" ")[2]
        full = json.loads(await text(client, where))
        assert (len(cut["result"]["rows"]), len(full["result"]["rows"])) == (50, 60)
        for name in ("none.json", "..%2Fjobs.db", "", "a/b"):
            with pytest.raises(MCPError):
                await client.read_resource(f"aisp://answers/{name}")


async def test_the_log_is_its_end(connect: Connect) -> None:
    async with connect() as client:
        job_id = await counted(client)
        (folder(job_id) / "log.txt").write_text("begin" + "x" * 70_000 + "end")
        log = await text(client, f"aisp://jobs/{job_id}/log")
    assert (len(log), log[-3:], log[:5]) == (65_536, "end", "xxxxx")


@BOTH
async def test_a_run(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        run = Run(id="r1", created_at=1.0, preset="quick", profile="strict", environment={"cpu": "x"})
        Context(settings=Settings.from_env()).store.save_run(run, None)
        assert Run.model_validate_json(await text(client, "aisp://runs/r1")) == run


@BOTH
async def test_pages_are_listed_and_read(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        listed = {resource.uri: resource for resource in (await client.list_resources()).resources}
        for page in ("tools", "tools/runs", "cli", "errors", "verdicts", "http", "clients"):
            resource = listed[f"aisp://docs/{page}"]
            body = await text(client, resource.uri)
            assert body.count(f"# {resource.title}") >= 1
            assert len(body.encode()) == resource.size


async def test_how_long_each_may_be_kept(connect: Connect) -> None:
    async with connect() as client:
        job_id = await counted(client)
        seconds = {}
        for uri in ("aisp://docs/tools", f"aisp://jobs/{job_id}", f"aisp://jobs/{job_id}/log"):
            result = await client.read_resource(uri)
            seconds[uri.split("/")[2], uri.count("/")] = (result.ttl_ms, result.cache_scope)
        templates = await client.list_resource_templates()
        prompts = await client.list_prompts()
        for listing in (templates, prompts):
            assert (listing.ttl_ms, listing.cache_scope) == (3_600_000, "public")
    assert seconds == {
        ("docs", 3): (3_600_000, "public"),
        ("jobs", 3): (1000, "private"),
        ("jobs", 4): (3_600_000, "private"),  # the log of a job that has ended
    }


async def test_the_latest_jobs_are_listed(connect: Connect) -> None:
    async with connect() as client:
        jobs = [await counted(client) for _ in range(2)]
        listed = [resource for resource in (await client.list_resources()).resources if "aisp://jobs" in resource.uri]
    assert [resource.uri for resource in listed] == [f"aisp://jobs/{job_id}" for job_id in reversed(jobs)]
    assert listed[0].title is not None
    assert listed[0].title.startswith("aisp_demo_count succeeded, ")


@BOTH
@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("aisp://jobs/nope", "UNKNOWN_JOB"),
        ("aisp://jobs/nope/log", "UNKNOWN_JOB"),
        ("aisp://jobs/..%2F..", "UNKNOWN_JOB"),
        ("aisp://runs/nope", "UNKNOWN_RUN"),
        ("aisp://docs/nope", "NO_SUCH_PAGE"),
        ("aisp://docs/..%2FREADME", "NO_SUCH_PAGE"),
        ("aisp://docs/tools?x=1", "NO_SUCH_RESOURCE"),
        ("aisp://nope", "NO_SUCH_RESOURCE"),
        ("file:///etc/passwd", "NO_SUCH_RESOURCE"),
    ],
)
async def test_what_is_not_there(connect: Connect, era: str, uri: str, code: str) -> None:
    async with connect(era) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)
    assert caught.value.code == {"legacy": -32002, "auto": -32602}[era]
    assert caught.value.data["code"] == code


async def test_a_file_outside_the_job_is_out_of_reach(connect: Connect) -> None:
    async with connect() as client:
        job_id = await counted(client)
        home = folder(job_id)
        (home.parent / "secret").write_text("secret")
        (home / "link").symlink_to(home.parent / "secret")
        (home / "out").symlink_to(home.parent)
        (home / "sub").mkdir()
        os.mkfifo(home / "pipe")
        for name in OUTSIDE:
            with pytest.raises(MCPError) as caught:
                await client.read_resource(f"aisp://jobs/{job_id}/artifacts/{name}")
            assert caught.value.data["code"] == "NO_SUCH_ARTIFACT", name
        job = json.loads(await text(client, f"aisp://jobs/{job_id}"))
    assert {file["name"] for file in job["artifacts"]} == {"envelope.json", "log.txt"}


def test_a_file_that_is_too_large_is_named_instead(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate((4 << 20) + 1)
    with pytest.raises(AispError) as caught:
        read_artifact(tmp_path, "big")
    assert caught.value.code == "TOO_LARGE"
    assert str(tmp_path / "big") in str(caught.value.hint)


def test_many_files_are_a_page(tmp_path: Path) -> None:
    for number in range(250):
        (tmp_path / f"{number:03}").touch()
    (tmp_path / ".hidden").touch()
    assert [file.name for file in list_artifacts(tmp_path)] == [f"{number:03}" for number in range(200)]
    assert list_artifacts(tmp_path / "missing") == []


def prompt(name: str) -> types.PromptReference:
    return types.PromptReference(type="ref/prompt", name=name)


def template(uri: str) -> types.ResourceTemplateReference:
    return types.ResourceTemplateReference(type="ref/resource", uri=uri)


@BOTH
async def test_names_are_completed(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        job_id = await counted(client)
        (folder(job_id) / "report.html").touch()
        Context(settings=Settings.from_env()).store.save_run(
            Run(id=job_id, created_at=1.0, preset="quick", profile="strict", environment={}), job_id
        )

        async def ask(ref: Any, name: str, typed: str, **given: str) -> list[str]:
            completed = await client.complete(ref, {"name": name, "value": typed}, given or None)
            return completed.completion.values

        targets = await ask(prompt("optimise_kernel"), "target", "ch07:row")
        assert {"ch07:row_sum", "ch07:row_sum_tiled"} <= set(targets)
        assert "ch07:row_sum" in await ask(prompt("audit_speedup"), "target", "row_sum")
        assert (await ask(prompt("investigate_regression"), "suspect", "ch0"))[:2] == ["ch01", "ch02"]
        assert await ask(prompt("investigate_regression"), "run_id", job_id[:5]) == [job_id]
        assert await ask(prompt("investigate_regression"), "against", "", run_id=job_id) == []
        assert await ask(template("aisp://jobs/{job_id}"), "job_id", "j_") == [job_id]
        files = template("aisp://jobs/{job_id}/artifacts/{name}")
        assert await ask(files, "name", "rep", job_id=job_id) == ["report.html"]
        assert await ask(files, "name", "") == []
        pages = await ask(template("aisp://docs/{page}"), "page", "to")
        assert pages[0] == "tools"
        assert "tools/runs" in pages
        assert await ask(prompt("plan_training_run"), "model", "x") == []


async def test_at_most_a_hundred_values_are_offered(connect: Connect) -> None:
    async with connect() as client:
        store = Context(settings=Settings.from_env()).store
        for number in range(120):
            store.save_run(Run(id=f"r{number}", created_at=1.0, preset="q", profile="strict", environment={}), None)
        completion = (
            await client.complete(template("aisp://runs/{run_id}"), {"name": "run_id", "value": ""})
        ).completion
    assert (len(completion.values), completion.total, completion.has_more) == (100, 120, True)
    assert completion.values[0] == "r119"


async def test_jobs_of_the_command_line_are_resources_too(connect: Connect, cli: Cli) -> None:
    job_id = json.loads(cli("demo", "count", "2", "--json").stdout)["job"]["job_id"]
    async with connect() as client:
        assert json.loads(await text(client, f"aisp://jobs/{job_id}"))["job"]["state"] == "succeeded"
