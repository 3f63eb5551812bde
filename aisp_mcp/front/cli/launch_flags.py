"""Flags of torchrun and of other harnesses, translated to the tools' own arguments, or refused with what to type.

The harness starts the ranks of baseline and candidate itself, confined and each with its own loopback, and provides
their rendezvous: `--launch-via torchrun`, `--rdzv-backend` and `--rdzv-endpoint` have no effect on one machine.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Sequence

from aisp_mcp.errors import UsageError

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")
SLURM = "aisp bench run --targets T --executor slurm --nnodes 2"

_FLAG = re.compile(r"(?:^|(?<=\s))--(\w[\w-]*)(?:(?:=|\s+)(?!--)(\S+))?(?=\s|$)")


def translate(words: Sequence[str]) -> list[str]:
    """Replace torchrun's flags by the tool's own arguments. Raises UsageError BAD_LAUNCH."""
    translated: list[str] = []
    rest, nodes = list(words), _slurm_nodes(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*translated, word, *rest]
        name, inline, value = word.partition("=")
        name = name.replace("_", "-")
        if name in _ALWAYS:
            continue
        translate_value = _TRANSLATIONS.get(name)
        if translate_value is None:
            translated.append(word)
            continue
        if not inline:
            if not rest:
                raise _bad(f"{name} needs a value.", "See docs/ranks.md.")
            value = rest.pop(0)
        if nodes > 1 and translate_value is _ranks:
            translated += _ranks(str(int(value) * nodes) if value.isdecimal() else value)
        elif nodes > 1 and translate_value is _nodes:
            translated += ["--nodes", str(nodes)]
        else:
            translated += translate_value(value)
    return translated


def _slurm_nodes(words: Sequence[str]) -> int:
    """Return the number of nodes requested from Slurm; 1 for other executors."""
    options = dict(itertools.pairwise([*words, ""])) | dict(word.split("=", 1) for word in words if "=" in word)
    if options.get("--executor", os.environ.get("AISP_EXECUTOR")) != "slurm":
        return 1
    nodes = options.get("--nnodes") or options.get("--nodes") or "1"
    return int(nodes) if nodes.isdecimal() else 1


def _bad(message: str, hint: str) -> UsageError:
    return UsageError("BAD_LAUNCH", message, hint)


def _via(value: str) -> list[str]:
    if value not in ("torchrun", "python"):
        raise _bad(f"{value[:40]!r} cannot start ranks here.", f"Use --launch-via torchrun; on a cluster {SLURM}")
    return []


def _ranks(value: str) -> list[str]:
    if not value.isdecimal():
        raise _bad(f"{value[:40]!r} is not a number of processes.", "--nproc-per-node 2")
    return ["--size", f"ranks={int(value)}"]


def _nodes(value: str) -> list[str]:
    if value not in ("1", "1:1"):
        raise _bad(f"Only Slurm jobs can have ranks on several nodes, not this machine: {value[:20]}.", SLURM)
    return []


def _backend(value: str) -> list[str]:
    if value not in ("c10d", "static"):
        raise _bad(f"Unknown rendezvous backend {value[:40]!r}.", "Omit --rdzv-backend on one machine.")
    return []


def _endpoint(value: str) -> list[str]:
    if value.rpartition(":")[0] not in LOCAL_HOSTS and value not in LOCAL_HOSTS:
        raise _bad(f"Ranks cannot reach {value[:60]}: the harness provides their rendezvous.", SLURM)
    return []


def _variable(value: str) -> list[str]:
    """Set a variable for the ranks; CUDA_VISIBLE_DEVICES applies to the whole command, as if set in front of it."""
    name, equals, text = value.partition("=")
    if name != "CUDA_VISIBLE_DEVICES":
        return ["--rank-env", value]
    if not equals or not re.fullmatch(r"[\w,/-]*", text):
        raise _bad(f"{text[:40]!r} is not a list of devices.", "--torchrun-env CUDA_VISIBLE_DEVICES=0,1")
    os.environ[name] = text
    return []


def _extra(value: str) -> list[str]:
    """Turn `TARGET=--rows 256 --flag=3` into sizes of that target; a flag without a value is 1."""
    target, _, text = value.partition("=")
    flags = _FLAG.findall(text)
    if not target or not flags or _FLAG.sub("", text).strip():
        hint = "Give sizes of one target: --target-extra-arg 'ch04:allreduce_buckets=--tensors 32'."
        raise _bad(f"{value[:60]!r} is not a target with flags and values.", hint)
    sizes = [f"{target}:{name.replace('-', '_')}={size or 1}" for name, size in flags]
    return [word for size in sizes for word in ("--size", size)]


def _timeout(value: str) -> list[str]:
    try:
        return ["--timeout-s", f"{RUN_TIMEOUT_S * float(value):g}"]
    except ValueError:
        raise _bad(f"{value[:40]!r} is not a factor.", "--timeout-multiplier 2") from None


def _suite_timeout(value: str) -> list[str]:
    return ["--timeout-s", value]


def _counters(value: str) -> list[str]:
    """The counters follow the depth of the profile, which is what auto asks for."""
    return [] if value == "auto" else ["--ncu-metric-set", value]


def counters_by_workload(words: Sequence[str]) -> list[str]:
    """Replace `--workload-type KIND` of a recording with ncu by the set of counters that shows this kind."""
    for index, word in enumerate(words):
        name, inline, value = word.partition("=")
        if not word.startswith("-") and (index == 0 or not words[index - 1].startswith("-")):
            break  # the program, and what follows is its own
        if name != "--workload-type":
            continue
        value = value if inline else "".join(words[index + 1 : index + 2])
        if value not in _SETS:
            hint = "Name a set of counters: --set basic, detailed, full or roofline."
            raise UsageError("NOT_AN_OPTION", f"There is no workload type {value[:40]!r}.", hint)
        return [*words[:index], "--set", _SETS[value], *words[index + (1 if inline else 2) :]]
    return list(words)


def of_a_pair(words: Sequence[str]) -> list[str]:
    """Refuse `bench verify --targets`, which elsewhere checks files without measuring them. A step is a program too."""
    if any(word.partition("=")[0] == "--targets" for word in words):
        hint = "To check targets without measuring: aisp bench run --targets ch07 --dry-run."
        raise UsageError("NOT_AN_OPTION", "aisp bench verify judges one candidate of your own.", hint)
    return [re.sub(r"^--in-step(?==|$)", "--in", word) for word in words]


RUN_TIMEOUT_S = 1800.0  # of a run without another limit
_ALWAYS = ("--cold-start",)  # every replicate runs in fresh processes
_SETS = {
    **dict.fromkeys(("memory_bound", "compute_bound", "tensor_core", "occupancy"), "detailed"),
    "communication": "basic",
    "roofline": "roofline",
}
_TRANSLATIONS: dict[str, Callable[[str], list[str]]] = {
    "--launch-via": _via,
    "--nproc-per-node": _ranks,
    "--nnodes": _nodes,
    "--rdzv-backend": _backend,
    "--rdzv-endpoint": _endpoint,
    "--torchrun-env": _variable,
    "--target-extra-arg": _extra,
    "--timeout-multiplier": _timeout,
    "--suite-timeout": _suite_timeout,
    "--ncu-metric-set": _counters,
}
