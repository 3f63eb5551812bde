"""A verifier that opens the specification, begun for this comparison or at the end of the one before it.

Opening takes a second on a GPU and does not depend on the candidate. Where comparisons of one specification follow one
another, each in a process of its own, each leaves a new verifier to the next: a process with memory of its own, which
has met no candidate. It belongs to a fork server that outlives its callers (processes/forked.py) and waits in their
folder under a name that stands for everything it was opened with. Whoever comes next takes it, or ends it if its name
is another one.

Modules that programs import in their first call are imported once, in the process from which theirs are forked:
`torch.use_deterministic_algorithms()` and `torch.compile` each import a thousand modules, which takes seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from aisp_mcp.errors import BenchmarkError, Unavailable
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.parent.processes import forked, verifier_client
from aisp_mcp.judge.parent.processes.confined import Placement
from aisp_mcp.judge.parent.processes.forked import ForkServer, Unsealed
from aisp_mcp.judge.parent.processes.placement import PlacementFactory, aside
from aisp_mcp.judge.parent.processes.verifier_client import VerifierProcess
from aisp_mcp.judge.protocol.messages import OpenAnswer
from aisp_mcp.judge.protocol.module_loader import common_of, own_files, problem_files, source_text
from aisp_mcp.process import sockets

SUFFIX = ".opening"
ANSWER_S = 10.0  # for a server that waits
SEALABLE = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
UNNAMED = ("seed", "files_at")  # fields of a request that its name does not stand for: a secret, and folders


@dataclass
class Opening:
    """A verifier that opens a specification. fds: (control block, arena) of each worker. placement: of the verifier.
    forks: the server that it belongs to, if an earlier comparison began it.
    """

    verifier: VerifierProcess
    fds: list[tuple[int, int]]
    placement: Placement
    forks: ForkServer | None = None

    def answer(self, request: Request) -> OpenAnswer:
        """The verifier's answer. Raises BenchmarkError for errors of the specification.

        If an earlier comparison began it, and it failed or has ended, it is begun again: other programs may have taken
        the memory.
        """
        try:
            answer = cast(OpenAnswer, self.verifier.collect("open"))
            if self.forks is None or self.verifier.process.poll() is None:
                return answer
        except BenchmarkError:
            if self.forks is None:
                raise
        self._end()
        again = replace(request, placement=self.placement).begun()
        self.verifier, self.fds, self.forks = again.verifier, again.fds, None
        return cast(OpenAnswer, self.verifier.collect("open"))

    def close(self) -> None:
        """End the verifier, release its memory, and remove its folder."""
        self._end()
        shutil.rmtree(self.placement.folder, ignore_errors=True)

    def _end(self) -> None:
        self.verifier.close()
        _close(fd for pair in self.fds for fd in pair)
        if self.forks:
            self.forks.close()


@dataclass(frozen=True)
class Request:
    """A request to open a specification. fields: of the message. placement: of the verifier. modules: to be imported
    before it is forked. workers: how many share memory with it. file_bytes: see memory_files(). patience_s: how long it
    may take for an answer.
    """

    fields: dict[str, Any]
    placement: Placement
    modules: tuple[str, ...]
    workers: int
    file_bytes: int
    patience_s: float

    def begun(self, forks: ForkServer | None = None) -> Opening:
        """A new verifier that opens it. forks: the server to fork it from."""
        server = forks or verifier_client.fork_server(self.placement)
        server.load(self.modules)
        fds = [memory_files(self.file_bytes) for _ in range(self.workers)]
        verifier = verifier_client.started([fd for pair in fds for fd in pair], self.placement, server, self.patience_s)
        verifier.post("open", **self.fields)
        return Opening(verifier, fds, self.placement, forks)

    @property
    def name(self) -> str:
        """Name of the socket at which a verifier with this request waits."""
        fields = {name: value for name, value in self.fields.items() if name not in UNNAMED}
        baseline = Path(fields["path"])
        files = baseline, common_of(baseline), *problem_files(baseline), *own_files(baseline)
        texts = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.is_file()]
        libraries = verifier_client.libraries(self.placement).name
        facts = [fields, texts, libraries, self.modules, self.workers, self.file_bytes]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24] + SUFFIX

    def left(self) -> Opening | None:
        """The verifier that the comparison before has left, if it opens the same. Any other one is ended."""
        folder, found = forked.kept_folder(), None
        for path in folder.glob(f"*{SUFFIX}") if folder else ():
            if opening := _taken(path, self.placement):
                if found or path.name != self.name:
                    opening.close()
                else:
                    found = opening
        return found

    def leave(self, where: PlacementFactory) -> None:
        """Begin one for the next comparison, if servers are kept loaded for it. where: of this comparison's processes.

        Errors are those of the next comparison, which then begins its own.
        """
        folder = forked.kept_folder(for_next=True)
        if folder is None or (channel := verifier_client.libraries(self.placement).connected(folder)) is None:
            return
        with suppress(Unavailable, Unsealed, OSError), channel, ExitStack() as stack:
            placement = replace(where, root=folder, level="L1").make(secrets.token_hex(8))
            files_at = dict.fromkeys(self.fields["files_at"], str(placement.folder / "files"))
            own = replace(self, placement=placement, fields={**self.fields, "files_at": files_at})
            name = self.name
            listener = stack.enter_context(sockets.listening(folder / name))
            forks = ForkServer(None, channel)
            with aside(where.cpus):
                begun = own.begun(forks)
            stack.callback(begun.verifier.leave)
            shared = [fd for pair in begun.fds for fd in pair]
            stack.callback(_close, shared)
            fds = [*begun.verifier.pipes, *shared]
            forks.hand_on(begun.verifier.process, listener, name, [str(placement.folder)], fds)


def memory_files(size: int = 0) -> tuple[int, int]:
    """(control block, arena) of a worker: anonymous files that no other process can open by name.

    size: in bytes, of each; with 0, whoever maps them first sets it.
    """
    pair = os.memfd_create("aisp-control", SEALABLE), os.memfd_create("aisp-arena", SEALABLE)
    for fd in pair if size else ():
        os.ftruncate(fd, size)  # a large enough file is mapped as it is
    return pair


def _taken(path: Path, placement: Placement) -> Opening | None:
    """The verifier that waits at that socket."""
    channel = sockets.connected(path, ANSWER_S)
    if channel is None:
        path.unlink(missing_ok=True)  # its server has ended
        return None
    forks = ForkServer(None, channel)
    try:
        process, (folder,), (asks, answers, *fds) = forks.handed_on()
    except (OSError, Unsealed):
        forks.close()
        return None
    pairs = list(zip(fds[::2], fds[1::2], strict=True))
    placed = replace(placement, folder=Path(folder), seen=Path(folder))
    return Opening(VerifierProcess(process, asks, answers), pairs, placed, forks)


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


TRITON = "aisp_mcp.judge.candidate.triton_key"
MODULES = {
    re.compile(r"\btriton\b"): TRITON,
    re.compile(r"\buse_deterministic_algorithms\b"): "torch._inductor.config",
    re.compile(r"\btorch\.(compile|_dynamo|_inductor)\b"): "torch._inductor.compile_fx",
}


def of_baseline(baseline: Path) -> list[str]:
    """Modules that the texts of the baseline and of its problem name."""
    return _named([baseline, common_of(baseline), *problem_files(baseline)])


def of_candidate(pair: Pair) -> list[str]:
    """Modules that the candidate's text names."""
    return _named([pair.path])


def likely(baseline: Path, device: str) -> list[str]:
    """Modules that candidates for this baseline are likely to name: its own, and Triton on a GPU."""
    return list(dict.fromkeys([*of_baseline(baseline), *([TRITON] if device == "cuda" else [])]))


def _named(paths: Iterable[Path]) -> list[str]:
    text = "\n".join(map(source_text, paths))
    return [module for pattern, module in MODULES.items() if pattern.search(text)]
