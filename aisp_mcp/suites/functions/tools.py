"""Start a benchmark of your own."""

from __future__ import annotations

import re
import shlex
import unicodedata
from pathlib import Path

from pydantic import Field

from aisp_mcp.errors import Refused, UsageError
from aisp_mcp.records import Params, Record
from aisp_mcp.server import files
from aisp_mcp.server.context import Context
from aisp_mcp.server.files import Written
from aisp_mcp.server.registry import MS, WRITES, tool
from aisp_mcp.suites.functions.forms import FORMS, Form, FormName


class NewParams(Params):
    name: str = Field(min_length=1, max_length=60, description="In your words: nearest, my bench.")
    like: FormName = Field(default="torch", description="The form of your code.")
    to: str | None = Field(default=None, max_length=4096, description="Folder. Default: new/NAME under AISP_HOME.")


class NewPair(Record):
    """The files of a new pair, and the command that judges it."""

    files: list[Written]
    target: str
    command: str


@tool(cli="bench new", effect=WRITES, cost=MS, next=("aisp_run_benchmarks", "aisp_verify_candidate"))
def aisp_benchmark_new(p: NewParams, ctx: Context) -> NewPair:
    """Write a working pair, baseline and candidate, to fill in with your own code."""
    name = identifier(p.name)
    folder = files.folder(p.to, ctx.settings.home / "new" / name, ctx.allow_write)
    form = FORMS[p.like]
    written = _write(folder, name, form)
    if form.inputs:
        both = shlex.join([str(folder / f"{name}.py"), str(folder / f"{name}_fast.py"), "--inputs", form.inputs])
        return NewPair(files=written, target=f"{name}:{name}", command=f"aisp bench verify {both}")
    target = f"{folder.name}:{name}" + {"cpp": "_cpp", "cuda": "_cu"}.get(p.like, "")
    root = "" if folder.parent.name == "benchmarks" else f" --bench-root {folder.parent}"
    return NewPair(files=written, target=target, command=f"aisp bench run --targets {target}{root}")


def identifier(name: str) -> str:
    """The name as code can have it: `My bench 2` is my_bench_2. Raises UsageError BAD_NAME."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    if not words:
        raise UsageError("BAD_NAME", f"{name!r} has no letter for the name of a file.", "Use letters and digits.")
    return words if words[0].isalpha() else f"bench_{words}"


def _write(folder: Path, name: str, form: Form) -> list[Written]:
    """Write the files. Raises Refused EXISTS for files that already exist, UNWRITABLE."""
    title = "".join(word.capitalize() for word in name.split("_"))
    texts = {
        file.replace("NAME", name): text.replace("NAME", name).replace("TITLE", title)
        for file, text in form.files.items()
    }
    if present := next((folder / file for file in texts if (folder / file).exists()), None):
        raise Refused("EXISTS", f"{present} exists already.", "Choose another name, or another folder.")
    return [files.write(folder / file, text.encode()) for file, text in texts.items()]
