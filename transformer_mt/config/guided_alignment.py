"""The YAML's `train.guided_alignment`: one head of the cross-attention learns word alignments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from transformer_mt.settings.section import AutoOrPositive, Conflict, Location, Section


class GuidedAlignmentConfig(Section):
    """Supervision of one head of the cross-attention by word alignments (Garg et al. 2019, section 4.1)."""

    weight: float = Field(0.0, ge=0.0)
    """Weight of the alignment loss in the total loss; 0 turns it off, 0.05 is usual."""
    layer: AutoOrPositive = "auto"
    """Decoder layer, from 1; auto: the last but one if there are more than three, else the last."""
    file: Location[str | list[str] | None] = None
    """Alignments in Pharaoh format (`0-0 1-2`: words separated by spaces, counted from 0), one line per pair
    of the corpus; a list has one file per translation corpus. If omitted, the aligner eflomal (extra
    `alignment`) aligns the pairs.
    """

    @property
    def files(self) -> list[Path]:
        """The files of alignments; none where an aligner makes them."""
        files = [self.file] if isinstance(self.file, str) else self.file or []
        return [Path(file) for file in files]

    @property
    def guided_layer(self) -> Literal["auto"] | int | None:
        """The decoder layer whose first head learns to align words; None where none does."""
        return self.layer if self.weight else None

    def conflicts_with(self, config: Any) -> Iterator[Conflict]:
        corpora = sum(entry.objective == "translation" for entry in config.data.entries)
        if self.files and not needs_links(config):
            yield "train.guided_alignment.file must be left out where nothing uses alignments"
        if self.files and len(self.files) != corpora:
            yield (
                f"train.guided_alignment.file must be one file per training corpus of translations "
                f"({corpora}), but is {len(self.files)}"
            )
        if not self.weight:
            return
        if config.model.kind != "transformer":
            yield (
                f"train.guided_alignment.weight must be 0 with model.kind: {config.model.kind}, but is "
                f"{self.weight:g}"
            )
        is_the_parents = config.init_from and "num_decoder_layers" not in config.model.model_fields_set
        if is_the_parents or self.layer == "auto":
            return
        if self.layer > (layers := config.model.num_decoder_layers):
            yield (
                f"train.guided_alignment.layer must be at most model.num_decoder_layers ({layers}), but is "
                f"{self.layer}"
            )


def needs_links(config: Any) -> bool:
    """True if the training needs word alignments of its pairs: for this, or to find terms in them."""
    terms = config.data.terms
    return config.train.guided_alignment.weight > 0 or (terms.share > 0 and terms.file is None)
