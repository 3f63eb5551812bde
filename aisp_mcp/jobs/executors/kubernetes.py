"""Jobs in a Kubernetes cluster, through its official client: a batch/v1 Job for each, which leaves nothing there.

What a job needs travels in ConfigMaps that its Job owns, and its answer comes back in the log of its pod. So it needs
no volume, no connection to the pod and only a namespace's ordinary rights, and while it waits and runs, it depends on
nothing here. The Job's name follows from our id: creating it again finds it. In order: the request, the manifest, the
executor, and what the answers of the API mean.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import re
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import yaml

from aisp_mcp.errors import AispError, Unavailable, UsageError
from aisp_mcp.jobs import endings, log, node, pod
from aisp_mcp.jobs.executors import handover, sending, unpack
from aisp_mcp.jobs.executors.base import ExecutorState, Submission
from aisp_mcp.settings import KubernetesSettings
from aisp_mcp.store.records.job_state import JobState

MANAGED = "app.kubernetes.io/managed-by"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name")  # of a pod; the second one until Kubernetes 1.26
ROOT = "/aisp"
PART_BYTES, MAX_PARTS = 900_000, 16  # an object may have 1 MiB
KEEP_S = 7 * 86_400  # a Job whose answer nobody has fetched
START_S = 600  # beyond the time-out of the job: pull the image, unpack
UNREACHABLE_S = 60.0
FORBIDDEN_S = 8.0  # an API server that has just started knows no roles yet, and forbids everything
TIMEOUTS_S = (5.0, 30.0)
_PULL_S = 300.0  # a registry may be down for a while
_LOG_LINES = 400
_QUANTITY = re.compile(r"\d+(\.\d+)?([munkMGTPE]|[KMGTPE]i)?", re.ASCII)
_KEY = re.compile(r"[\w.-]{1,253}(/[\w.-]{1,63})?", re.ASCII)
_LABEL = re.compile(r"[\w.-]{0,63}", re.ASCII)
_OWN_RESOURCES = ("cpu", "memory", "ephemeral-storage")

HINTS = {
    "KUBE_CONFIG": "`kubectl get jobs` must work here; --executor 'kubernetes://NAMESPACE?context=NAME' names another.",
    "KUBE_IMAGE": "Name an image that the nodes can pull: AISP_KUBE_IMAGE; secrets for it go into AISP_KUBE_POD.",
    "KUBE_LOST_ANSWER": "Smaller output fits: at most 6 MB of answer and 1 MB of log come back.",
    "KUBE_NOT_STARTED": "`kubectl describe pod` shows more; volumes, secrets and tolerations go into AISP_KUBE_POD.",
    "KUBE_REFUSED": "aisp doctor --executor kubernetes shows what is missing; docs/kubernetes.md has the role.",
    "KUBE_UNREACHABLE": "Try `kubectl get jobs`; the job was not sent.",
    "HOST_LACKS": "docs/kubernetes.md has the two lines of such an image.",
    "HOST_PYTHON": "Name another image, or a Python in it with --remote-python.",
    "POD_LOST": "Call the tool again; `kubectl get events` shows who ended the pod.",
    "UNSCHEDULABLE": "Ask for less, name other nodes, or let it wait longer: AISP_KUBE_WAIT.",
}


def wanted(settings: KubernetesSettings, python: str, timeout_s: float) -> dict[str, Any]:
    """The request of a job, as data for its row: what the settings say, with context and namespace fixed.

    Raises UsageError BAD_PLACEMENT and Unavailable NO_KUBERNETES, KUBE_CONFIG.
    """
    if not settings.image or re.search(r"\s", settings.image):
        message = f"{settings.image[:80]!r} is not an image." if settings.image else "No image is named."
        raise UsageError("BAD_PLACEMENT", message, "AISP_KUBE_IMAGE, or kubernetes://NAMESPACE?image=registry/name:tag")
    if not _LABEL.fullmatch(settings.queue):
        raise UsageError(
            "BAD_PLACEMENT", f"{settings.queue[:80]!r} is not a name of a queue.", "AISP_KUBE_QUEUE=team-a"
        )
    kubeconfig, context, namespace = _resolved(settings)
    return {
        "kubeconfig": kubeconfig,
        "context": context,
        "namespace": namespace,
        "python": python,
        "image": settings.image,
        "resources": _pairs(settings.resources, _QUANTITY, "a list of resources", "cpu=8,nvidia.com/gpu=1"),
        "node": _pairs(settings.node, _LABEL, "a list of labels", "pool=h200"),
        "queue": settings.queue,
        "exclusive_node": settings.exclusive,
        "pod": _pod_file(settings.pod) if settings.pod else {},
        "wait_s": 60 * settings.wait,
        "deadline_s": int(timeout_s) + START_S,
    }


def reached_as(request: Mapping[str, Any]) -> str:
    """The cluster and namespace of a request, for a person."""
    return f"kubernetes://{request['namespace']}" + (f" ({request['context']})" if request["context"] else "")


def _pairs(text: str, value: re.Pattern[str], kind: str, example: str) -> dict[str, str]:
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    wrong = [key for key, equals, given in pairs if not (equals and _KEY.fullmatch(key) and value.fullmatch(given))]
    if wrong:
        raise UsageError("BAD_PLACEMENT", f"{text[:80]!r} is not {kind}: {wrong[0][:40]!r}.", example)
    return {key: given for key, _, given in pairs}


def _pod_file(name: str) -> dict[str, Any]:
    """A manifest of a Pod. Raises UsageError BAD_PLACEMENT."""
    try:
        given = yaml.safe_load(Path(name).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())[:200]
        raise UsageError("BAD_PLACEMENT", f"{name[:80]} cannot be read: {said}.", "AISP_KUBE_POD") from error
    template = given if isinstance(given, dict) else {}
    spec = template.get("spec")
    if not isinstance(spec, dict) or not all(isinstance(item, dict) for item in spec.get("containers") or ()):
        raise UsageError("BAD_PLACEMENT", f"{name[:80]} is no manifest of a Pod: it has no spec.", "kind: Pod")
    return {"metadata": template.get("metadata") or {}, "spec": spec}


def _kubeconfig() -> str:
    return os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")


def _resolved(settings: KubernetesSettings) -> tuple[str, str, str]:
    """Kubeconfig, context and namespace; the first two are empty in a pod of the cluster. Raises Unavailable."""
    _, config = _library()
    file = _kubeconfig()
    if not any(os.path.exists(part) for part in file.split(os.pathsep)):
        token = Path("/var/run/secrets/kubernetes.io/serviceaccount")
        if "KUBERNETES_SERVICE_HOST" in os.environ and (token / "token").exists():
            return "", "", settings.namespace or (token / "namespace").read_text().strip()
        raise Unavailable("KUBE_CONFIG", f"There is no kubeconfig: {file}.", HINTS["KUBE_CONFIG"])
    try:
        contexts, active = config.list_kube_config_contexts(file)
    except Exception as error:  # of yaml, or of the library, which names no common base
        raise _bad_config(file, error) from error
    if settings.context:
        active = next((item for item in contexts if item["name"] == settings.context), None)
    if not active:
        message = f"{file} has no context {settings.context or 'that is current'}."
        raise Unavailable("KUBE_CONFIG", message, HINTS["KUBE_CONFIG"])
    return file, active["name"], settings.namespace or active["context"].get("namespace") or "default"


def _bad_config(file: str, error: Exception) -> Unavailable:
    said = " ".join(str(error).split())[:200].rstrip(".")
    return Unavailable("KUBE_CONFIG", f"{file} cannot be used: {said}.", HINTS["KUBE_CONFIG"])


def _library() -> tuple[Any, Any]:
    """The modules client and config of the package kubernetes. Raises Unavailable NO_KUBERNETES."""
    try:
        from kubernetes import client, config
    except ImportError as error:
        message = "The Python package kubernetes is not installed."
        raise Unavailable("NO_KUBERNETES", message, "pip install 'aisp-mcp[kubernetes]'") from error
    return client, config


def job_name(job_id: str) -> str:
    """The name of a Job: our id has letters that a name may not have."""
    return f"aisp-{hashlib.sha256(job_id.encode()).hexdigest()[:24]}"


def manifest(name: str, tool: str, request: Mapping[str, Any], parts: int, digest: str) -> dict[str, Any]:
    """The Job. parts, digest: of what is sent. A second pod is never started: a failed one is not repeated."""
    labels = {MANAGED: "aisp"} | ({QUEUE_LABEL: request["queue"]} if request["queue"] else {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": {"aisp/tool": tool}},
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "ttlSecondsAfterFinished": KEEP_S,
            **({"suspend": True} if request["queue"] else {}),  # until Kueue admits it
            "template": _template(name, request, parts, digest),
        },
    }


def _template(name: str, request: Mapping[str, Any], parts: int, digest: str) -> dict[str, Any]:
    """The pod: the user's own manifest with our container, which is its first one if it has any."""
    own = request["pod"].get("spec", {})
    metadata = request["pod"].get("metadata", {})
    first, *others = own.get("containers") or [{}]
    keys = [key for key in request["resources"] if key.partition("/")[0] not in _OWN_RESOURCES]
    container = {
        "name": "aisp",
        **first,
        "image": request["image"],
        "command": [request["python"], "-c", Path(unpack.__file__).read_text("utf-8")],
        "args": [],
        "env": [*first.get("env", ()), *_variables(name, digest)],
        "volumeMounts": [
            *first.get("volumeMounts", ()),
            {"name": "aisp-parts", "mountPath": f"{ROOT}/parts", "readOnly": True},
            {"name": "aisp-work", "mountPath": f"{ROOT}/job"},
            {"name": "aisp-shm", "mountPath": "/dev/shm"},  # else 64 MB
        ],
    }
    if request["resources"]:
        container["resources"] = {"requests": request["resources"], "limits": request["resources"]}
    sources = [{"configMap": {"name": part_name(name, number)}} for number in range(parts)]
    spec = {
        "automountServiceAccountToken": False,  # of no use to a job, and a candidate could take it
        **own,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": request["deadline_s"],
        "containers": [container, *others],
        "volumes": [
            *own.get("volumes", ()),
            {"name": "aisp-parts", "projected": {"sources": sources}},
            {"name": "aisp-work", "emptyDir": {}},
            {"name": "aisp-shm", "emptyDir": {"medium": "Memory"}},
        ],
        # Nodes with devices are commonly kept for pods that ask for them.
        "tolerations": [*own.get("tolerations", ()), *({"key": key, "operator": "Exists"} for key in keys)],
        "nodeSelector": {**own.get("nodeSelector", {}), **request["node"]},
    }
    if request["exclusive_node"]:
        spec["affinity"] = {**own.get("affinity", {}), "podAntiAffinity": _ALONE}
    labels = {**metadata.get("labels", {}), MANAGED: "aisp"}
    return {"metadata": {"labels": labels, "annotations": metadata.get("annotations", {})}, "spec": spec}


