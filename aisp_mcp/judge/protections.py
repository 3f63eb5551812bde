"""The judge's defences by name, all on. Only tests turn one off, to show that its attack then succeeds.

No setting, argument or environment variable changes them; only Python code that creates its own Options can. Isolation
is not among them: its level is the user's choice and part of the result.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


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
