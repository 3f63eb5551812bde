"""Inputs in files: the verifier writes new ones for each call and each worker, and the call gets a path.

Each worker has its own folder. From L2 on it can read that folder but neither write to it nor list it, and the files of
a call are below a random name: the worker learns a path only when the call's inputs are handed over.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.bench import Cache, File, Folder
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.layout import PATH_BYTES
from aisp_mcp.judge.protocol.shared_memory import Arena

# Per round of a worker. Files: each costs some 30 µs to write and remove, so chosen for some 15 ms. Cold calls: each
# file waits for the disk, so chosen to be few.
MAX_FILES, MAX_COLD_CALLS = 512, 16
MAX_CALL_BYTES = 1 << 30  # of a call's files; chosen: a round writes them for each of three workers
BLOCK = 4096  # bytes that the smallest file takes: a page
WORKERS = 6  # folders of two replicates of three workers
DROP_TRIES = 5  # to drop a file's pages; chosen: the kernel keeps pages that it is still writing
MEMORY, MIN_MEMORY_FREE = "/dev/shm", 1 << 30  # bytes; chosen as MAX_CALL_BYTES
UNLISTED = 0o311  # mode of a folder whose entries can be opened by name but not listed


def memory_folder() -> str | None:
    """A file system in memory, where creating and removing files takes microseconds; None if none has enough space."""
    with suppress(OSError):
        if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MIN_MEMORY_FREE:
            return MEMORY
    return None


def is_file(value: Any) -> bool:
    """True for an input that is handed over as a path."""
    return isinstance(value, File | Folder)


def copied_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs in new memory; paths as they are."""
    return {name: value if isinstance(value, str) else value.clone() for name, value in inputs.items()}


