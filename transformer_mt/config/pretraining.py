"""The YAML's `data.denoise` and `data.masked_lm`: what the pretraining objectives do to a text."""

from pydantic import Field

from transformer_mt.settings.section import Section


class DenoiseConfig(Section):
    """Noise of the objective `denoise`, sampled again in each epoch (Lewis et al. 2020, section 2.2; the
    defaults are those of Liu et al. 2020). The sentences of a text are shuffled.
    """

    mask: float = Field(0.35, ge=0.0, lt=1.0)
    """Share of the words to hide, in spans with one <mask> each."""
    span: float = Field(3.5, ge=1.0, le=100.0)
    """Mean length of a span in words (Poisson); one of length 0 inserts a <mask>."""


class MaskedLmConfig(Section):
    """Masks of the objective `masked_lm` (Devlin et al. 2019, section 3.1)."""

    mask: float = Field(0.15, gt=0.0, lt=1.0)
    """Share of the tokens to predict: of these, 80 % become <mask>, 10 % another token, and 10 % stay.
    """
    next_sentence: bool = False
    """Append to each text the next one of its document or, with probability 0.5, a random one; the first
    token predicts which it is. A blank line ends a document.
    """
