"""Reasons why a machine is unsuitable for canonical measurements: it should be bare metal, exclusive, with known
clocks.
"""

from __future__ import annotations

from typing import Any

BUSY_SHARE = 0.10
STEAL_SHARE = 0.005


def not_canonical(manifest: dict[str, Any], during: dict[str, Any]) -> list[str]:
    """Reasons in words; empty on a canonical machine.

    manifest: from system.manifest. during: the summary of system.sampler over the measurement.
    """
    around, limits, settings = manifest["surroundings"], manifest["limits"], manifest["settings"]
    reasons = []
    if around.get("hypervisor"):
        reasons.append(f"virtualised ({around['hypervisor']})")
    if limits.get("cpus"):
        reasons.append(f"CPU quota of {limits['cpus']} cores")
    if settings.get("governor") != "performance":
        reasons.append(f"CPU governor is {settings.get('governor')}")
    if (during.get("steal_share") or 0.0) > STEAL_SHARE:
        reasons.append(f"{during['steal_share']:.1%} of CPU time was stolen")
    waiting = (during.get("pressure") or {}).get("cpu_some") or 0.0
    if waiting > BUSY_SHARE:
        reasons.append(f"tasks waited for a CPU {waiting:.0%} of the time")
    return reasons + [flag["message"] for flag in during.get("flags", []) if flag.get("severity") == "fatal"]
