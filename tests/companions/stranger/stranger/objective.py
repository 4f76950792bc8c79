"""An objective of plain text."""

from transformer_mt.settings.objectives import TextObjective


class Reverse(TextObjective):
    """The model reads a text backwards, and writes it in order."""

    title = "putting words in order"
    model_kinds = ("transformer", "recurrent")
    is_plain_text = True

    def source(self, ids, rng):
        return ids[::-1]
