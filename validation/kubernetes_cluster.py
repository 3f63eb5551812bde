"""A real control plane on this machine: etcd, API server, controllers and scheduler, and a node that is played.

The programs come from a folder: `kube-apiserver`, `kube-controller-manager` and `kube-scheduler` of any version since
1.20, and `etcd`. The node runs the first container of a pod as a process of this machine and has no images; it mounts
ConfigMaps, serves logs to the API server as a kubelet does, and reports states as a kubelet does.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import random
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from kubernetes import client, config
from kubernetes_node import NODE, RunningPod, missing_parts, now

NAMESPACE = "bench"
GPUS = 1
# What docs/kubernetes.md asks for.
ROLE = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "delete"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]


def free_port() -> int:
    """A free port, below those of connections: one of them could have it while a server restarts."""
    while True:
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port := random.randrange(20_000, 32_000)))
            return port


class Cluster:
    """One control plane with its data in a folder; users: admin, member (has the role) and stranger (has no rights)."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs
        self.etcd_port, self.port = free_port(), free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ended: list[str] = []  # last words of API servers that ended by themselves
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (folder / "key.pem").write_bytes(pem)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NODE)])
        start = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(start - datetime.timedelta(hours=1))
            .not_valid_after(start + datetime.timedelta(days=1))
            .sign(key, hashes.SHA256())
        )
        (folder / "node.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + pem)
        (folder / "tokens.csv").write_text(
            'admin-token,admin,1,"system:masters"\nmember-token,member,2,""\nstranger-token,stranger,3,""\n'
        )
        for user in ("admin", "member", "stranger"):
            self._write_kubeconfig(user)

    def kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user}.kubeconfig"

    def _write_kubeconfig(self, user: str) -> None:
        server = {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}
        context = {"cluster": "real", "user": user, "namespace": NAMESPACE}
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": server}],
            "users": [{"name": user, "user": {"token": f"{user}-token"}}],
            "contexts": [{"name": "real", "context": context}],
            "current-context": "real",
        }
        self.kubeconfig(user).write_text(yaml.safe_dump(text))

    def start(self) -> None:
        """Start everything, and wait until the namespace can be used."""
        self._run("etcd", self._etcd())
        self.start_api()
        admin = str(self.kubeconfig("admin"))
        common = ("--kubeconfig", admin, "--leader-elect=false", "--port=0", f"--cert-dir={self.folder}/certs")
        controllers = "job,garbagecollector,namespace,serviceaccount,serviceaccount-token,resourcequota,podgc"
        key = f"--service-account-private-key-file={self.folder}/key.pem"
        words = (*common, f"--controllers={controllers}", key, f"--secure-port={free_port()}")
        self._run("kube-controller-manager", words)
        self._run("kube-scheduler", (*common, f"--secure-port={free_port()}"))
        api = self.api()
        core = client.CoreV1Api(api)
        core.create_namespace({"metadata": {"name": NAMESPACE}})
        rights = client.RbacAuthorizationV1Api(api)
        rights.create_namespaced_role(NAMESPACE, {"metadata": {"name": "aisp"}, "rules": ROLE})
        subject = {"kind": "User", "name": "member", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "Role", "name": "aisp", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "aisp"}, "subjects": [subject], "roleRef": role}
        rights.create_namespaced_role_binding(NAMESPACE, binding)
        _patiently(lambda: core.read_namespaced_service_account("default", NAMESPACE).secrets or 1 / 0)

    def start_api(self) -> None:
        """Start the API server, also after stop_api(); its data is in etcd."""
        words = (
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=10.231.9.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder}/certs",
            "--service-cluster-ip-range=10.232.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self.folder}/key.pem",
            f"--service-account-key-file={self.folder}/key.pem",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--kubelet-preferred-address-types=InternalIP",
        )
        self._run("kube-apiserver", words)
        _patiently(lambda: self._answers(words))

    def _answers(self, words: tuple[str, ...]) -> None:
        """Raise if the API server does not answer yet. It ends if etcd takes 20 s to answer, as on a busy machine, and
        is then started again, as a kubelet does.
        """
        if self._processes["kube-apiserver"].poll() is not None:
            self.ended.append((self.folder / "kube-apiserver.log").read_text().splitlines()[-1])
            self._run("kube-apiserver", words)
        client.VersionApi(self.api()).get_code()

    def stop_api(self) -> None:
        process = self._processes.pop("kube-apiserver")
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in reversed(list(self._processes.values())):
            process.kill()
            process.wait()

    def api(self) -> Any:
        """A client with all rights."""
        configuration = client.Configuration()
        config.load_kube_config(str(self.kubeconfig("admin")), client_configuration=configuration)
        return client.ApiClient(configuration)

    def version(self) -> str:
        return str(client.VersionApi(self.api()).get_code().git_version)

    def _etcd(self) -> tuple[str, ...]:
        peer, own = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{self.etcd_port}"
        return (
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={own}",
            f"--advertise-client-urls={own}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )

    def _run(self, program: str, words: tuple[str, ...]) -> None:
        with open(self.folder / f"{program}.log", "ab") as out:
            argv = [str(self.programs / program), *words]
            self._processes[program] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def _patiently(call: Any, patience_s: float = 300.0) -> Any:
    end = time.monotonic() + patience_s
    while True:
        try:
            return call()
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


class Node:
    """The node. pull: (reason, message) of images that contain a word. hold: pods are not started."""

    def __init__(self, cluster: Cluster) -> None:
        self.folder = cluster.folder / "pods"
        self.folder.mkdir()
        self.core = client.CoreV1Api(cluster.api())
        self.pull: dict[str, tuple[str, str]] = {}
        self.running: dict[str, RunningPod] = {}
        self.ran: list[str] = []
        self._told: dict[str, str] = {}
        self._stop = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cluster.folder / "node.pem")
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._threads = [threading.Thread(target=self._http.serve_forever), threading.Thread(target=self._work)]

    def __enter__(self) -> Node:
        self.core.create_node({"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE, "pool": "a"}}})
        room = {"cpu": "64", "memory": "64Gi", "pods": "110", "ephemeral-storage": "50Gi", "nvidia.com/gpu": str(GPUS)}
        port = {"kubeletEndpoint": {"Port": self._http.server_address[1]}}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}
        status = {
            "capacity": room,
            "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": port,
            "conditions": [ready],
        }
        self.core.patch_node_status(NODE, {"status": status})
        self.core.patch_node(NODE, {"spec": {"taints": None}})
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._http.shutdown()
        for thread in self._threads:
            thread.join()
        for pod in self.running.values():
            pod.end(1)

    def _work(self) -> None:
        while not self._stop.wait(0.2):
            with contextlib.suppress(Exception):  # the API server is down for a while
                listed = self.core.list_namespaced_pod(
                    NAMESPACE, field_selector=f"spec.nodeName={NODE}", _preload_content=False
                )
                for pod in json.loads(listed.data)["items"]:
                    self._look(pod)

    def _look(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp"):
            if name in self.running:
                self.running.pop(name).end(5)
            self.core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)
            shutil.rmtree(self.folder / name, ignore_errors=True)
            return
        if pod["status"]["phase"] in ("Succeeded", "Failed"):
            return
        container = pod["spec"]["containers"][0]
        reason = next((why for word, why in self.pull.items() if word in container["image"]), None)
        if reason:
            state: dict[str, Any] = {"waiting": {"reason": reason[0], "message": reason[1]}}
        elif missing_parts(pod, self._config_map):
            state = {"waiting": {"reason": "ContainerCreating"}}
        else:
            if name not in self.running:
                try:
                    self.running[name] = RunningPod(pod, self.folder / name, self._config_map)
                    self.ran.append(name)
                except FileNotFoundError as error:
                    said = f'exec: "{error.filename}": stat {error.filename}: no such file or directory'
                    ended = {"exitCode": 128, "reason": "StartError", "message": said, "startedAt": now()}
                    self._tell(name, container, "Failed", {"terminated": {**ended, "finishedAt": now()}})
                    return
            state = self.running[name].state()
        ended = state.get("terminated")
        phase = "Running" if "running" in state else "Pending"
        if ended:
            phase = "Succeeded" if ended["exitCode"] == 0 else "Failed"
        self._tell(name, container, phase, state)

    def _tell(self, name: str, container: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        status = {
            "phase": phase,
            "startTime": now(),
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "state": {kind: state.get(kind) for kind in ("waiting", "running", "terminated")},
                }
            ],
        }
        if self._told.get(name) != (told := f"{phase} {sorted(state)} {state.get('waiting')}"):
            self.core.patch_namespaced_pod_status(name, NAMESPACE, {"status": status})
            self._told[name] = told

    def _config_map(self, name: str) -> dict[str, str] | None:
        try:
            return dict(self.core.read_namespaced_config_map(name, NAMESPACE).binary_data)
        except client.ApiException as error:
            if error.status != 404:
                raise
            return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                found = re.fullmatch(r"/containerLogs/[\w-]+/([\w.-]+)/[\w-]+", parts.path)
                path = node.folder / found[1] / "log" if found else Path("/nowhere")
                if not path.exists():
                    self.send_error(404)
                    return
                data = path.read_bytes()
                lines = parse_qs(parts.query).get("tailLines")
                if lines:
                    data = b"".join(data.splitlines(keepends=True)[-int(lines[0]) :])
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextlib.contextmanager
def started(folder: Path, programs: Path) -> Iterator[tuple[Cluster, Node]]:
    """A cluster with its node."""
    cluster = Cluster(folder, programs)
    try:
        cluster.start()
        with Node(cluster) as node:
            yield cluster, node
    finally:
        cluster.stop()
