"""Give a candidate's norm layers the judge's values when they are made: the n-th of a class and size those of the
baseline's n-th. The weights of norms begin with ones and zeros, so nothing else tells which is which.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

from aisp_mcp.judge.candidate.seeding import replaced

Sort = tuple[Any, ...]  # the class of a norm, and the names and shapes of its tensors


class Norms:
    """The norms that a module makes, by sort, in the order in which they are made."""

    def __init__(self) -> None:
        self.layers: dict[Sort, list[Any]] = defaultdict(list)

    def add(self, layer: Any) -> None:
        """Note the next norm."""
        self.layers[_sort(layer)].append(layer)

    def names(self, module: Any) -> dict[Sort, list[dict[str, str]]]:
        """For each norm, the names of its tensors in the module by its own names; empty if the module dropped it."""
        paths = {id(layer): path for path, layer in module.named_modules()}
        return {
            sort: [
                {key: f"{paths[id(layer)]}.{key}".removeprefix(".") for key in layer.state_dict() if id(layer) in paths}
                for layer in layers
            ]
            for sort, layers in self.layers.items()
        }


class Handing:
    """Hands the judge's tensors to the norms of a candidate. names: those of the baseline's norms."""

    def __init__(self, names: Mapping[Sort, list[dict[str, str]]], tensors: Mapping[str, Any]) -> None:
        self._names, self._tensors, self._norms = names, tensors, Norms()
        self.given: list[tuple[Any, str]] = []  # a norm's tensor, and the baseline's name of the values that it got

    def hand(self, layer: Any) -> None:
        """Write the values of the baseline's norm that was made at the same point into this one."""
        import torch

        sort = _sort(layer)
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
def noted(note: Callable[[Any], None]) -> Iterator[None]:
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


def counters(module: Any) -> frozenset[str]:
    """Names of the numbers of batches that norms have seen, on which no output depends if their momentum is fixed."""
    return frozenset(
        f"{path}.num_batches_tracked".removeprefix(".")
        for path, layer in module.named_modules()
        if hasattr(layer, "num_batches_tracked") and getattr(layer, "momentum", None) is not None
    )


def _sort(layer: Any) -> Sort:
    own = next(each for each in type(layer).__mro__ if each.__module__.startswith("torch."))
    return (own, *((name, tuple(tensor.shape)) for name, tensor in layer.state_dict().items()))
