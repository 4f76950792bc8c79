"""The objectives of corpora: what a text or a pair teaches the model. Every config asks them, so nothing slow
is imported here; noise and masks stand in data/changes/objectives.py.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from transformer_mt.errors import InputError
from transformer_mt.parts import every_name, load_part
from transformer_mt.settings.part import PartName

if TYPE_CHECKING:
    import numpy as np

TRANSLATION = PartName("translation")
MASK = "<mask>"
"""The control token that the model reads instead of hidden tokens."""


class TextObjective:
    """An objective, named by `objective` of a corpus. If it has a section `Settings`, it gets `settings`."""

    title: ClassVar[str]
    """In reports: the model has learnt ..."""
    model_kinds: ClassVar[tuple[str, ...]]
    """The values of `model.kind` that can be trained for it."""
    translates: ClassVar[bool] = False
    """True if the target is a translation of the source."""
    is_plain_text: ClassVar[bool] = False
    """True for plain text, in one language: the text itself is predicted."""
    has_labels: ClassVar[bool] = False
    """True if the target is one of `data.labels`."""
    control_tokens: ClassVar[tuple[str, ...]] = ()
    """Additional vocabulary tokens that the objective puts into the model's input."""

    def __init__(self, tokenizer: Any, config: Any) -> None:
        self.tokenizer, self.config = tokenizer, config

    def source(self, ids: "np.ndarray", rng: "np.random.Generator") -> "np.ndarray":
        """For plain text: the encoder's input, at most T tokens, for a text (T,) that the decoder writes."""
        raise NotImplementedError


class Translation(TextObjective):
    """The target is a translation of the source."""

    title = "translation"
    model_kinds = ("transformer", "recurrent")
    translates = True


class CausalLanguageModel(TextObjective):
    """Each token is predicted from those before it; the source is empty (Radford et al. 2018)."""

    title = "language modelling"
    model_kinds = ("transformer", "recurrent", "decoder")
    is_plain_text = True

    def source(self, ids: "np.ndarray", rng: "np.random.Generator") -> "np.ndarray":
        return ids[:0]


class MaskedLanguageModel(TextObjective):
    """Hidden tokens of a text are predicted (Devlin et al. 2019); settings in `data.masked_lm`."""

    title = "masked language modelling"
    model_kinds = ("encoder",)
    is_plain_text = True
    control_tokens = (MASK,)


class Classification(TextObjective):
    """The target is a label of the source, one of `data.labels`."""

    title = "classification"
    model_kinds = ("encoder",)
    has_labels = True


class MissingObjective(TextObjective):
    """Stands for an objective of a run whose package is not installed here: translating does not need it."""

    title = "an objective that is not installed here"
    model_kinds = ("transformer", "recurrent", "encoder", "decoder")


def objective_class(name: str) -> type[TextObjective]:
    """The class of an objective; MissingObjective if no installed package has the name, which can happen with
    the config of an old run. InputError for a part that is no objective.
    """
    if name not in every_name("objective"):
        return MissingObjective
    part: type[TextObjective] = load_part("objective", name)
    if not (isinstance(part, type) and issubclass(part, TextObjective)):
        raise InputError(
            f"the objective {name} must be a subclass of {TextObjective.__module__}.TextObjective"
        )
    return part


def objectives_of(model_kind: str) -> list[str]:
    """The objectives that a kind of model can be trained for."""
    return [name for name in every_name("objective") if model_kind in objective_class(name).model_kinds]
