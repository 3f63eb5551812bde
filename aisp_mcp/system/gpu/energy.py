"""Energy counters: NVML's total energy of a GPU, and the processor packages of a powercap folder (RAPL).

A counter advances in steps: of about a millisecond for a package, of some 20 to 100 ms for a GPU. A reading that has
just changed is as precise as the clock read with it, see Counter.step().
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple

from aisp_mcp.errors import Unavailable
from aisp_mcp.system.gpu import nvml

POWERCAP = Path("/sys/class/powercap")
STEP_S, LOOK_S = 2.0, 0.0005  # longest step of a working counter, and time between two polls of it
CODE = "NO_ENERGY_COUNTER"
HINT = "There is no figure without a counter: power samples are averages that miss short kernels."


class EnergyReading(NamedTuple):
    """Energy in joules since the counter was opened or its driver loaded, and time.monotonic() at that moment."""

    joules: float
    at_s: float


class Counter(ABC):
    """One counter. domains: the devices whose energy it counts."""

    domains: tuple[str, ...]

    @abstractmethod
    def joules(self) -> float:
        """Energy so far. Raises Unavailable NO_ENERGY_COUNTER."""

    def step(self) -> EnergyReading:
        """The first reading after the counter advances. Raises Unavailable NO_ENERGY_COUNTER if it does not."""
        before, end_s = self.joules(), time.monotonic() + STEP_S
        while (now := self.joules()) == before:
            if time.monotonic() > end_s:
                raise Unavailable(CODE, f"The counter of {', '.join(self.domains)} does not move.", HINT)
            time.sleep(LOOK_S)
        return EnergyReading(now, time.monotonic())


class GpuCounter(Counter):
    """NVML's total energy of one GPU: the board, without its host."""

    def __init__(self, uuid: str) -> None:
        """Raises Unavailable NO_ENERGY_COUNTER."""
        self.domains, self._uuid = (uuid,), uuid
        self.joules()

    def joules(self) -> float:
        try:
            millijoules = nvml.call(
                lambda library: library.nvmlDeviceGetTotalEnergyConsumption(
                    library.nvmlDeviceGetHandleByUUID(self._uuid)
                ),
                3.0,
            )
        except Exception as error:
            message = f"{self._uuid} has no energy counter: {nvml.problem_of(error).message}"
            raise Unavailable(CODE, message, HINT) from error
        return float(millijoules) / 1e3


class _Zone:
    """One zone of a powercap folder, unwrapped."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self._file = name, folder / "energy_uj"
        self._range = int((folder / "max_energy_range_uj").read_text())
        self._last, self._wrapped = int(self._file.read_text()), 0

    def microjoules(self) -> int:
        now = int(self._file.read_text())
        if now < self._last:
            self._wrapped += self._range
        self._last = now
        return now + self._wrapped


class PackageCounter(Counter):
    """Processor packages, and memory that has its own zone. It counts the whole machine."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        """Raises Unavailable NO_ENERGY_COUNTER."""
        try:
            zone_names = [(path, (path / "name").read_text().strip()) for path in sorted(powercap.glob("intel-rapl:*"))]
            self._zones = [
                _Zone(zone_path, name) for zone_path, name in zone_names if name.startswith("package") or name == "dram"
            ]
        except (OSError, ValueError) as error:
            message = f"{powercap} cannot be read: {error}"
            raise Unavailable(CODE, message, "Since Linux 5.10, only root may read energy_uj.") from error
        if not any(zone.name.startswith("package") for zone in self._zones):
            raise Unavailable(CODE, f"{powercap} has no zone of a processor package (RAPL).", HINT)
        self.domains = tuple(zone.name for zone in self._zones)

    def joules(self) -> float:
        try:
            return sum(zone.microjoules() for zone in self._zones) / 1e6
        except (OSError, ValueError) as error:
            raise Unavailable(CODE, f"An energy counter can no longer be read: {error}", HINT) from error


def find(device: str, uuid: str | None, powercap: Path = POWERCAP) -> Counter:
    """The counter of a device, cuda or cpu. uuid: of the GPU. Raises Unavailable NO_ENERGY_COUNTER."""
    return GpuCounter(uuid or "") if device == "cuda" else PackageCounter(powercap)
