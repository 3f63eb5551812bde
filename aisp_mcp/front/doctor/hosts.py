"""What jobs are sent to: a machine through ssh, or a cluster of Kubernetes; what it is, and what it lacks."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.jobs.executors.placement import chosen_executor, engine, kubernetes_settings
from aisp_mcp.settings import ClusterSettings

MIN_FREE_BYTES = 2_000_000_000
MAX_SKEW_S = 5.0
MINUTE_S = 60.0


@dataclass(frozen=True)
class HostFinding:
    """One thing that a job needs there. message: what was found, or what to do."""

    what: str
    ok: bool
    message: str


def examine(executor: str, python: str | None) -> list[HostFinding]:
    """Everything that a job needs there. Raises UsageError BAD_EXECUTOR, BAD_SETTING, NOT_A_HOST."""
    environ = {**os.environ, "AISP_EXECUTOR": executor}
    name = engine(chosen_executor(environ))
    python = python or ClusterSettings.from_env(environ).remote_python
    if name == "kubernetes":
        return _examine_cluster(executor, python)
    if name.startswith("ssh://"):
        return _examine_host(executor, python)
    hint = "ssh://[user@]host or kubernetes[://namespace]"
    raise UsageError("NOT_A_HOST", f"{executor[:40]} is checked when a job is sent: --dry-run.", hint)


def _examine_cluster(executor: str, python: str) -> list[HostFinding]:
    from aisp_mcp.jobs.executors import kubernetes

    settings = kubernetes_settings(executor, os.environ)
    named = bool(settings.image)
    image = HostFinding("image", named, settings.image or f"none is named. {kubernetes.HINTS['KUBE_IMAGE']}")
    try:
        request = kubernetes.wanted(replace(settings, image=settings.image or "none"), python, MINUTE_S)
        found = kubernetes.check(request)
    except (Unavailable, UsageError) as error:
        return [HostFinding("settings", False, f"{error} {error.hint or ''}".strip()), image]
    return [HostFinding(*row) for row in found] + [image]


def _examine_host(executor: str, python: str) -> list[HostFinding]:
    from aisp_mcp.jobs.executors import sending, ssh

    try:
        facts = ssh.Ssh(executor).check(python)
    except ssh.LostError as error:
        return [HostFinding("connection", False, f"{error}. {ssh.HINTS.get(error.code, '')}".strip())]
    except Unavailable as error:
        return [HostFinding("connection", False, f"{error}. {error.hint or ''}".strip())]
    packages, benches = facts["packages"], sending.requirements("bench")
    lacking = [name for name in sending.requirements() if packages[name] is None]
    without = [name for name in benches if packages[name] is None]
    pip = f"{facts['executable']} -m pip install"
    shown = ", ".join(f"{name} {packages[name]}" for name in benches if packages[name])
    gpu = "an NVIDIA driver is loaded" if facts["gpu_driver"] else "no NVIDIA driver: jobs measure on the CPU"
    session = "processes outlive the session"
    if facts["ends_with_session"]:
        session = f"logind ends all processes at logout (KillUserProcesses): loginctl enable-linger on {facts['node']}"
    ahead = facts["ahead_s"]
    return [
        HostFinding(
            "connection", True, f"{facts['node']}, {facts['system']}; answers in {1e3 * facts['answer_s']:.0f} ms"
        ),
        HostFinding("python", True, f"{facts['python']}, {facts['executable']}"),
        HostFinding("packages", not lacking, f"{pip} {' '.join(lacking)}" if lacking else "all that aisp needs"),
        HostFinding("benchmarks", not without, f"{pip} {' '.join(without)}" if without else shown),
        HostFinding("gpu", True, gpu),
        HostFinding(
            "disk",
            facts["free_bytes"] >= MIN_FREE_BYTES,
            f"{facts['free_bytes'] / 1e9:.1f} GB free for {facts['folder']}",
        ),
        HostFinding(
            "clock", abs(ahead) < MAX_SKEW_S, f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this one"
        ),
        HostFinding("session", not facts["ends_with_session"], session),
    ]
