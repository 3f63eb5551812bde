"""Make a candidate's module so that the parameters it draws like the baseline's are the judge's from the start.

The suite makes both modules under one seed and loads nothing. A candidate may therefore name its parameters as it
likes, and fold, transpose or copy them while it is made. Here, too, the baseline's module and the candidate's are made
under one seed, and a tensor that the candidate draws like a parameter of the baseline gets the judge's values at once.
So does one that the module registers under the name of a parameter, and so do the ones and zeros of a norm, before
others are computed from them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.candidate import adapted
from aisp_mcp.judge.candidate_needs import NO_PARAMETERS
from aisp_mcp.suites.adapters.torch_modules import norms

_SEED = 1  # any; both modules have it
_COMPARED = 64  # elements that tell two draws apart
Make = Callable[[], Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class NewModule:
    """A module and what is known about its parameters.

    holds: names of the baseline's tensors that were written into it while it was made. unseen: number of those that the
    baseline draws and the candidate did not. keys: what tells the baseline's first values apart, by name. norms: the
    baseline's names of what its norms still hold, by its own names. spare: names that it need not have.
    """

    module: Any
    holds: frozenset[str] = frozenset()
    unseen: int = 0
    keys: Mapping[str, Key] = field(default_factory=dict)
    norms: Mapping[str, str] = field(default_factory=dict)
    spare: frozenset[str] = frozenset()

    def other_names(self, missing: Iterable[str], own: Mapping[str, Any]) -> dict[str, str]:
        """Own names of missing tensors by the baseline's, if the first values are equal, as are those of norms.

        Several tensors with equal values are taken in their order, if there are as many of them in both modules.
        """
        groups, addresses = defaultdict[Key, tuple[list[str], list[str]]](lambda: ([], [])), set[tuple[int, int]]()
        for name in missing:
            if name in self.keys:
                groups[self.keys[name]][0].append(name)
        for name, tensor in own.items():
            address = (tensor.data_ptr(), tensor.numel())
            if address not in addresses:  # a tensor may have several names
                groups[self.keys[self.norms[name]] if name in self.norms else _key(tensor)][1].append(name)
            addresses |= {address} if tensor.numel() else set()
        pairs = [zip(*names, strict=True) for names in groups.values() if len(names[0]) == len(names[1])]
        return {name: own_name for pair in pairs for name, own_name in pair}


def make(
    baseline: Make, candidate: Make, tensors: Mapping[str, Any], device: str, kind: Any = None, alike: bool = False
) -> NewModule:
    """Make the candidate's module with the judge's tensors. device: begins with cpu or cuda. kind: the module's class.

    On a GPU, modules draw there, which is faster. A candidate that draws elsewhere, as in torch.Tensor(4, 4), gets
    other numbers than the baseline: then both are made on the CPU, as in the suite. alike: the baseline keeps random
    tensors that were drawn on the device, so the candidate has to draw there, too.
    """
    making = partial(_made, baseline, candidate, tensors, device, kind)
    new = adapted.on_device(making, device)
    if device.startswith("cpu") or alike or not new.unseen:
        return new
    with suppress(Exception):  # of a candidate that can only be made on the device
        return min(new, making(), key=lambda each: each.unseen)
    return new


def _made(baseline: Make, candidate: Make, tensors: Mapping[str, Any], device: str, kind: Any) -> NewModule:
    """Make both modules. A candidate that cannot be made like this is made as usual."""
    if not tensors:
        return NewModule(under_one_seed(candidate, device))
    made = norms.Norms()
    with norms.noted(made.add):
        pattern = under_one_seed(baseline, device)
    state = pattern.state_dict()
    keys = {name: _key(tensor) for name, tensor in state.items()}
    for tensor in state.values():
        tensor.zero_()  # or else memory that the candidate's module does not initialise may have these values
    counts = Counter(keys.values())
    names = {key: name for name, key in keys.items() if name in tensors and counts[key] == 1 and _differs(key)}
    writing = _writing()({key: (name, tensors[name]) for key, name in names.items()})
    handing = norms.Handing(made.names(pattern), tensors)
    try:
        with writing, _given_when_registered(tensors, kind), norms.noted(handing.hand):
            module = under_one_seed(candidate, device)
    except Exception:  # if it is the candidate's own, it comes again
        return NewModule(candidate(), unseen=len(names))
    held, spare = handing.found(module)
    unseen = len(names) - len(writing.names)
    return NewModule(module, frozenset(writing.names), unseen, keys, held, spare | norms.counters(pattern))


@contextmanager
def _given_when_registered(tensors: Mapping[str, Any], kind: Any) -> Iterator[None]:
    """Give a module of this class the tensors as soon as it registers others of their names and shapes."""
    import torch
    from torch.nn.modules import module as modules

    def give(module: Any, name: str, value: Any) -> None:
        if not isinstance(kind, type) or not isinstance(module, kind) or value is None:
            return
        is_tensor = isinstance(value, torch.Tensor)
        own = {name: value} if is_tensor else {f"{name}.{key}": one for key, one in value.state_dict().items()}
        with torch.no_grad():
            for key, tensor in own.items():
                if key in tensors and tensors[key].shape == tensor.shape:
                    tensor.copy_(tensors[key])

    handles = [
        modules.register_module_parameter_registration_hook(give),
        modules.register_module_buffer_registration_hook(give),
        modules.register_module_module_registration_hook(give),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def loaded(new: NewModule, static: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """The module with these parameters and buffers, in their precision. What it holds besides them keeps its values.

    Raises BenchmarkError PARAMETERS_DIFFER.
    """
    module = new.module.to(device=next(iter(inputs.values())).device)
    own = dict(module.state_dict())
    fresh = {name: values for name, values in static.items() if name not in new.holds}  # it may have scaled its own
    state = {name: values for name, values in fresh.items() if name in own and own[name].shape == values.shape}
    missing = [name for name in fresh if name not in state]
    added = {name: tensor for name, tensor in own.items() if name not in state and name not in new.holds}
    names = new.other_names(missing, added)
    if unknown := {name: static[name] for name in missing if name not in names and name not in new.spare}:
        more = {name: tensor for name, tensor in added.items() if name not in names.values()}
        raise BenchmarkError(
            "PARAMETERS_DIFFER",
            f"{NO_PARAMETERS}: lacks {_shapes(unknown)}, adds {_shapes(more)}.",
            "Give ModelNew the parameters of Model, or draw them in the same order as Model does.",
        )
    state |= {own_name: static[name].reshape(own[own_name].shape) for name, own_name in names.items()}
    adapted.set_state(module, state, inputs)
    return module


def _shapes(tensors: Mapping[str, Any]) -> str:
    """A few names with their shapes, and how many there are besides."""
    few = [f"{name} {tuple(tensor.shape)}" for name, tensor in sorted(tensors.items())[:4]]
    return ", ".join(few + [f"{len(tensors) - 4} more"] * (len(tensors) > 4)) or "nothing"


def under_one_seed(function: Make, device: str) -> Any:
    """Call a function that draws, with the seed that all modules have. device: begins with cpu or cuda."""
    import torch

    with torch.random.fork_rng(None if device.startswith("cuda") else []):
        torch.manual_seed(_SEED)
        return function()


def _key(tensor: Any) -> Key:
    """Size, type and first values of a tensor."""
    return (tensor.numel(), str(tensor.dtype), *tensor.detach().flatten()[:_COMPARED].tolist())


def _differs(key: Key) -> bool:
    """Return True if these are different numbers, as in a random tensor."""
    return len({*key[2:]}) > 1


@lru_cache(maxsize=1)
def _writing() -> Any:
    """A mode that writes the judge's tensors over those that have the baseline's first values."""
    import torch
    from torch.overrides import TorchFunctionMode

    uninitialised = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)

    class Writing(TorchFunctionMode):  # type: ignore[misc,unused-ignore]
        def __init__(self, tensors: Mapping[Key, tuple[str, Any]]) -> None:
            super().__init__()
            self.tensors, self.names = tensors, set[str]()
            self.sizes = {key[0] for key in tensors}

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.numel() in self.sizes and func not in uninitialised:
                self._write(result)
            return result

        def _write(self, tensor: Any) -> None:
            if torch.cuda.is_current_stream_capturing():  # reading a value would spoil the graph
                return
            name, values = self.tensors.get(_key(tensor), ("", None))
            if name:
                with torch.no_grad():
                    tensor.copy_(values.reshape(tensor.shape))
                self.names.add(name)

    return Writing
