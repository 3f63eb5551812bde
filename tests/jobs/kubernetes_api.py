"""A simulated API server of Kubernetes with one node: the answers that a Job and its pod get, and nothing else.

What it answers has been compared with a real server (validation/run_kubernetes.py): bodies of errors are its words.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from kubernetes_node import NODE, RunningPod, missing_parts, now

NAMESPACE = "bench"
_PATH = re.compile(r"/(?:api/v1|apis/[\w.]+/v1)/namespaces/([\w-]+)/(\w+)(?:/([\w.-]+)(?:/(\w+))?)?")


class Answer(Exception):
    """An error of the server: HTTP status, reason, and its sentence."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class Server:
    """refused: (method, kind) → the error. unschedulable, pull: what keeps a pod from starting; pods then wait."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kinds: dict[str, dict[str, dict[str, Any]]] = {"jobs": {}, "configmaps": {}, "pods": {}, "events": {}}
        self.running: dict[str, RunningPod] = {}
        self.refused: dict[tuple[str, str], Answer] = {}
        self.unschedulable = ""
        self.pull: tuple[str, str] = ("", "")
        self.down = False
        self.created: list[str] = []
        self._lock = threading.RLock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def kubeconfig(self) -> Path:
        """A file that leads here."""
        path = self.folder / "kubeconfig"
        context = {"cluster": "here", "user": "me", "namespace": NAMESPACE}
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
            "contexts": [{"name": "here", "context": context}],
            "current-context": "here",
        }
        path.write_text(yaml.safe_dump(text))
        return path

    def stop(self) -> None:
        """End the server and all pods."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        for pod in self.running.values():
            pod.end()

    def answer(self, method: str, url: str, body: dict[str, Any] | None) -> Any:
        """A JSON value, or the text of a log. Raises Answer."""
        with self._lock:
            if self.down:
                raise Answer(503, "ServiceUnavailable", "the server is currently unable to handle the request")
            parts = urlsplit(url)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if parts.path == "/version/":
                return {"major": "1", "minor": "20", "gitVersion": "v1.20.2"}
            if parts.path.endswith("/selfsubjectaccessreviews"):
                wanted = body["spec"]["resourceAttributes"] if body else {}
                verb = {"create": "POST", "delete": "DELETE"}.get(wanted["verb"], "GET")
                kind = "log" if wanted.get("subresource") == "log" else wanted["resource"]
                return {"status": {"allowed": (verb, kind) not in self.refused}}
            found = _PATH.fullmatch(parts.path)
            if not found:
                raise Answer(404, "NotFound", "the server could not find the requested resource")
            namespace, kind, name, below = found.groups()
            error = self.refused.get((method, below or kind))
            if error:
                raise error
            if method == "POST":
                return self._create(namespace, kind, body or {})
            self._look()
            if name is None:
                return {"items": [item for item in self.kinds[kind].values() if _selected(item, query)]}
            if name not in self.kinds[kind]:
                raise Answer(404, "NotFound", f'{kind}{".batch" if kind == "jobs" else ""} "{name}" not found')
            if below == "log":
                return self._log(name, query)
            return self._delete(name) if method == "DELETE" else self.kinds[kind][name]

    def _create(self, namespace: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        if namespace != NAMESPACE:
            raise Answer(404, "NotFound", f'namespaces "{namespace}" not found')
        if name in self.kinds[kind]:
            full = f"{kind}{'.batch' if kind == 'jobs' else ''}"
            raise Answer(409, "AlreadyExists", f'{full} "{name}" already exists')
        body["metadata"].update(uid=str(uuid.uuid4()), creationTimestamp=now())
        body["status"] = {}
        self.kinds[kind][name] = body
        self.created.append(f"{kind}/{name}")
        if kind == "jobs" and not body["spec"].get("suspend"):
            template = body["spec"]["template"]
            labels = {**template["metadata"]["labels"], "job-name": name, "controller-uid": body["metadata"]["uid"]}
            metadata = {"name": f"{name}-x7k2p", "labels": labels, "creationTimestamp": now()}
            pod = {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}}
            self.kinds["pods"][metadata["name"]] = json.loads(json.dumps(pod))
        return body

    def _look(self) -> None:
        """Do what scheduler, node and controller would have done by now."""
        for name, pod in self.kinds["pods"].items():
            reason, message = self.pull
            scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
            if self.unschedulable:
                scheduled.update(status="False", reason="Unschedulable", message=self.unschedulable)
                pod["status"]["conditions"] = [scheduled]
                continue
            pod["spec"]["nodeName"] = NODE
            pod["status"]["conditions"] = [scheduled]
            if reason:
                state: dict[str, Any] = {"waiting": {"reason": reason, "message": message}}
            elif missing_parts(pod, self.kinds["configmaps"].get):
                state = {"waiting": {"reason": "ContainerCreating"}}
            else:
                if name not in self.running and pod["status"]["phase"] == "Pending":
                    self._start(name, pod)
                if name not in self.running:
                    continue
                state = self.running[name].state()
            phase = "Running" if "running" in state else "Pending"
            if "terminated" in state:
                phase = "Succeeded" if state["terminated"]["exitCode"] == 0 else "Failed"
                condition = "Complete" if phase == "Succeeded" else "Failed"
                job = self.kinds["jobs"].get(pod["metadata"]["labels"]["job-name"])
                if job:
                    job["status"] = {"conditions": [{"type": condition, "status": "True"}]}
            pod["status"].update(phase=phase, containerStatuses=[{"name": "aisp", "state": state}])

    def _start(self, name: str, pod: dict[str, Any]) -> None:
        maps = self.kinds["configmaps"]
        try:
            self.running[name] = RunningPod(pod, self.folder / name, lambda part: maps[part]["binaryData"])
        except FileNotFoundError as error:
            message = f'exec: "{error.filename}": no such file or directory'
            ended = {"exitCode": 128, "reason": "StartError", "message": message}
            statuses = [{"name": "aisp", "state": {"terminated": ended}}]
            pod["status"].update(phase="Failed", containerStatuses=statuses)

    def _log(self, name: str, query: dict[str, str]) -> str:
        if name not in self.running:
            message = f'container "aisp" in pod "{name}" is waiting to start: ContainerCreating'
            raise Answer(400, "BadRequest", message)
        text = self.running[name].log.read_text("utf-8", "replace")
        if "tailLines" in query:
            return "".join(text.splitlines(keepends=True)[-int(query["tailLines"]) :])
        return text

    def _delete(self, name: str) -> dict[str, Any]:
        """Remove a Job and what it owns."""
        self.kinds["jobs"].pop(name)
        for pod in [key for key, item in self.kinds["pods"].items() if item["metadata"]["labels"]["job-name"] == name]:
            self.kinds["pods"].pop(pod)
            if pod in self.running:
                threading.Thread(target=self.running.pop(pod).end).start()
            shutil.rmtree(self.folder / pod / "aisp" / "parts", ignore_errors=True)
        for part in [key for key, item in self.kinds["configmaps"].items() if _owner(item) == name]:
            self.kinds["configmaps"].pop(part)
        return {"kind": "Status", "status": "Success"}


def _owner(item: dict[str, Any]) -> str:
    return str(item["metadata"]["ownerReferences"][0]["name"])


def _selected(item: dict[str, Any], query: dict[str, str]) -> bool:
    wanted = [part.partition("=")[::2] for part in query.get("labelSelector", "").split(",") if part]
    labels = item["metadata"].get("labels", {})
    return all(labels.get(name) == value for name, value in wanted)


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            try:
                code, answer = 200, server.answer(self.command, self.path, body)
            except Answer as error:
                code = error.status
                status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
                answer = {**status, "message": str(error), "reason": error.reason}
            data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = do

        def log_message(self, *_: object) -> None:
            pass

    return Handler
