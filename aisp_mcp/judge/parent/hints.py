"""Flags that follow from texts: operators that a policy forbids, and constructs in a candidate's source.

candidate/forbidden.py removes forbidden operators from the candidate's process. Hints have line numbers and are never a
verdict: the file is parsed, not run, a name built at run time is not seen, and honest code has the same parts. A
candidate is judged by what it did.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.protocol import forbidden
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.judge.verdict import wording

CODE = "forbidden_operator"


def notes(names: Sequence[str], so_far: Sequence[Flag], rules: Sequence[str] = ()) -> list[Flag]:
    """The policy that a candidate complied with, if any. rules: of the problem."""
    every = [*names, *rules]
    if not every or any(each.severity == "fatal" for each in so_far):
        return []
    message = wording.policy_kept(names, rules)
    return [Flag(code="policy", severity="note", message=message, evidence={"forbidden": every})]


def flag(original: Flag) -> Flag:
    """The flag, or the policy's own flag if the candidate raised at a forbidden call. Raises UsageError NO_OPERATOR."""
    if name := forbidden.unknown(original.message):
        message = f"{name!r} names no operator that can be forbidden."
        raise UsageError("NO_OPERATOR", message, "Name torch.matmul, F.softmax, aten::mm or a function of a package.")
    name = forbidden.called(original.message)
    if name is None:
        return original
    return Flag(code=CODE, severity="fatal", message=wording.forbidden_call(name), evidence={"operator": name})


CLOCKS = {"perf_counter", "perf_counter_ns", "time", "time_ns", "monotonic", "monotonic_ns", "process_time"}
MAX_CHARACTERS = 1 << 20
DEVICE_CLOCKS = {"elapsed_time", "synchronize", "record", "Event"}
ATTRIBUTES = {
    "frames": {"_getframe", "currentframe", "f_back", "f_locals", "f_globals", "f_code", "__code__"},
    "threads": {"Thread", "ThreadPoolExecutor", "start_new_thread"},
    "streams": {"Stream", "ExternalStream", "set_stream"},
    "processes": {"fork", "forkpty", "Popen", "popen", "system", "posix_spawn", "execv", "execve", "spawn", "Process"},
    "pointers": {"data_ptr", "untyped_storage"},
    "modules": {"modules", "get_objects", "get_referrers", "get_referents"},
}
IMPORTS = {
    "threads": {"threading", "_thread", "concurrent"},
    "processes": {"subprocess", "multiprocessing"},
    "native code": {"ctypes", "cffi", "cpp_extension"},
    "frames": {"inspect"},
}
NATIVE = {  # in the text of a C++ or CUDA file
    "threads": r"std::(thread|jthread|async)\b|\bpthread_create\b",
    "streams": r"\bcudaStreamCreate\w*",
    "processes": r"\b(fork|vfork|execve?|system|posix_spawn)\s*\(",
    "process files": r"/proc\b",
    "state kept": r"^\s*static\b(?![^;{]*\()",
}
WORDS = {
    "clocks replaced": "replaces a clock",
    "frames": "looks at its callers",
    "threads": "starts threads",
    "streams": "opens streams",
    "processes": "starts processes",
    "native code": "calls native code",
    "pointers": "reads addresses",
    "modules": "searches loaded modules or objects",
    "process files": "reads /proc",
    "state kept": "keeps state between calls",
}


def find(source: str) -> dict[str, list[int]]:
    """Kind of hint to line numbers, in the order of WORDS. Empty for text that is not Python, or too long."""
    try:
        tree = ast.parse(source[:MAX_CHARACTERS])
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last one for text that is nested too deeply
        return {}
    lines_by_kind: dict[str, set[int]] = {}
    for node in ast.walk(tree):
        for kind in _kinds(node):
            lines_by_kind.setdefault(kind, set()).add(getattr(node, "lineno", 0))
    return {kind: sorted(lines_by_kind[kind]) for kind in WORDS if kind in lines_by_kind}


def find_native(source: str) -> dict[str, list[int]]:
    """Return line numbers by kind of hint for the source of a C++ or CUDA file."""
    lines = source[:MAX_CHARACTERS].splitlines()
    lines_by_kind = {
        kind: [at for at, line in enumerate(lines, 1) if re.search(word, line)] for kind, word in NATIVE.items()
    }
    return {kind: lines_by_kind[kind] for kind in WORDS if lines_by_kind.get(kind)}


def hints(path: Path) -> list[Flag]:
    """One flag of the lowest severity, if there are any hints."""
    try:
        # As Python reads it: a declared encoding may turn a comment into code.
        with tokenize.open(path) if path.suffix == ".py" else path.open(encoding="utf-8") as file:
            hints_by_kind = (find if path.suffix == ".py" else find_native)(file.read(MAX_CHARACTERS))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []
    if not hints_by_kind:
        return []
    parts = [f"{WORDS[kind]} (line {', '.join(map(str, lines[:5]))})" for kind, lines in hints_by_kind.items()]
    message = wording.source_hint(parts)
    return [Flag(code="source_hint", severity="note", message=message, evidence={"lines": hints_by_kind})]


def _kinds(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from _imported(node)
    elif isinstance(node, ast.Attribute):
        if isinstance(node.ctx, ast.Store) and _is_clock(node):
            yield "clocks replaced"
        yield from (kind for kind, names in ATTRIBUTES.items() if node.attr in names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value.startswith("/proc"):
            yield "process files"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "id":
            yield "pointers"
        elif node.func.id == "setattr" and len(node.args) > 1 and _names_clock(node.args[1]):
            yield "clocks replaced"


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    names = {part for alias in node.names for part in alias.name.split(".")}
    names |= set((node.module or "").split(".")) if isinstance(node, ast.ImportFrom) else set()
    yield from (kind for kind, known in IMPORTS.items() if names & known)


def _is_clock(node: ast.Attribute) -> bool:
    """Match `time.perf_counter = …` and the like; an attribute named `time` of another object does not count."""
    owner = node.value.id if isinstance(node.value, ast.Name) else ""
    return node.attr in DEVICE_CLOCKS or (node.attr in CLOCKS and owner in ("time", "_time", "timeit"))


def _names_clock(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in CLOCKS | DEVICE_CLOCKS