def calls_per_round(inputs: Mapping[str, Any], most: int) -> int:
    """The maximum number of calls in a round, given the needs of one. Raises BenchmarkError FILES_TOO_LARGE."""
    files = [value for value in inputs.values() if is_file(value)]
    if not files:
        return most
    number = sum(len(_contents(file)) for file in files)
    if (size := bytes_of_call(inputs)) > MAX_CALL_BYTES:
        message = f"The files of one call have {size >> 20} MiB; the limit is {MAX_CALL_BYTES >> 20} MiB."
        raise BenchmarkError("FILES_TOO_LARGE", message, "Make the inputs smaller.")
    if any(file.cache == "cold" for file in files):
        most = min(most, MAX_COLD_CALLS)
    return max(1, min(most, MAX_FILES // max(number, 1)))


def bytes_of_call(inputs: Mapping[str, Any]) -> int:
    """Disk space of one call's files."""
    contents = [content for value in inputs.values() if is_file(value) for content in _contents(value).values()]
    return sum(-(-len(_bytes(content)) // BLOCK) * BLOCK for content in contents)


def lacks(inputs: Mapping[str, Any], roots: Mapping[str, str], calls: int) -> list[str]:
    """Everything that the file systems lack for rounds of `calls` calls, as phrases. roots: for warm and for cold
    files.
    """
    used = {value.cache: Path(roots[value.cache]) for value in inputs.values() if is_file(value)}
    needed, texts = 2 * WORKERS * calls * bytes_of_call(inputs), []
    for root in used.values():
        root.mkdir(exist_ok=True)
        if (free := shutil.disk_usage(root).free) < needed:
            texts.append(f"{needed >> 20} MiB of space in {root.parent}, found {free >> 20} MiB")
    if "cold" in used and not _can_drop(root := used["cold"]):
        texts.append(f"a temporary folder whose file system can drop cached pages; {root.parent} does not (set TMPDIR)")
    return texts


@contextmanager
def opened(inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The inputs with paths instead of files; the files are in a temporary folder, warm, while the block runs."""
    if not any(map(is_file, inputs.values())):
        yield dict(inputs)
        return
    with tempfile.TemporaryDirectory(prefix="files-", dir=memory_folder()) as folder:
        paths = {
            name: str(_write(Path(folder), value, "warm").path) for name, value in inputs.items() if is_file(value)
        }
        yield {**inputs, **paths}


@dataclass(frozen=True)
class _Placed:
    """An input's files. path: the one that a call gets. names: of the files in the folder."""

    folder: Path
    path: Path
    names: tuple[str, ...]

    def read(self) -> dict[str, bytes] | None:
        """Contents by name; None if a file cannot be read or there are extra files."""
        try:
            if sorted(os.listdir(self.folder)) != sorted(self.names):
                return None
            return {name: (self.folder / name).read_bytes() for name in self.names}
        except OSError:
            return None


class InputFiles:
    """Files of the workers' rounds. roots: folders for warm and for cold files, with a subfolder per worker, named by
    its number.
    """

    def __init__(self, roots: Mapping[str, str]) -> None:
        self.roots = {cache: Path(root) for cache, root in roots.items()}
        self._placed: dict[int, dict[tuple[int, str], _Placed]] = {}

    def make(self) -> list[str]:
        """Create the folders of all workers; return their parents."""
        for root in self.roots.values():
            for number in range(WORKERS):
                (root / str(number)).mkdir(parents=True, mode=UNLISTED)
        return [str(root) for root in self.roots.values()]

    def clear(self, *worker_ids: int) -> None:
        """Remove the files of these workers' last rounds."""
        for placed in [
            placed_input for worker_id in worker_ids for placed_input in self._placed.pop(worker_id, {}).values()
        ]:
            placed.folder.chmod(0o755)
            shutil.rmtree(placed.folder)

    def written(self, worker_id: int, call: int, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs with files replaced by the bytes of their paths; writes the files for that call of that worker."""
        return {
            name: self._put(worker_id, call, name, value) if is_file(value) else value for name, value in inputs.items()
        }

    def _put(self, worker_id: int, call: int, name: str, value: File | Folder) -> Any:
        self._placed.setdefault(worker_id, {})[call, name] = _write(
            self.roots[value.cache] / str(worker_id), value, value.cache
        )
        return self.address(worker_id, call, name)

    def address(self, worker_id: int, call: int, name: str) -> Any:
        """The bytes of that file's path, uint8 of PATH_BYTES."""
        import torch

        text = os.fsencode(self._placed[worker_id][call, name].path)
        return torch.frombuffer(bytearray(text.ljust(PATH_BYTES, b"\0")), dtype=torch.uint8)

    def redirect(self, worker_id: int, arena: Arena) -> None:
        """Overwrite the paths in that arena with those of this worker."""
        for call, name in self._placed.get(worker_id, {}):
            arena.inputs(call)[name].copy_(self.address(worker_id, call, name))

    def is_kept(self, worker_id: int, call: int, name: str, placed: Any, value: File | Folder) -> bool:
        """True if a worker's path and files are still those that were written."""
        if not bool((placed.cpu() == self.address(worker_id, call, name)).all()):
            return False
        there, contents = self._placed[worker_id][call, name].read(), _contents(value)
        return there is not None and all(there[name] == _bytes(content) for name, content in contents.items())

    def are_same(self, worker_id: int, other: int, call: int, name: str) -> bool:
        """True if two workers have files with the same contents."""
        there = self._placed[worker_id][call, name].read()
        return there is not None and there == self._placed[other][call, name].read()


def _contents(value: File | Folder) -> Mapping[str, Any]:
    return {value.name: value.content} if isinstance(value, File) else value.files


def _bytes(content: Any) -> memoryview:
    """The content as bytes. Raises BenchmarkError BAD_FILE."""
    if isinstance(content, bytes | bytearray):
        return memoryview(content)
    if not hasattr(content, "untyped_storage"):
        message = f"A file's content is a {type(content).__name__}."
        raise BenchmarkError("BAD_FILE", message, "Give bytes or a tensor.")
    import torch

    return memoryview(content.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())


def _write(folder: Path, value: File | Folder, cache: Cache) -> _Placed:
    """Write the file, or the folder with its files, below a random name.

    Raises BenchmarkError BAD_FILE, CACHE_NOT_DROPPED.
    """
    random_path = folder / secrets.token_hex(8)
    random_path.mkdir()
    for name, content in _contents(value).items():
        if name != Path(name).name or name in ("", ".", ".."):
            raise BenchmarkError("BAD_FILE", f"{name[:60]!r} is not a name of a file.", "Give a name without a folder.")
        fd = os.open(random_path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        try:
            left = _bytes(content)
            while left:
                left = left[os.write(fd, left) :]
        finally:
            os.close(fd)
        if cache == "cold" and not _drop(random_path / name):
            message = "The kernel kept a file in its page cache although it was asked to drop it."
            raise BenchmarkError("CACHE_NOT_DROPPED", message, "Set TMPDIR to a folder on a disk, or declare it warm.")
    path = random_path / value.name if isinstance(value, File) else random_path
    if len(os.fsencode(path)) >= PATH_BYTES:
        raise BenchmarkError("BAD_FILE", f"The path of {path.name[:60]!r} is too long.", "Choose a shorter name.")
    random_path.chmod(0o555)
    return _Placed(random_path, path, tuple(_contents(value)))


def _can_drop(root: Path) -> bool:
    """Try it on a file of one block."""
    path = root / "probe"
    path.write_bytes(bytes(BLOCK))
    try:
        return _drop(path)
    finally:
        path.unlink()


def _drop(path: Path) -> bool:
    """Write a file to its disk and drop its pages; True once none is left."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        for _ in range(DROP_TRIES):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if not _resident(fd):
                return True
        return False
    finally:
        os.close(fd)


def _resident(fd: int) -> int:
    """The number of a file's pages that are in memory. Raises OSError."""
    size = os.fstat(fd).st_size
    if not size:
        return 0
    pages = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
    with mmap.mmap(fd, size, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        code = ctypes.CDLL(None, use_errno=True).mincore(ctypes.byref(first), ctypes.c_size_t(size), pages)
        del first
    if code:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(page & 1 for page in pages)
