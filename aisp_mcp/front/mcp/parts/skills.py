"""The shipped skills over the Skills extension (SEP-2640, `io.modelcontextprotocol/skills`).

Every file of a skill is a resource, `skill://NAME/PATH`. `skills/list` and `skills/get` return manifests with which
clients verify the files; `resources/directory/read` lists one folder. Clients without the extension see the SKILL.md
files as ordinary resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio.to_thread
import mcp_types as types
from mcp.server.context import HandlerResult
from mcp.server.extension import MethodBinding
from mcp.shared.exceptions import MCPError

from aisp_mcp.assist.skills.files import MAIN, Skill, SkillFile, skills
from aisp_mcp.front.mcp.parts.base import Caller, Part, Request, one_page

SCHEME, MARKDOWN, FOLDER = "skill://", "text/markdown", "inode/directory"
# The files are part of the package: the same for every caller while the server runs.
CACHE = {"ttlMs": 3_600_000, "cacheScope": "public"}


class SkillParams(types.RequestParams):
    """Skill or folder to read."""

    uri: str


class FolderParams(types.PaginatedRequestParams):
    uri: str


class Skills(Part):
    """Serves the files, manifests and folders of the skills."""

    identifier = "io.modelcontextprotocol/skills"

    def settings(self) -> dict[str, Any]:
        return {"directoryRead": True}

    def methods(self) -> Sequence[MethodBinding]:
        return (
            MethodBinding("skills/list", types.PaginatedRequestParams, self.list_skills),
            MethodBinding("skills/get", SkillParams, self.get_skill),
            MethodBinding("resources/directory/read", FolderParams, self.read_folder),
        )

    async def list_skills(self, _: Request, params: types.PaginatedRequestParams | None) -> HandlerResult:
        one_page(params)
        installed = await anyio.to_thread.run_sync(skills)
        return {"skills": [_manifest(skill) for skill in installed], **CACHE}

    async def get_skill(self, _: Request, params: SkillParams) -> HandlerResult:
        """Return the manifest of one skill, named by the URI of its SKILL.md."""
        installed = await anyio.to_thread.run_sync(skills)
        skill = next((skill for skill in installed if params.uri == _uri(skill, MAIN)), None)
        if skill is None:
            raise MCPError(types.INVALID_PARAMS, f"No skill has the URI {params.uri[:200]}.")
        return {"skill": _manifest(skill), **CACHE}

    async def read_folder(self, _: Request, params: FolderParams) -> HandlerResult:
        """List the direct entries of a folder."""
        one_page(params)
        folders = await anyio.to_thread.run_sync(_folders)
        if params.uri not in folders:
            raise MCPError(types.INVALID_PARAMS, f"{params.uri[:200]} is not a folder of a skill.")
        return {"resources": [_wire(resource) for resource in folders[params.uri]]}

    def list_resources(self, caller: Caller) -> Sequence[types.Resource]:
        """List the SKILL.md of each skill; it names the other files."""
        return [_resource(skill, skill.files[0]) for skill in skills()]

    def read_resource(self, uri: str, caller: Caller) -> types.ReadResourceResult | None:
        for skill in skills():
            for file in skill.files:
                if uri == _uri(skill, file.path):
                    text = file.data.decode()
                    content = types.TextResourceContents(uri=uri, mime_type=MARKDOWN, text=text)
                    return types.ReadResourceResult(contents=[content], ttl_ms=CACHE["ttlMs"], cache_scope="public")
        return None


def _uri(skill: Skill, path: str) -> str:
    return f"{SCHEME}{skill.name}/{path}"


def _manifest(skill: Skill) -> dict[str, Any]:
    files = [
        {"uri": _uri(skill, file.path), "digest": f"sha256:{file.sha256}", "size": len(file.data)}
        for file in skill.files
    ]
    return {"uri": _uri(skill, MAIN), "frontmatter": skill.frontmatter, "resources": files}


def _resource(skill: Skill, file: SkillFile) -> types.Resource:
    is_main = file.path == MAIN
    name = skill.name if is_main else file.path.rpartition("/")[2]
    description = skill.frontmatter["description"] if is_main else None
    uri = _uri(skill, file.path)
    return types.Resource(uri=uri, name=name, description=description, mime_type=MARKDOWN, size=len(file.data))


def _folders() -> dict[str, list[types.Resource]]:
    """Return the entries of every folder by URI."""
    folders: dict[str, list[types.Resource]] = {}
    for skill in skills():
        folders[SCHEME + skill.name] = []
        for file in skill.files:
            folder = SCHEME + skill.name
            for part in file.path.split("/")[:-1]:
                inner = f"{folder}/{part}"
                if inner not in folders:
                    folders[inner] = []
                    folders[folder].append(types.Resource(uri=inner, name=part, mime_type=FOLDER))
                folder = inner
            folders[folder].append(_resource(skill, file))
    return folders


def _wire(resource: types.Resource) -> dict[str, Any]:
    return resource.model_dump(mode="json", by_alias=True, exclude_none=True)
