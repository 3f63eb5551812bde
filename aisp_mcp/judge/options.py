"""The options of a comparison.

The judge's defences have names and are all on. Only tests turn one off, to show that its attack then succeeds: no
setting, argument or environment variable changes them, only Python code that creates its own Options. Isolation is not
among them: its level is the user's choice and part of the result.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from aisp_mcp.judge import distributed
from aisp_mcp.judge.presets import Preset
from aisp_mcp.system.gpu import energy

_OF_THIS_PROCESS = os.urandom(32)
PATIENCE_S = 300.0  # for an answer of the verifier


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
    """Limits of candidates. hidden: folders that no worker may read, from L2 on. forbidden: operators. rules: names
    that a problem forbids; those that are no operators, such as texts, have no effect.
    """

    hidden: tuple[Path, ...] = ()
    forbidden: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Protections:
    """Defences, each with its effect while it is on.

    poison: outputs are filled with it before each round. fresh_inputs: every round has its own seed. parent_clock: it
    bounds the workers' clocks. timed_verification: timed rounds are verified like the others. freeze: workers are
    stopped outside their rounds. outside: inputs, and the pattern around outputs, must be unchanged. adversarial:
    unusual kinds of inputs are mixed in. sealed: shared memory cannot be truncated. clean_environment: workers see only
    listed variables. contract: type, dtype, shape and strides are checked. isolated_calls: a gain must show in isolated
    calls, and copies are subtracted only from roles that make them. values: outputs are compared with the reference.
    """

    poison: bool = True
    fresh_inputs: bool = True
    parent_clock: bool = True
    timed_verification: bool = True
    freeze: bool = True
    outside: bool = True
    adversarial: bool = True
    sealed: bool = True
    clean_environment: bool = True
    contract: bool = True
    isolated_calls: bool = True
    values: bool = True


ALL = Protections()
NONE = Protections(**dict.fromkeys((field.name for field in fields(Protections)), False))


@dataclass(frozen=True)
class Options:
    """Preset, size preset of the benchmark, device (cpu or cuda), isolation, and location of the log.

    margin: the smallest difference that counts, as a fraction; None for the larger of 1 % and twice the noise floor.
    protections: all of them, except in tests of a single one. policy: restrictions on candidates. powercap: folder of
    the processor's energy counters. own_sizes: by target, instead of `size`. variables: environment of the ranks of
    both programs. nodes: over which the ranks of each program are spread. secret: from which
    the inputs are drawn that decide whether a program is correct. The same file gets the same inputs in every
    comparison with the same secret, and therefore the same result; without the secret, nobody can search for a program
    that is correct on these inputs only. The default lasts as long as this process. leases: folder of the devices'
    leases, where several comparisons are prepared at once. warm: folder of processes whose libraries stay loaded for
    later comparisons, or are to be (forked.start_asked_for). patience_s: how long the verifier may take for an answer.
    redraws: unusual inputs on which the baseline has no answer are drawn again.
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
    variables: distributed.Variables = ()
    nodes: Nodes = Nodes()
    secret: bytes = field(default=_OF_THIS_PROCESS, repr=False)
    leases: Path | None = None
    warm: Path | None = None
    patience_s: float = PATIENCE_S
    redraws: bool = False

    def of(self, target: str) -> Options:
        return replace(self, size=dict(self.own_sizes).get(target, self.size))

    def battery_seed(self, baseline: Path) -> int:
        """The seed for a specification at this size. It is the same for every candidate, so editing a comment does not
        redraw the inputs, and in every folder: that of a run has another name each time.
        """
        text = baseline.read_bytes().replace(os.fsencode(baseline.parent.parent), b"")
        about = hashlib.sha256(text).digest() + f"\0{self.size}\0{self.device}".encode()
        return int.from_bytes(hashlib.sha256(self.secret + about).digest()[:6])