# The scheduler keeps this in both directions: no other pod joins it either. Pods of DaemonSets have the first label.
_ALONE = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchExpressions": [{"key": "pod-template-generation", "operator": "DoesNotExist"}]},
            "namespaceSelector": {
                "matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
                ]
            },
        }
    ]
}


def _variables(name: str, digest: str) -> Iterator[dict[str, Any]]:
    values = {
        "AISP_POD": ROOT,
        "AISP_POD_SHA": digest,
        "AISP_POD_NEEDS": " ".join(sending.requirements()),
        node.POD_JOB: name,
        "PYTHONUNBUFFERED": "1",
    }
    yield from ({"name": key, "value": value} for key, value in values.items())
    yield {"name": node.POD_NODE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def part_name(name: str, number: int) -> str:
    """The name of a ConfigMap with a part of what is sent."""
    return f"{name}-{number}"


def _parts(name: str, data: bytes, owner: str) -> Iterator[dict[str, Any]]:
    """The ConfigMaps. owner: uid of the Job, with which they are removed."""
    for number, at in enumerate(range(0, len(data), PART_BYTES)):
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner}
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": part_name(name, number),
                "labels": {MANAGED: "aisp"},
                "ownerReferences": [reference],
            },
            "binaryData": {f"part-{number:03d}": base64.b64encode(data[at : at + PART_BYTES]).decode()},
        }


