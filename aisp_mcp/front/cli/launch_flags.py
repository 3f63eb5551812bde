"""Flags of torchrun on `aisp bench run`, translated to the tool's own arguments.

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
        translate_value = _TRANSLATIONS.get(name.replace("_", "-"))
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


_TRANSLATIONS: dict[str, Callable[[str], list[str]]] = {
    "--launch-via": _via,
    "--nproc-per-node": _ranks,
    "--nnodes": _nodes,
    "--rdzv-backend": _backend,
    "--rdzv-endpoint": _endpoint,
    "--torchrun-env": _variable,
    "--target-extra-arg": _extra,
}
