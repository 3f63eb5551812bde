"""The shipped skills: what they name exists and is called rightly, and the protocol serves them so that they verify."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from front_support import ERAS, Connect
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict

from aisp_mcp.assist.skills.files import MAIN, Skill, frontmatter, skills
from aisp_mcp.front.mcp.parts.skills import Skills
from aisp_mcp.server import dispatch, registry
from aisp_mcp.server.context import Context

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("era", ERAS)
PACKAGE = Path(__file__).parents[3] / "aisp_mcp"
NAME = re.compile(r"(?!.*--)[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
CALL = re.compile(r"`(aisp_[a-z_0-9]+)(?:\s+(\{.*?\}))?`", re.DOTALL)


class Open(BaseModel):
    """Any result."""

    model_config = ConfigDict(extra="allow")


async def ask(client: Client, method: str, **params: Any) -> dict[str, Any]:
    """A request that the library does not know."""
    from mcp_types import Request

    request = Request[dict[str, Any], str](method=method, params=params)
    result = await client.session.send_request(request, Open)  # type: ignore[arg-type]
    return result.model_dump()


def texts() -> list[tuple[Skill, str]]:
    return [(skill, file.data.decode()) for skill in skills() for file in skill.files]


def test_the_skills_are_there_and_short() -> None:
    assert {skill.name for skill in skills()} >= {
        "judge-a-speedup", "investigate-a-regression", "profile-a-kernel", "triage-a-machine",
    }  # fmt: skip
    for skill in skills():
        assert NAME.fullmatch(skill.name)
        assert skill.frontmatter["name"] == skill.name
        assert 40 <= len(skill.frontmatter["description"]) <= 1024
        assert skill.files[0].path == MAIN
        assert all(len(file.data) < 6_000 for file in skill.files)


def test_every_call_in_a_skill_is_a_valid_call(ctx: Context) -> None:
    seen = 0
    for skill, text in texts():
        for name, arguments in CALL.findall(text):
            tool = registry.get(name)
            assert tool.name == name, f"{skill.name}: {name} is an alias"
            if arguments:
                dispatch.validate(tool, json.loads(re.sub(r"\s*\n\s*", " ", arguments)))
                seen += 1
        assert len(CALL.findall(text)) == len(re.findall(r"\baisp_[a-z]", text)), (
            f"{skill.name} names a tool outside a call"
        )
    assert seen > 30


def test_every_part_of_a_result_that_a_skill_names_exists(ctx: Context) -> None:
    for skill in skills():
        text = "\n".join(file.data.decode() for file in skill.files)
        results = [registry.get(name).result for name, _ in CALL.findall(text)]
        known = {field for result in results for field in result.model_fields}
        named = set(re.findall(r"`result\.(\w+)`", text))
        assert named <= known, f"{skill.name}: {named - known}"


def test_links_lead_to_files_of_the_skill_and_nothing_lies_around() -> None:
    for skill in skills():
        links = re.findall(r"\]\(([^)]+)\)", skill.files[0].data.decode())
        assert sorted(links) == [file.path for file in skill.files[1:]]


VERDICT_MODULES = ("estimate", "verdict", "flags", "bound")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        (
            "references/suspicions.md",
            ["runs/changes/triage.py", *(f"judge/verdict/{name}.py" for name in VERDICT_MODULES)],
        ),
        ("references/bounds.md", ["profile/insights/limiter.py"]),
        ("references/verdicts.md", ["judge/records/verdict.py"]),
    ],
)  # fmt: skip
def test_every_code_explained_is_one_that_is_given(file: str, source: list[str]) -> None:
    given = "".join((PACKAGE / path).read_text("utf-8") for path in source)
    text = next(f.data.decode() for skill in skills() for f in skill.files if f.path == file)
    codes = re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)
    assert codes
    assert [code for code in codes if f'"{code}' not in given] == []


@BOTH
async def test_a_client_can_verify_what_it_reads(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        if era != "legacy":  # whose capabilities have no extensions
            assert (client.server_capabilities.extensions or {})[Skills.identifier] == {"directoryRead": True}
        listed = await ask(client, "skills/list")
        assert [entry["frontmatter"]["name"] for entry in listed["skills"]] == [skill.name for skill in skills()]
        assert (listed["cacheScope"], listed["ttlMs"] > 0) == ("public", True)
        for entry in listed["skills"]:
            assert (await ask(client, "skills/get", uri=entry["uri"]))["skill"] == entry
            for manifest in entry["resources"]:
                content = (await client.read_resource(manifest["uri"])).contents[0]
                data = content.text.encode()
                assert content.mime_type == "text/markdown"
                assert (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") == (
                    manifest["size"],
                    manifest["digest"],
                )
                if manifest["uri"] == entry["uri"]:
                    assert frontmatter(content.text) == entry["frontmatter"]
        named = {str(resource.uri): resource for resource in (await client.list_resources()).resources}
        for entry in listed["skills"]:
            resource = named[entry["uri"]]
            assert (resource.name, resource.description) == (
                entry["frontmatter"]["name"], entry["frontmatter"]["description"],
            )  # fmt: skip


@BOTH
async def test_folders_list_their_direct_children(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        root = (await ask(client, "resources/directory/read", uri="skill://judge-a-speedup"))["resources"]
        assert [(item["name"], item["mimeType"]) for item in root] == [
            ("judge-a-speedup", "text/markdown"), ("references", "inode/directory"),
        ]  # fmt: skip
        inner = (await ask(client, "resources/directory/read", uri=root[1]["uri"]))["resources"]
        assert [item["uri"] for item in inner] == ["skill://judge-a-speedup/references/verdicts.md"]


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("skills/get", "skill://none/SKILL.md"),
        ("skills/get", "skill://judge-a-speedup"),
        ("skills/get", "skill://judge-a-speedup/references/verdicts.md"),
        ("resources/directory/read", "skill://judge-a-speedup/SKILL.md"),
        ("resources/directory/read", "skill://judge-a-speedup/"),
        ("resources/directory/read", "skill://../judge-a-speedup"),
    ],
)
async def test_what_is_no_skill_is_refused(connect: Connect, method: str, uri: str) -> None:
    async with connect() as client:
        with pytest.raises(MCPError) as caught:
            await ask(client, method, uri=uri)
        assert caught.value.error.code == -32602
        with pytest.raises(MCPError):
            await client.read_resource("skill://judge-a-speedup/../../capabilities.yaml")