_NAMES, _DATA = "sent.json", "sent.tar.gz"  # in the run folder: an attempt after a first one sends the same


def _pack(row: Any, known: dict[tuple[str, int, int], str], request: Mapping[str, Any]) -> bytes:
    """The archive that is sent for a job: its folders and arguments. Raises UsageError NOT_SENT."""
    folder = Path(row["run_dir"])
    if (folder / _DATA).exists():
        return (folder / _DATA).read_bytes()
    packed = io.BytesIO()
    with sending.folders(row, known) as found, tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        names = {}
        for number, (path, parcel) in enumerate(found.items()):
            names[path] = f"{pod.ROOT}/{number}/{parcel.root.name}"
            for file, mode, _ in parcel.files:
                _add(archive, f"{number}/{parcel.root.name}/{file}", (parcel.root / file).read_bytes(), mode)
        about = sending.job(row, names, f"kubernetes://{request['namespace']}")
        _add(archive, "job.json", json.dumps(about).encode(), 0o600)
    data = packed.getvalue()
    if len(data) > PART_BYTES * MAX_PARTS:
        raise UsageError(
            "NOT_SENT",
            f"What the job needs has {len(data) / 1e6:.1f} MB packed, and {PART_BYTES * MAX_PARTS / 1e6:.1f} MB fit.",
            "Put what the job needs into a folder of its own, and data into the image or a volume (AISP_KUBE_POD).",
        )
    handover.write(folder, _NAMES, names)
    partial = folder / f"{_DATA}.new"
    partial.write_bytes(data)
    partial.replace(folder / _DATA)
    return data


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    archive.addfile(info, io.BytesIO(content))


