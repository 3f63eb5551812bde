"""The part of a node that a Job's pod needs: a process of this machine, with what is mounted and a log."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

NODE = "node-a"


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class RunningPod:
    """Paths that are mounted lie below a folder here, and variables that name them are translated; no image is used.

    config_map: its binaryData by name, None if there is none. Raises FileNotFoundError if the command does not exist.
    """

    def __init__(self, pod: dict[str, Any], folder: Path, config_map: Callable[[str], dict[str, str] | None]) -> None:
        self.folder, self.started = folder, now()
        self.log = folder / "log"
        container = pod["spec"]["containers"][0]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for mount in container["volumeMounts"]:
            target = folder / mount["mountPath"].lstrip("/")
            target.mkdir(parents=True)
            for source in volumes[mount["name"]].get("projected", {}).get("sources", ()):
                for name, data in (config_map(source["configMap"]["name"]) or {}).items():
                    (target / name).write_bytes(base64.b64decode(data))
        values = {item["name"]: item.get("value", NODE) for item in container["env"]}
        env = {name: f"{folder}{value}" if value == "/aisp" else value for name, value in values.items()}
        outer = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        with open(self.log, "wb") as out:
            words = [*container["command"], *container.get("args", ())]
            self._process = subprocess.Popen(
                words, env={**outer, **env}, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def state(self) -> dict[str, Any]:
        """The state of its container."""
        code = self._process.poll()
        if code is None:
            return {"running": {"startedAt": self.started}}
        reason = "Completed" if code == 0 else "OOMKilled" if code == -9 else "Error"
        code = code if code >= 0 else 128 - code
        return {"terminated": {"exitCode": code, "reason": reason, "startedAt": self.started, "finishedAt": now()}}

    def end(self, patience_s: float = 10.0) -> None:
        """Ask its first process to end, and kill it after a while."""
        self._process.terminate()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def missing_parts(pod: dict[str, Any], known: Callable[[str], object]) -> list[str]:
    """ConfigMaps that a pod mounts and that do not exist: until they do, it does not start."""
    sources = [source for volume in pod["spec"]["volumes"] for source in volume.get("projected", {}).get("sources", ())]
    names = [source["configMap"]["name"] for source in sources if "configMap" in source]
    return [name for name in names if known(name) is None]
