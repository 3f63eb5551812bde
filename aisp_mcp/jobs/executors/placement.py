"""A request to a cluster: nodes, GPUs, partition, account and time, read from settings and checked as text."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aisp_mcp.errors import UsageError
from aisp_mcp.settings import ClusterSettings, KubernetesSettings

EXECUTORS = ("local", "slurm", "inprocess")
_SSH = re.compile(r"ssh://(?:[\w.+-]+@)?(?:[\w][\w.-]*|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?", re.ASCII)
_KUBERNETES = re.compile(r"kubernetes(?:://[a-z0-9-]{0,63}/?(?:\?[^\s#]*)?)?", re.ASCII)
_NAME = re.compile(r"[\w.,-]{0,100}", re.ASCII)
# As Slurm reads it: minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s.
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?", re.ASCII)
_MARGIN_MIN = 2  # the job's own time-out comes first: it leaves an answer


@dataclass(frozen=True)
class SlurmPlacement:
    """Resources to request. gpus: per node. exclusive: the nodes are shared with no other job."""

    nodes: int
    gpus: int
    partition: str
    account: str
    minutes: int
    exclusive: bool

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def chosen_executor(environ: Mapping[str, str]) -> str:
    """The executor that the settings name. Raises UsageError BAD_EXECUTOR."""
    name = ClusterSettings.from_env(environ).executor
    if name not in EXECUTORS and not _SSH.fullmatch(name) and not _KUBERNETES.fullmatch(name):
        choices = f"One of: {', '.join(EXECUTORS)}, ssh://[user@]host[:port] or kubernetes[://namespace]."
        raise UsageError("BAD_EXECUTOR", f"There is no executor {name[:80]!r}.", choices)
    return name


def is_elsewhere(executor: str) -> bool:
    """Return True if jobs of this executor run on another machine."""
    return executor not in ("local", "inprocess", "node")


def engine(executor: str) -> str:
    """The name under which jobs are watched: what a URL asks of Kubernetes is in their request."""
    return "kubernetes" if _KUBERNETES.fullmatch(executor) else executor


def kubernetes_settings(executor: str, environ: Mapping[str, str]) -> KubernetesSettings:
    """The settings of kubernetes[://NAMESPACE][?name=value&...]. Raises UsageError BAD_EXECUTOR, BAD_SETTING."""
    names = {item.name: item.metadata["env"] for item in dataclasses.fields(KubernetesSettings)}
    url = urlsplit(executor)
    given = dict(parse_qsl(url.query, keep_blank_values=True))
    unknown = sorted(given.keys() - names.keys())
    if unknown:
        raise UsageError("BAD_EXECUTOR", f"kubernetes:// has no {unknown[0][:40]!r}.", f"Known: {', '.join(names)}.")
    if url.netloc:
        given["namespace"] = url.netloc
    return KubernetesSettings.from_env({**environ, **{names[name]: value for name, value in given.items()}})


def request(executor: str, environ: Mapping[str, str], timeout_s: float, exclusive: bool) -> dict[str, Any]:
    """The request of the settings to an executor elsewhere, as data for its row.

    Raises UsageError BAD_PLACEMENT, and Unavailable if Kubernetes is not configured here.
    """
    if executor == "slurm":
        return placement(environ, timeout_s, exclusive).as_dict()
    python = ClusterSettings.from_env(environ).remote_python
    if "\n" in python or "\0" in python:
        raise UsageError(
            "BAD_PLACEMENT", f"{python[:80]!r} is not a path of an interpreter.", "--remote-python python3.12"
        )
    if engine(executor) == "kubernetes":
        from aisp_mcp.jobs.executors.kubernetes import wanted

        return wanted(kubernetes_settings(executor, environ), python, timeout_s)
    return {"python": python, "exclusive": exclusive}


def placement(environ: Mapping[str, str], timeout_s: float, exclusive: bool) -> SlurmPlacement:
    """The request to Slurm that the settings describe. Raises UsageError BAD_PLACEMENT."""
    cluster = ClusterSettings.from_env(environ)
    for name, value in (("partition", cluster.partition), ("account", cluster.account)):
        if not _NAME.fullmatch(value):
            raise UsageError(
                "BAD_PLACEMENT", f"{value[:80]!r} is not a name of a {name}.", "Letters, digits and . _ , -"
            )
    minutes = read_minutes(cluster.time) if cluster.time else math.ceil(timeout_s / 60) + _MARGIN_MIN
    return SlurmPlacement(cluster.nodes, cluster.gpus, cluster.partition, cluster.account, minutes, exclusive)


def read_minutes(text: str) -> int:
    """A time limit in Slurm's notation as minutes, rounded up. Raises UsageError BAD_PLACEMENT."""
    match = _TIME.fullmatch(text.strip())
    minutes = 0.0
    if match:
        first, second, third = (int(match[name] or 0) for name in ("first", "second", "third"))
        if match["days"] is not None:
            minutes = int(match["days"]) * 1440 + first * 60 + second + third / 60
        elif match["third"] is not None:
            minutes = first * 60 + second + third / 60
        else:
            minutes = first + second / 60
    if minutes <= 0:
        raise UsageError("BAD_PLACEMENT", f"{text[:40]!r} is not a time limit.", "Minutes, h:mm:ss or d-hh:mm:ss.")
    return math.ceil(minutes)


def slurm_variables(request: Mapping[str, Any]) -> dict[str, str]:
    """Variables that send a job to Slurm. request: nodes, gpus, partition, account, time. Raises UsageError."""
    names = {item.name: item.metadata["env"] for item in dataclasses.fields(ClusterSettings) if item.name != "executor"}
    unknown = sorted(request.keys() - names.keys())
    if unknown:
        hint = f"Known: {', '.join(names)}."
        raise UsageError("BAD_PLACEMENT", f"slurm has no {unknown[0][:40]!r}.", hint)
    # Empty text unsets a variable of this process: this call defines the whole request.
    values = {env: str(request[name]) if request.get(name) else "" for name, env in names.items()}
    return {"AISP_EXECUTOR": "slurm", **values}