class SilentError(Exception):
    """The API server did not answer, or not now."""


class Api:
    """One namespace of one cluster, as plain data. Every method raises SilentError and RefusedError."""

    def __init__(self, kubeconfig: str, context: str, namespace: str) -> None:
        client, config = _library()
        configuration = client.Configuration()
        try:
            if kubeconfig:
                config.load_kube_config(kubeconfig, context or None, configuration, persist_config=False)
            else:
                config.load_incluster_config(configuration)
        except Exception as error:  # of yaml, or of the library, which names no common base
            raise _bad_config(kubeconfig, error) from error
        configuration.retries = False
        self._errors = client.ApiException
        shared = client.ApiClient(configuration)
        self.namespace, self.host = namespace, str(configuration.host)
        self.batch, self.core = client.BatchV1Api(shared), client.CoreV1Api(shared)
        self.rights, self.custom = client.AuthorizationV1Api(shared), client.CustomObjectsApi(shared)
        self.version_api = client.VersionApi(shared)

    def ask(self, call: Any, *arguments: Any, **options: Any) -> Any:
        """The answer to a call of the library, as JSON."""
        return json.loads(self._ask(call, *arguments, **options))

    def text(self, call: Any, *arguments: Any, **options: Any) -> str:
        """The answer to a call of the library, as text."""
        return self._ask(call, *arguments, **options).decode("utf-8", "replace")

    def _ask(self, call: Any, *arguments: Any, **options: Any) -> bytes:
        from urllib3.exceptions import HTTPError

        try:
            answer = call(*arguments, _preload_content=False, _request_timeout=TIMEOUTS_S, **options)
            return bytes(answer.data)
        except self._errors as error:
            said = _sentence(error)
            if error.status == 429 or error.status >= 500 or error.status == 0:
                raise SilentError(f"{self.host}: {said}") from error
            raise RefusedError(error.status, said, error.body) from error
        except (HTTPError, OSError) as error:
            said = " ".join(str(error).split())
            raise SilentError(f"{self.host} did not answer: {said[-200:]}") from error

    def create(self, call: Any, body: dict[str, Any]) -> dict[str, Any] | None:
        """Create an object; None if there is one with this name."""
        try:
            created: dict[str, Any] = self.ask(call, self.namespace, body)
        except RefusedError as error:
            if error.status == 409 and error.reason == "AlreadyExists":
                return None
            raise
        return created

    def log(self, name: str, container: str, lines: int | None) -> str:
        """The log of a pod, or its last lines; empty if there is none."""
        options = {} if lines is None else {"tail_lines": lines}
        try:
            return self.text(self.core.read_namespaced_pod_log, name, self.namespace, container=container, **options)
        except RefusedError as error:
            if error.status in (400, 404):  # its container has not started; or it is gone
                return ""
            raise


class RefusedError(Exception):
    """The API server has refused a call. reason: its own word, such as Forbidden."""

    def __init__(self, status: int, message: str, body: Any) -> None:
        super().__init__(message)
        self.status = status
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            self.reason = str(json.loads(body).get("reason") or "")
            return
        self.reason = ""


def _sentence(error: Any) -> str:
    """The server's own words, in one line."""
    with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
        return " ".join(str(json.loads(error.body)["message"]).split())[:400]
    return " ".join(f"{error.status} {error.reason}".split())[:400]


