"""Every environment variable with its default, in one table that is read once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import platformdirs

from aisp_mcp.errors import UsageError


def _setting(env: str, default: Any, help_text: str) -> Any:
    return field(default=default, metadata={"env": env, "help": help_text})


@dataclass(frozen=True)
class SettingsTable:
    """Settings of one kind: fields made by _setting()."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Read the table from the environment. Raises UsageError BAD_SETTING with the variable's name."""
        return cls(**cls._set_by(environ))

    @classmethod
    def _set_by(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """The values that the environment sets."""
        texts = {item: environ.get(item.metadata["env"]) for item in fields(cls)}
        return {item.name: _parse(item.metadata["env"], str(item.type), raw) for item, raw in texts.items() if raw}


@dataclass(frozen=True)
class Settings(SettingsTable):
    """The table. Each field names its variable and describes it; docs/settings.md is generated from here."""

    home: Path = _setting("AISP_HOME", None, "Folder for jobs, runs and artifacts. Default: the user's data folder.")
    bench_roots: tuple[Path, ...] = _setting(
        "AISP_BENCH_ROOT",
        None,
        "Folders of suites, separated like PATH. Default: ./benchmarks and ./labs, then the shipped ones.",
    )
    preview_limit: int = _setting(
        "AISP_MCP_PREVIEW_LIMIT", 8000, "Characters of JSON in one answer; the rest is in the store."
    )
    preview_items: int = _setting("AISP_MCP_PREVIEW_ITEMS", 50, "Items shown of any list in an answer.")
    isolation: str = _setting("AISP_ISOLATION", "auto", "Isolation level to demand: auto, L1, L2 or L3.")
    log_bytes: int = _setting(
        "AISP_JOB_LOG_BYTES", 1_000_000, "Bytes of a job's output to keep, in each of its two log files."
    )
    keep_days: float = _setting("AISP_KEEP_DAYS", 30.0, "Age at which finished jobs may be cleaned.")
    keep_mb: int = _setting("AISP_KEEP_MB", 4096, "Size of all artifacts above which the oldest may be cleaned.")
    parallel_jobs: int = _setting("AISP_PARALLEL_JOBS", 4, "Maximum number of concurrent jobs that do not measure.")
    stay_loaded: bool = _setting(
        "AISP_STAY_LOADED", False, "1: keep libraries loaded for 5 minutes after a job that judges."
    )
    tool_modules: str = _setting(
        "AISP_TOOL_MODULES", "", "Your own tool modules, comma separated; imported like the shipped ones."
    )
    allow_write: str = _setting(
        "AISP_ALLOW_WRITE", "", "Folders outside AISP_HOME that tools may write to, separated like PATH."
    )
    confirm_device_s: float = _setting(
        "AISP_CONFIRM_DEVICE_S",
        600.0,
        "Expected GPU seconds (seconds × GPUs held) from which a job waits for a person's consent, or confirm=true.",
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """The same, with the folders of this user and working folder. Raises UsageError BAD_SETTING, NO_HOME."""
        values = cls._set_by(environ)
        if "home" not in values:
            values["home"] = default_home()
        values.setdefault("bench_roots", default_bench_roots())
        return cls(**values)

    def as_env(self) -> dict[str, str]:
        """The table as variables, which from_env() reads in another process."""
        return {item.metadata["env"]: written(getattr(self, item.name)) for item in fields(self)}


def written(value: Any) -> str:
    """A value of the table as text for its variable."""
    return os.pathsep.join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class QueueSettings(SettingsTable):
    """Limits of the queue for one principal."""

    queued_jobs: int = _setting("AISP_QUEUED_JOBS", 1000, "Maximum number of queued jobs per principal.")


@dataclass(frozen=True)
class ClusterSettings(SettingsTable):
    """The executor of jobs, and the request to a cluster; command-line options of the same names take precedence."""

    executor: str = _setting(
        "AISP_EXECUTOR",
        "local",
        "What runs jobs: local, slurm, ssh://[user@]host[:port], kubernetes[://namespace], inprocess (to debug).",
    )
    nodes: int = _setting("AISP_NODES", 1, "Nodes of a Slurm job, over which ranks are spread.")
    gpus: int = _setting("AISP_GPUS", 0, "GPUs per node of a Slurm job; unset: none are requested.")
    partition: str = _setting("AISP_PARTITION", "", "Partition of a Slurm job; empty: the cluster's default.")
    account: str = _setting("AISP_ACCOUNT", "", "Account of a Slurm job.")
    time: str = _setting(
        "AISP_TIME", "", "Time limit of a Slurm job: minutes, h:mm:ss or d-hh:mm:ss. Default: from the job's timeout_s."
    )
    remote_python: str = _setting("AISP_REMOTE_PYTHON", "python3", "Python on an ssh host, or in a Kubernetes image.")
    array: int = _setting("AISP_ARRAY", 0, "Candidates per task of a Slurm array of a suite; 0: one job for all.")


@dataclass(frozen=True)
class KubernetesSettings(SettingsTable):
    """The request to Kubernetes; kubernetes://NAMESPACE?name=value takes precedence, by the names of these fields."""

    context: str = _setting("AISP_KUBE_CONTEXT", "", "Context of the kubeconfig; empty: its current one.")
    namespace: str = _setting("AISP_KUBE_NAMESPACE", "", "Namespace of Kubernetes Jobs; empty: the context's.")
    image: str = _setting("AISP_KUBE_IMAGE", "", "Image with Python 3.11 or newer and the packages that aisp needs.")
    resources: str = _setting(
        "AISP_KUBE_RESOURCES",
        "",
        "Resources of the pod, as requests and limits: cpu=8,memory=32Gi,nvidia.com/gpu=1.",
    )
    node: str = _setting("AISP_KUBE_NODE", "", "Labels of the nodes that may run it: pool=h200,zone=a.")
    queue: str = _setting("AISP_KUBE_QUEUE", "", "Kueue's LocalQueue that admits the Job; empty: none.")
    exclusive: bool = _setting(
        "AISP_KUBE_EXCLUSIVE", False, "1: only on a node without other pods, DaemonSets and kube-system aside."
    )
    pod: str = _setting("AISP_KUBE_POD", "", "Pod manifest that the pod is based on: tolerations, secrets, volumes.")
    wait: int = _setting("AISP_KUBE_WAIT", 0, "Minutes that a Job may wait for a node; 0: without end.")


@dataclass(frozen=True)
class PoolSettings(SettingsTable):
    """The pool of `aisp serve-judge`; its options of the same names take precedence."""

    workers: int = _setting("AISP_POOL_WORKERS", 0, "Submissions that a judge server works on at once; unset: no pool.")
    queue: int = _setting("AISP_POOL_QUEUE", 1000, "Submissions that may wait; beyond it, the answer is 503.")
    leases: Path | None = _setting(
        "AISP_LEASES", None, "Folder of leases: a comparison waits there for its device. Unset: jobs hold devices."
    )


@dataclass(frozen=True)
class SensorSettings(SettingsTable):
    """Sensors of the machine."""

    powercap: Path = _setting(
        "AISP_POWERCAP",
        Path("/sys/class/powercap"),
        "Folder of the kernel's energy counters (RAPL), such as the host's as a container sees it.",
    )


@dataclass(frozen=True)
class LlmSettings(SettingsTable):
    """The optional language model; its key is never printed and never stored."""

    url: str = _setting(
        "AISP_LLM_URL",
        "",
        "Base URL of a language model server (…/v1; of Ollama without a path). Empty: no LLM is used.",
    )
    api: str = _setting("AISP_LLM_API", "openai", "Protocol of that server: openai, anthropic or ollama.")
    model: str = _setting("AISP_LLM_MODEL", "", "Model name to ask for.")
    key: str = _setting("AISP_LLM_KEY", "", "Key for that server; never printed, never stored.")


@dataclass(frozen=True)
class ToolSettings(SettingsTable):
    """Tools that the MCP server offers; the server's options of the same names take precedence."""

    toolsets: str = _setting("AISP_TOOLSETS", "", "Families of tools to offer, comma separated; also default and all.")
    tools: str = _setting("AISP_TOOLS", "", "Single tools to offer, comma separated, on top of AISP_TOOLSETS.")
    exclude_tools: str = _setting("AISP_EXCLUDE_TOOLS", "", "Tools that are never offered, comma separated.")
    read_only: bool = _setting("AISP_READ_ONLY", False, "Offer only tools that read.")
    lite: bool = _setting("AISP_LITE", False, "List four tools only: find, call, wait and triage.")


TABLES = (Settings, QueueSettings, ClusterSettings, PoolSettings, SensorSettings, ToolSettings, LlmSettings)


def default_home() -> Path:
    """The user's data folder. Raises UsageError NO_HOME for a user without a home folder, as in some containers."""
    folder = Path("~")
    with contextlib.suppress(RuntimeError):  # platformdirs' message; older versions return "~"
        folder = Path(platformdirs.user_data_dir("aisp", appauthor=False))
    if not folder.is_absolute():
        raise UsageError(
            "NO_HOME",
            f"User {os.getuid()} has no home folder: HOME is not set, and the system knows none.",
            "Set AISP_HOME to a folder that this user may write to.",
        )
    return folder


def default_bench_roots() -> tuple[Path, ...]:
    """benchmarks/ and labs/ of the current folder, if they exist, and then the shipped ones."""
    own, shipped = _suites_in(Path.cwd()), shipped_bench_roots()
    return (*own, *(root for root in shipped if root not in own)) if own[0].is_dir() else shipped


def shipped_bench_roots() -> tuple[Path, ...]:
    """The suites of the checkout, or their copies inside the installed package."""
    package = Path(__file__).parent
    return _suites_in(package.parent if (package.parent / "benchmarks").is_dir() else package / "_suites")


def _suites_in(folder: Path) -> tuple[Path, ...]:
    labs = folder / "labs"
    return (folder / "benchmarks", labs) if labs.is_dir() else (folder / "benchmarks",)


_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _parse(env: str, kind: str, raw: str) -> Any:
    try:
        if kind in ("Path", "Path | None"):
            return Path(raw).expanduser()
        if kind.startswith("tuple[Path"):
            return tuple(Path(part).expanduser() for part in raw.split(os.pathsep) if part)
        if kind == "bool":
            return _WORDS[raw.strip().lower()]
        value = {"int": int, "float": float, "str": str}[kind](raw)
    except (ValueError, KeyError) as error:
        raise UsageError(
            "BAD_SETTING", f"{env}={raw!r} is not a valid {kind}.", f"Set {env} to a valid {kind} or unset it."
        ) from error
    if isinstance(value, int | float) and value <= 0:
        raise UsageError("BAD_SETTING", f"{env}={raw!r} must be greater than zero.", f"Unset {env} to use the default.")
    return value
