"""A job as another machine gets it: folders to send, arguments and variables with paths as they are there.

Executors without a shared file system have this in common; how the folders travel is their own matter.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from aisp_mcp.jobs.executors import handover, parcels
from aisp_mcp.settings import QueueSettings, Settings, ToolSettings

# Variables that mean the same on every machine; the settings of tools and jobs are added to them.
_PASSED = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TRACEPARENT",
    "TRACESTATE",
    "CUDA_MODULE_LOADING",
)
_OF_THIS_MACHINE = ("AISP_HOME", "AISP_ALLOW_WRITE", "AISP_BENCH_ROOT")
REACHED_AS = "AISP_REACHED_AS"  # tells a job the name under which its machine was reached


def requirements(extra: str = "") -> list[str]:
    """Names of the packages that this one needs, or that one of its extras adds."""
    try:
        lines = importlib.metadata.requires("aisp-mcp") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    wanted = [
        line for line in lines if (f"extra == '{extra}'" in line.replace('"', "'") if extra else "extra ==" not in line)
    ]
    return [match[0] for line in wanted if (match := re.match(r"[\w.-]+", line))]


@contextlib.contextmanager
def folders(row: Any, known: dict[tuple[str, int, int], str]) -> Iterator[dict[str, parcels.Parcel]]:
    """Folders that a job needs, by their paths here; a copy of a repository exists while the context is open.

    known: as in Parcel. Raises UsageError NOT_SENT, OSError.
    """
    env, request = json.loads(row["env"] or "{}"), json.loads(row["placement"])
    needed = [parcels.package(), *parcels.roots(_params(row), row["cwd"], env)]
    sent = {str(folder): parcels.Parcel(folder, known) for folder in needed}
    with tempfile.TemporaryDirectory(prefix="aisp-sent-") as copies:
        if "repository" in request:
            repo = Path(request["repository"])
            copy = parcels.repository(repo, request["commits"].values(), Path(copies))
            sent[str(repo)] = parcels.Parcel(copy, all=True)
        yield sent


def job(row: Any, names: Mapping[str, str], reached_as: str) -> dict[str, Any]:
    """The job with paths as they are there. names: the path there of each folder that was sent."""
    env, request = json.loads(row["env"] or "{}"), json.loads(row["placement"])
    params = _params(row)
    if "repository" in request:
        params = {
            name: request["commits"].get(value, value) if isinstance(value, str) else value
            for name, value in params.items()
        }
    return {
        **{name: row[name] for name in ("id", "tool", "timeout_s", "principal")},
        "params": parcels.renamed(params, names),
        "cwd": _there(row["cwd"], names),
        "env": _environment(env, names, reached_as),
        "exclusive": request.get("exclusive", False),
    }


def take(folder: Path, rows: dict[str, Any], envelope: Any, names: Mapping[str, str], host: str) -> None:
    """Write a job's rows and answer to its run folder. names: the path here of each one there; host: for a person."""
    for run in rows["runs"]:
        run["body"] = json.dumps(parcels.renamed(json.loads(run["body"]), names))
    handover.write(folder, handover.ROWS, rows)
    if envelope:
        envelope = parcels.renamed(envelope, names)
        envelope["meta"]["host"] = host
        handover.write(folder, "envelope.json", envelope)


def _params(row: Any) -> dict[str, Any]:
    return parcels.whole(json.loads(row["params"]), row["cwd"])


def _there(path: str, names: Mapping[str, str]) -> str:
    """A path as it is there; empty if nothing of it was sent."""
    moved = str(parcels.renamed(path, names))
    return "" if moved == path else moved


def _environment(env: Mapping[str, str], names: Mapping[str, str], reached_as: str) -> dict[str, str]:
    """The variables of a job that mean something there, with paths as they are there."""
    settings = [item.metadata["env"] for table in (Settings, QueueSettings, ToolSettings) for item in fields(table)]
    passed = {name: env[name] for name in (*settings, *_PASSED) if name in env and name not in _OF_THIS_MACHINE}
    roots = [_there(root, names) for root in env.get("AISP_BENCH_ROOT", "").split(os.pathsep)]
    modules = [_there(entry, names) for entry in env.get("PYTHONPATH", "").split(os.pathsep)]
    path = [os.path.dirname(names[str(parcels.package())]), *filter(None, modules)]
    return {
        **passed,
        "AISP_BENCH_ROOT": os.pathsep.join(filter(None, roots)),
        "PYTHONPATH": os.pathsep.join(path),
        REACHED_AS: reached_as,
    }
