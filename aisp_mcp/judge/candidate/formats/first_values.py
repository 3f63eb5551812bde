"""Make a candidate's module so that the parameters it draws like the baseline's are the judge's from the start.

The suite makes both modules under one seed and loads nothing. A candidate may therefore name its parameters as it
likes, and fold, transpose or copy them while it is made. Here, too, the baseline's module and the candidate's are made
under one seed, and a tensor that the candidate draws like a parameter of the baseline gets the judge's values at once.
So does one that the module registers under the name of a parameter, and so do the ones and zeros of a norm, before
others are computed from them: the n-th norm of a class and size gets those of the baseline's n-th, since nothing else
tells which is which.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial, wraps
from typing import Any

from aisp_mcp.judge.candidate import adapted
from aisp_mcp.judge.candidate.seeding import replaced
from aisp_mcp.judge.protocol.messages import NO_PARAMETERS
from aisp_mcp.judge.protocol.module_loader import unusable

_SEED = 1  # any; both modules have it
_COMPARED = 64  # elements that tell two draws apart
Make = Callable[[], Any]
Key = tuple[Any, ...]
_Sort = tuple[Any, ...]  # the class of a norm, and the names and shapes of its tensors


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
    made = _Norms()
    with _noted_norms(made.add):
        pattern = under_one_seed(baseline, device)
    state = pattern.state_dict()
    keys = {name: _key(tensor) for name, tensor in state.items()}
    for tensor in state.values():
        tensor.zero_()  # or else memory that the candidate's module does not initialise may have these values
    counts = Counter(keys.values())
    names = {key: name for name, key in keys.items() if name in tensors and counts[key] == 1 and _differs(key)}
    writing = _writing()({key: (name, tensors[name]) for key, name in names.items()})
    handing = _Handing(made.names(pattern), tensors)
    try:
        with writing, _given_when_registered(tensors, kind), _noted_norms(handing.hand):
            module = under_one_seed(candidate, device)
    except Exception:  # if it is the candidate's own, it comes again
        return NewModule(candidate(), unseen=len(names))
    held, spare = handing.found(module)
    unseen = len(names) - len(writing.names)
    return NewModule(module, frozenset(writing.names), unseen, keys, held, spare | _batch_counters(pattern))


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
        raise unusable(
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
            # Reading a value would spoil a graph. Only a build for GPUs can ask.
            if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
                return
            name, values = self.tensors.get(_key(tensor), ("", None))
            if name:
                with torch.no_grad():
                    tensor.copy_(values.reshape(tensor.shape))
                self.names.add(name)

    return Writing


class _Norms:
    """The norms that a module makes, by sort, in the order in which they are made."""

    def __init__(self) -> None:
        self.layers: dict[_Sort, list[Any]] = defaultdict(list)

    def add(self, layer: Any) -> None:
        """Note the next norm."""
        self.layers[_norm_sort(layer)].append(layer)

    def names(self, module: Any) -> dict[_Sort, list[dict[str, str]]]:
        """For each norm, the names of its tensors in the module by its own names; empty if the module dropped it."""
        paths = {id(layer): path for path, layer in module.named_modules()}
        return {
            sort: [
                {key: f"{paths[id(layer)]}.{key}".removeprefix(".") for key in layer.state_dict() if id(layer) in paths}
                for layer in layers
            ]
            for sort, layers in self.layers.items()
        }


class _Handing:
    """Hands the judge's tensors to the norms of a candidate. names: those of the baseline's norms."""

    def __init__(self, names: Mapping[_Sort, list[dict[str, str]]], tensors: Mapping[str, Any]) -> None:
        self._names, self._tensors, self._norms = names, tensors, _Norms()
        self.given: list[tuple[Any, str]] = []  # a norm's tensor, and the baseline's name of the values that it got

    def hand(self, layer: Any) -> None:
        """Write the values of the baseline's norm that was made at the same point into this one."""
        import torch

        sort = _norm_sort(layer)
        at, names = len(self._norms.layers[sort]), self._names.get(sort, [])
        self._norms.add(layer)
        for key, tensor in layer.state_dict(keep_vars=True).items() if at < len(names) else ():
            if (name := names[at].get(key, "")) in self._tensors:
                with torch.no_grad():
                    tensor.copy_(self._tensors[name])
                self.given.append((tensor, name))

    def found(self, module: Any) -> tuple[dict[str, str], frozenset[str]]:
        """The baseline's names, by the module's own, of values that it has as they were given; and names that it need
        not have: it has these values, or dropped them after it could use them.

        If the candidate makes more or fewer norms of a sort than the baseline, the order tells nothing.
        """
        own = {id(tensor): name for name, tensor in reversed(module.state_dict(keep_vars=True).items())}
        given = [
            (own.get(id(tensor)), tensor.equal(self._tensors[name].to(tensor)), name) for tensor, name in self.given
        ]
        sorts = [sort for sort, names in self._names.items() if len(self._norms.layers[sort]) == len(names)]
        known = {name for sort in sorts for names in self._names[sort] for name in names.values()}
        changed = {name for own_name, same, name in given if own_name and not same}
        return {own_name: name for own_name, same, name in given if own_name and same}, frozenset(known - changed)


@contextmanager
def _noted_norms(note: Callable[[Any], None]) -> Iterator[None]:
    """Call the function with each norm layer as soon as it is made."""
    from torch.nn.modules import batchnorm, normalization

    def noting(init: Any) -> Any:
        @wraps(init)
        def made(layer: Any, *args: Any, **kwargs: Any) -> None:
            init(layer, *args, **kwargs)
            note(layer)

        return made

    owners = (batchnorm._NormBase, normalization.LayerNorm, normalization.GroupNorm, normalization.RMSNorm)
    with replaced([(owner, "__init__", noting(owner.__init__)) for owner in owners]):
        yield


def _batch_counters(module: Any) -> frozenset[str]:
    """Names of the numbers of batches that norms have seen, on which no output depends if their momentum is fixed."""
    return frozenset(
        f"{path}.num_batches_tracked".removeprefix(".")
        for path, layer in module.named_modules()
        if hasattr(layer, "num_batches_tracked") and getattr(layer, "momentum", None) is not None
    )


def _norm_sort(layer: Any) -> _Sort:
    own = next(each for each in type(layer).__mro__ if each.__module__.startswith("torch."))
    return (own, *((name, tuple(tensor.shape)) for name, tensor in layer.state_dict().items()))
