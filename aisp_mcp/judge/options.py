"""The options of a comparison."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.protections import ALL, Protections
from aisp_mcp.judge.ranks import rank_env
from aisp_mcp.system.gpu import energy

_OF_THIS_PROCESS = os.urandom(32)


@dataclass(frozen=True)
class Nodes:
    """Nodes of one comparison. others: by name, the command prefix that starts a program there. address: of this node,
    as the others see it.
    """

    others: tuple[tuple[str, tuple[str, ...]], ...] = ()
    address: str = "127.0.0.1"

    @property
    def count(self) -> int:
        return 1 + len(self.others)


@dataclass(frozen=True)
class Policy:
    """Limits of candidates. hidden: folders that no worker may read, from L2 on. forbidden: operators."""

    hidden: tuple[Path, ...] = ()
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """Preset, size preset of the benchmark, device (cpu or cuda), isolation, and location of the log.

    margin: the smallest difference that counts, as a fraction; None for the larger of 1 % and twice the noise floor.
    protections: all of them, except in tests of a single one. policy: restrictions on candidates. powercap: folder of
    the processor's energy counters. own_sizes: by target, instead of `size`. variables: environment of the ranks of
    both programs. nodes: over which the ranks of each program are spread. secret: from which
    the inputs are drawn that decide whether a program is correct. The same file gets the same inputs in every
    comparison with the same secret, and therefore the same result; without the secret, nobody can search for a program
    that is correct on these inputs only. The default lasts as long as this process.
    """

    preset: Preset
    size: str
    device: str
    folder: Path
    isolation: str = "auto"
    margin: float | None = None
    protections: Protections = ALL
    policy: Policy = Policy()
    powercap: Path = energy.POWERCAP
    own_sizes: tuple[tuple[str, str], ...] = ()
    variables: rank_env.Variables = ()
    nodes: Nodes = Nodes()
    secret: bytes = field(default=_OF_THIS_PROCESS, repr=False)

    def of(self, target: str) -> Options:
        """The options for one target."""
        return replace(self, size=dict(self.own_sizes).get(target, self.size))

    def battery_seed(self, baseline: Path) -> int:
        """The seed for a specification at this size. It is the same for every candidate, so editing a comment does not
        redraw the inputs.
        """
        about = hashlib.sha256(baseline.read_bytes()).digest() + f"\0{self.size}\0{self.device}".encode()
        return int.from_bytes(hashlib.sha256(self.secret + about).digest()[:6])
