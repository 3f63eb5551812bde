"""Flags of torchrun on `aisp bench run`: their meaning for ranks that the harness starts, and a refusal of what they
cannot mean.

The harness starts the ranks of each side itself, confined and with a loopback of their own, and holds their rendezvous:
`--launch-via torchrun`, `--rdzv-backend` and `--rdzv-endpoint` change nothing on one machine.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Sequence

from aisp_mcp.errors import UsageError

HERE = ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")
SLURM = "aisp bench run --targets T --executor slurm --nnodes 2"

_FLAG = re.compile(r"(?:^|(?<=\s))--(\w[\w-]*)(?:(?:=|\s+)(?!--)(\S+))?(?=\s|$)")


def translated(words: Sequence[str]) -> list[str]:
    """The words with each of these flags as the tool's own arguments. Raises UsageError BAD_LAUNCH."""
    found: list[str] = []
    rest, nodes = list(words), _nodes_of_slurm(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*found, word, *rest]
        name, inline, value = word.partition("=")
        meaning = _MEANINGS.get(name.replace("_", "-"))
        if meaning is None:
            found.append(word)
            continue
        if not inline:
            if not rest:
                raise _bad(f"{name} needs a value.", "See docs/ranks.md.")
            value = rest.pop(0)
        if nodes > 1 and meaning is _ranks:
            found += meaning(str(int(value) * nodes) if value.isdecimal() else value)
        else:
            found += ["--nodes", str(nodes)] if nodes > 1 and meaning is _nodes else meaning(value)
    return found


def _nodes_of_slurm(words: Sequence[str]) -> int:
    """Number of nodes that these words ask Slurm for; 1 for another executor."""
    given = dict(itertools.pairwise([*words, ""])) | dict(word.split("=", 1) for word in words if "=" in word)
    if given.get("--executor", os.environ.get("AISP_EXECUTOR")) != "slurm":
        return 1
    nodes = given.get("--nnodes") or given.get("--nodes") or "1"
    return int(nodes) if nodes.isdecimal() else 1


def _bad(message: str, hint: str) -> UsageError:
    return UsageError("BAD_LAUNCH", message, hint)


def _via(value: str) -> list[str]:
    if value not in ("torchrun", "python"):
        raise _bad(f"{value[:40]!r} starts no ranks here.", f"--launch-via torchrun; on a cluster {SLURM}")
    return []


def _ranks(value: str) -> list[str]:
    if not value.isdecimal():
        raise _bad(f"{value[:40]!r} is no number of processes.", "--nproc-per-node 2")
    return ["--size", f"ranks={int(value)}"]


def _nodes(value: str) -> list[str]:
    if value not in ("1", "1:1"):
        raise _bad(f"Ranks span nodes of a Slurm job only: nobody starts them on {value[:20]} nodes here.", SLURM)
    return []


def _backend(value: str) -> list[str]:
    if value not in ("c10d", "static"):
        raise _bad(f"There is no rendezvous backend {value[:40]!r}.", "Leave --rdzv-backend away on one machine.")
    return []


def _endpoint(value: str) -> list[str]:
    if value.rpartition(":")[0] not in HERE and value not in HERE:
        raise _bad(f"Ranks of a side cannot reach {value[:60]}: the harness holds their rendezvous.", SLURM)
    return []


def _variable(value: str) -> list[str]:
    """A variable of ranks; the devices are those of the whole command, as in front of it."""
    name, equals, text = value.partition("=")
    if name != "CUDA_VISIBLE_DEVICES":
        return ["--rank-env", value]
    if not equals or not re.fullmatch(r"[\w,/-]*", text):
        raise _bad(f"{text[:40]!r} names no devices.", "--torchrun-env CUDA_VISIBLE_DEVICES=0,1")
    os.environ[name] = text
    return []


def _extra(value: str) -> list[str]:
    """`TARGET=--rows 256 --flag=3` as sizes of that target; a flag without a value is 1."""
    target, _, text = value.partition("=")
    flags = _FLAG.findall(text)
    if not target or not flags or _FLAG.sub("", text).strip():
        hint = "--target-extra-arg 'ch04:allreduce_buckets=--tensors 32': sizes of one target."
        raise _bad(f"{value[:60]!r} is no target with flags and their values.", hint)
    return [word for name, one in flags for word in ("--size", f"{target}:{name.replace('-', '_')}={one or 1}")]


_MEANINGS: dict[str, Callable[[str], list[str]]] = {
    "--launch-via": _via,
    "--nproc-per-node": _ranks,
    "--nnodes": _nodes,
    "--rdzv-backend": _backend,
    "--rdzv-endpoint": _endpoint,
    "--torchrun-env": _variable,
    "--target-extra-arg": _extra,
}