class Kubernetes:
    """All clusters that this process's user reaches; which one is in the request of a job."""

    title = "Kubernetes"
    tick_s: ClassVar[float] = 1.0
    settle_s: ClassVar[float] = 5.0
    grace_s: ClassVar[float] = 60.0  # a node that is gone for a moment still has the log
    linger_s: ClassVar[float] = 10.0

    def __init__(self) -> None:
        self._apis: dict[tuple[str, str, str], Api] = {}
        self._hashes: dict[tuple[str, int, int], str] = {}
        self._silent_since: float | None = None
        self._forbidden_since: dict[str, float] = {}

    def submission_of(self, row: Any) -> str:
        """Each job is submitted by itself."""
        return str(row["id"])

    def submit(self, rows: Sequence[Any]) -> dict[str, Submission]:
        """Create the Job and what it mounts, each unless it is there. Raises AispError if it is refused."""
        (row,) = rows
        request = json.loads(row["placement"])
        name = job_name(row["id"])
        data = _pack(row, self._hashes, request)
        try:
            api = self._api(request)
            parts = -(-len(data) // PART_BYTES)
            made = manifest(name, row["tool"], request, parts, hashlib.sha256(data).hexdigest())
            job = api.create(api.batch.create_namespaced_job, made)
            if job is None:
                job = api.ask(api.batch.read_namespaced_job, name, api.namespace)
            try:
                for part in _parts(name, data, job["metadata"]["uid"]):
                    api.create(api.core.create_namespaced_config_map, part)
            except RefusedError:
                self._delete(api, name)  # it would wait for them
                raise
        except SilentError as error:
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            if now - self._silent_since > UNREACHABLE_S and not row["handle"]:
                raise Unavailable("KUBE_UNREACHABLE", str(error), HINTS["KUBE_UNREACHABLE"]) from error
            return {row["id"]: Submission(None, str(error))}
        except RefusedError as error:
            since = self._forbidden_since.setdefault(row["id"], time.monotonic())
            if error.status == 403 and " cannot " in str(error) and time.monotonic() - since < FORBIDDEN_S:
                return {row["id"]: Submission(None, str(error))}
            raise Unavailable("KUBE_REFUSED", str(error), HINTS["KUBE_REFUSED"]) from error
        self._silent_since = None
        return {row["id"]: Submission(f"{api.namespace}/{name}", f"Job {name} in {api.namespace}")}

    def poll(self, rows: list[Any]) -> dict[str, ExecutorState]:
        """States by two lists for each namespace; logs of jobs that run, and answers, are written to run folders."""
        by_place: dict[tuple[str, str, str], list[Any]] = {}
        for row in rows:
            by_place.setdefault(_place(json.loads(row["placement"])), []).append(row)
        states = {}
        for there in by_place.values():
            try:
                states.update(self._poll(self._api(json.loads(there[0]["placement"])), there))
            except (SilentError, RefusedError, AispError) as error:
                states.update({row["id"]: ExecutorState("silent", message=str(error)) for row in there})
        return states

    def cancel(self, row: Any) -> bool:
        """Delete the Job: its pod is asked to end, and killed after its grace period."""
        try:
            self._delete(self._api(json.loads(row["placement"])), job_name(row["id"]))
        except (SilentError, RefusedError, AispError):
            return False
        return True

    def discard(self, handle: str) -> None:
        """Nothing: a job cannot be there twice."""

    def tail(self, row: Any, limit: int) -> str:
        """The end of the log, as of the last look."""
        return log.tail(Path(row["run_dir"]), limit)

    def forget(self, row: Any) -> None:
        """Delete the Job, and with it all that it owns; if that fails, the cluster does so after a week."""
        (Path(row["run_dir"]) / _DATA).unlink(missing_ok=True)
        self.cancel(row)

    def _api(self, request: Mapping[str, Any]) -> Api:
        place = _place(request)
        if place not in self._apis:
            self._apis[place] = Api(*place)
        return self._apis[place]

    def _delete(self, api: Api, name: str) -> None:
        try:
            api.ask(api.batch.delete_namespaced_job, name, api.namespace, propagation_policy="Background")
        except RefusedError as error:
            if error.status != 404:
                raise

    def _poll(self, api: Api, rows: Sequence[Any]) -> dict[str, ExecutorState]:
        ours = {"label_selector": f"{MANAGED}=aisp"}
        # An answer may be older than the next one, but pods must not be older than their Jobs.
        jobs = _by_name(api.ask(api.batch.list_namespaced_job, api.namespace, **ours))
        pods: dict[str, list[dict[str, Any]]] = {}
        for item in _by_name(api.ask(api.core.list_namespaced_pod, api.namespace, **ours)).values():
            labels = item["metadata"].get("labels", {})
            owner = next((labels[label] for label in JOB_LABELS if label in labels), "")
            pods.setdefault(owner, []).append(item)
        states = {}
        for row in rows:
            name = job_name(row["id"])
            if not row["handle"]:
                continue  # submitted once more, since what it mounts may be missing
            if name in jobs:
                mine = sorted(pods.get(name, ()), key=lambda item: str(item["metadata"]["creationTimestamp"]))
                states[row["id"]] = self._seen(api, row, jobs[name], mine[0] if mine else None)
            else:
                states[row["id"]] = ExecutorState("unknown", message=f"{api.namespace} has no Job {name}")
        return states

    def _seen(self, api: Api, row: Any, job: dict[str, Any], its_pod: dict[str, Any] | None) -> ExecutorState:
        """The state of one job. A Job whose pod cannot start is ended here, with the reason as its answer."""
        handle = f"{api.namespace}/{job['metadata']['name']}"
        request = json.loads(row["placement"])
        if its_pod is None:
            failed = _condition(job, "Failed")
            if failed:
                said = failed.get("message") or failed.get("reason")
                return self._refuse(row, handle, "", "POD_LOST", f"its pod is gone: {said}")
            return self._waits(row, request, handle, _why_no_pod(api, job, request))
        status, where = its_pod["status"], its_pod["spec"].get("nodeName") or ""
        container = its_pod["spec"]["containers"][0]["name"]
        found = [item["state"] for item in status.get("containerStatuses") or () if item["name"] == container]
        state: dict[str, Any] = found[0] if found else {}
        name = its_pod["metadata"]["name"]
        if "terminated" in state or status.get("phase") in ("Succeeded", "Failed"):
            text = api.log(name, container, None)
            if self._took(row, request, handle, where, text):
                return ExecutorState("ended", "COMPLETED", f"ended on {where}", handle, where)
            terminated = state.get("terminated") or {}
            word, message = _ending(status, terminated, where)
            if terminated.get("reason") in ("StartError", "ContainerCannotRun"):
                return self._refuse(row, handle, where, "KUBE_NOT_STARTED", message)
            if word == "POD_LOST":
                return self._refuse(row, handle, where, word, message)
            return ExecutorState("ended", word, message, handle, where, terminated.get("exitCode"))
        if "running" in state:
            self._read_log(row, api.log(name, container, _LOG_LINES), handle)
            return ExecutorState("running", "Running", f"runs on {where}", handle, where)
        return self._starts(row, request, handle, its_pod, state.get("waiting") or {})

    def _starts(
        self, row: Any, request: Mapping[str, Any], handle: str, its_pod: dict[str, Any], waiting: dict[str, Any]
    ) -> ExecutorState:
        """The state of a job whose pod has not started."""
        reason, said = waiting.get("reason", ""), " ".join(str(waiting.get("message") or "").split())[:300]
        where = its_pod["spec"].get("nodeName") or ""
        if reason in _NO_IMAGE or reason in _NO_START:
            scheduled = _condition(its_pod, "PodScheduled") or {}
            patient = _age(scheduled.get("lastTransitionTime")) < _PULL_S
            if reason in _FINAL or any(word in said for word in _FINAL_PULL) or not patient:
                code = "KUBE_IMAGE" if reason in _NO_IMAGE else "KUBE_NOT_STARTED"
                return self._refuse(row, handle, where, code, f"{request['image']}: {said or reason}")
            return ExecutorState("waiting", reason, f"waits on {where} for its image: {said or reason}", handle, where)
        unscheduled = _condition(its_pod, "PodScheduled", "False")
        if unscheduled:
            said = " ".join(str(unscheduled.get("message") or unscheduled.get("reason")).split())[:300]
            return self._waits(row, request, handle, f"waits for a node: {said}")
        return ExecutorState("waiting", reason or "Pending", f"starts on {where}: {reason or 'Pending'}", handle, where)

    def _waits(self, row: Any, request: Mapping[str, Any], handle: str, message: str) -> ExecutorState:
        """The state of a job without a node, which is given up if it has waited long enough."""
        waited = time.time() - row["created_at"]
        if request["wait_s"] and waited > request["wait_s"]:
            said = f"after {waited / 60:.0f} minutes, it still {message}"
            return self._refuse(row, handle, "", "UNSCHEDULABLE", said)
        return ExecutorState("waiting", "Pending", message, handle)

    def _refuse(self, row: Any, handle: str, where: str, code: str, message: str) -> ExecutorState:
        """Leave an error as the answer of a job that cannot run; with it, the watcher ends the job and its Job."""
        folder = Path(row["run_dir"])
        sentence = f"Kubernetes cannot run {row['tool']}: {message.rstrip('.')}."
        answer = endings.failure(row["tool"], row["id"], code, sentence, None, HINTS.get(code))
        handover.write(folder, "envelope.json", json.loads(answer))
        self._left(folder, handle, {"state": JobState.FAILED, "exit_code": None, "node": where})
        return ExecutorState("ended", code, message, handle, where)

    def _left(self, folder: Path, handle: str, left: dict[str, Any]) -> None:
        handover.take_claim(folder, handle)
        times = {"started_at": time.time(), "ended_at": time.time(), "reason": None}
        handover.write(folder, handover.EXIT, {**times, **left})

    def _took(self, row: Any, request: Mapping[str, Any], handle: str, where: str, text: str) -> bool:
        """Write the answer in a pod's log to the run folder; False if there is none."""
        folder = Path(row["run_dir"])
        errors = [line for line in text.splitlines() if line.startswith(unpack.ERROR)]
        if errors and pod.END not in text:
            said = json.loads(errors[-1][len(unpack.ERROR) :])
            self._refuse(row, handle, where, said["code"], said["message"])
            return True
        answer = pod.read_answer(text)
        if answer is None:
            self._read_log(row, text, handle)
            if pod.END in text:
                self._refuse(row, handle, where, "KUBE_LOST_ANSWER", "the node has cut its log, and the answer in it")
                return True
            return False
        files, left = answer
        names = {there: here for here, there in (handover.read(folder, _NAMES) or {}).items()}
        names[f"{pod.ROOT}/home/runs/{row['id']}"] = str(folder)
        own = {"envelope.json", handover.ROWS, handover.EXIT}
        for name, content in files.items():
            target = folder / name
            if name not in own and not Path(name).is_absolute() and ".." not in Path(name).parts:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        read = {name: json.loads(files[name]) for name in own if name in files}
        if read.get(handover.EXIT, {}).get("state") == JobState.CANCELLED and not row["cancel"]:
            self._refuse(row, handle, where, "POD_LOST", "its pod was told to end: deleted, drained or preempted")
            return True
        envelope = read.get("envelope.json")
        if envelope and left:
            shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
            envelope.setdefault("warnings", []).append(f"Too large to come back from the pod: {shown}.")
        host = f"{where} ({reached_as(request)})"
        rows = read.get(handover.ROWS) or {"runs": [], "measurements": []}
        sending.take(folder, rows, envelope, names, host)
        if handover.EXIT in read:
            self._left(folder, handle, {**read[handover.EXIT], "node": where})
        return handover.EXIT in read

    def _read_log(self, row: Any, text: str, handle: str) -> None:
        """Write progress and log of a running job to its run folder."""
        folder = Path(row["run_dir"])
        lines = text.splitlines()
        logged = "".join(f"{line[len(pod.LOG) :]}\n" for line in lines if line.startswith(pod.LOG))
        if logged:
            (folder / log.NAME).write_text(logged, "utf-8")
        said = [line for line in lines if line.startswith(pod.PROGRESS)]
        handover.take_claim(folder, handle)
        if said:
            with contextlib.suppress(ValueError):  # cut off
                handover.write(folder, handover.PROGRESS, json.loads(said[-1][len(pod.PROGRESS) :]))


NEEDED = (
    *(("batch", "jobs", verb) for verb in ("create", "get", "list", "delete")),
    ("", "configmaps", "create"),
    ("", "pods", "list"),
    ("", "pods/log", "get"),
)


def check(request: Mapping[str, Any]) -> Iterator[tuple[str, bool, str]]:
    """Needs of a job in the cluster, for `aisp doctor`: name, whether it is there, and a sentence.

    Raises Unavailable.
    """
    return _checked(Api(*_place(request)), request)


def _checked(api: Api, request: Mapping[str, Any]) -> Iterator[tuple[str, bool, str]]:
    began = time.monotonic()
    try:
        version = api.ask(api.version_api.get_code)["gitVersion"]
    except (SilentError, RefusedError) as error:
        yield "connection", False, f"{error}. {HINTS['KUBE_CONFIG']}"
        return
    where = f"namespace {request['namespace']}, context {request['context'] or 'of this pod'}"
    took = 1e3 * (time.monotonic() - began)
    yield "connection", True, f"{api.host}, {version}, {where}; answers in {took:.0f} ms"
    try:
        lacking = [f"{verb} {resource}" for group, resource, verb in NEEDED if not _may(api, group, resource, verb)]
        yield "rights", not lacking, f"missing: {', '.join(lacking)}" if lacking else "all that aisp needs"
        body = manifest(job_name(f"check {time.time()}"), "aisp_doctor", request, 1, "")
        api.ask(api.batch.create_namespaced_job, api.namespace, body, dry_run="All")
        yield "job", True, "the API server would accept it"
    except (SilentError, RefusedError) as error:
        yield "job", False, str(error)
    yield from _nodes(api, request)
    if request["queue"]:
        yield _queue(api, request["queue"])


def _may(api: Api, group: str, resource: str, verb: str) -> bool:
    kind, _, below = resource.partition("/")
    wanted = {"namespace": api.namespace, "verb": verb, "group": group, "resource": kind, "subresource": below}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = api.ask(api.rights.create_self_subject_access_review, {**review, "spec": {"resourceAttributes": wanted}})
    return bool(answer["status"]["allowed"])


def _nodes(api: Api, request: Mapping[str, Any]) -> Iterator[tuple[str, bool, str]]:
    """One need: whether any node can have the labels and devices, where nodes may be listed at all."""
    try:
        selector = ",".join(f"{key}={value}" for key, value in request["node"].items())
        nodes = api.ask(api.core.list_node, label_selector=selector).get("items") or ()
    except (SilentError, RefusedError):
        yield "nodes", True, "may not be listed by this user"
        return
    devices = {key: int(value) for key, value in request["resources"].items() if key not in _OWN_RESOURCES}
    fitting = [
        item
        for item in nodes
        if all(int(item["status"].get("allocatable", {}).get(key, 0)) >= count for key, count in devices.items())
    ]
    asked = ", ".join([*(f"{key}={value}" for key, value in request["node"].items()), *devices]) or "no conditions"
    yield "nodes", bool(fitting), f"{len(fitting)} of {len(nodes)} fit: {asked}"


def _queue(api: Api, name: str) -> tuple[str, bool, str]:
    place = ("kueue.x-k8s.io", "v1beta1", api.namespace, "localqueues", name)
    try:
        api.ask(api.custom.get_namespaced_custom_object, *place)
    except (SilentError, RefusedError) as error:
        return "queue", False, f"{name}: {error}"
    return "queue", True, f"{name} exists"


_NO_IMAGE = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_NO_START = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_FINAL = (*_NO_START, "InvalidImageName", "ErrImageNeverPull")
# Of a registry's answer; another attempt would have the same.
_FINAL_PULL = ("not found", "denied", "nauthorized", "manifest unknown", "invalid reference")
_LOST = ("Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "UnexpectedAdmissionError")
_WORDS = {"OOMKilled": "OUT_OF_MEMORY", "DeadlineExceeded": "TIMEOUT"} | dict.fromkeys(_LOST, "POD_LOST")


def _place(request: Mapping[str, Any]) -> tuple[str, str, str]:
    return request["kubeconfig"], request["context"], request["namespace"]


def _by_name(listed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item for item in listed.get("items") or ()}


def _condition(item: dict[str, Any], kind: str, status: str = "True") -> dict[str, Any] | None:
    conditions = item.get("status", {}).get("conditions") or ()
    return next((found for found in conditions if found["type"] == kind and found["status"] == status), None)


def _age(at: str | None) -> float:
    """Seconds since a time of the cluster."""
    return time.time() - datetime.fromisoformat(at).timestamp() if at else 0.0


def _why_no_pod(api: Api, job: dict[str, Any], request: Mapping[str, Any]) -> str:
    """Why a Job has no pod yet: its queue, or the last warning about it."""
    if job["spec"].get("suspend"):
        queue = request["queue"]
        return f"waits for {f'the queue {queue}' if queue else 'someone who resumes it'}: its Job is suspended"
    selector = f"involvedObject.uid={job['metadata']['uid']},type=Warning"
    with contextlib.suppress(SilentError, RefusedError):
        events = api.ask(api.core.list_namespaced_event, api.namespace, field_selector=selector).get("items") or ()
        if events:
            said = " ".join(str(events[-1].get("message")).split())[:300]
            return f"waits for a pod: {said}"
    return "waits for a pod"


def _ending(status: dict[str, Any], terminated: dict[str, Any], where: str) -> tuple[str, str]:
    """Our word for the end of a pod that left no answer, and one sentence."""
    reasons = [status.get("reason") or "", terminated.get("reason") or ""]
    disrupted = _condition({"status": status}, "DisruptionTarget")
    word = next((_WORDS[reason] for reason in reasons if reason in _WORDS), "POD_LOST" if disrupted else "")
    said = status.get("message") or terminated.get("message") or (disrupted or {}).get("message") or ""
    reason = next(filter(None, reasons), "ended without an answer")
    sentence = " ".join(f"pod {reason} on {where}{': ' if said else ''}{said}".split())[:400].rstrip(".")
    return word or ("COMPLETED" if terminated.get("exitCode") == 0 else "FAILED"), sentence
