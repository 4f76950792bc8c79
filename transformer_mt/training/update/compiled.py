"""torch.compile for training: a whole network for batches of all sizes, or its layers for those of one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import MethodType

import torch
from torch import Tensor, nn


def compiled_for_all_sizes(hidden: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`hidden` as one graph whose sizes are variables: to compile another takes as long as many updates.

    Both settings are private to torch; a version without them may compile more graphs.
    """
    settings, for_large = torch.fx.experimental._config, "triton.mix_order_reduction"
    if hasattr(settings, "use_duck_shape"):
        settings.use_duck_shape = False  # else sizes that are equal in the first batch must always be equal
    # A reduction that the inductor uses for large batches only: the last batch of an epoch is small.
    is_known = for_large in torch._inductor.list_options()
    return torch.compile(hidden, dynamic=True, options={for_large: False} if is_known else None)


class CompiledLayers:
    """The layers of a network, compiled for batches of one size. One compilation serves all layers of a
    kind, so it takes as long as that of two layers.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        kinds = {type(layer) for layer in layers}
        compiled = {kind: torch.compile(kind.forward, dynamic=False, fullgraph=True) for kind in kinds}
        self._forwards = [(layer, MethodType(compiled[type(layer)], layer)) for layer in layers]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it the layers are the compiled ones. Validation and translation, whose sizes change, use
        them as they are.
        """
        for layer, forward in self._forwards:
            layer.__dict__["forward"] = forward  # hides the method of the class
        try:
            yield
        finally:
            for layer, _ in self._forwards:
                del layer.__dict__["forward"]
