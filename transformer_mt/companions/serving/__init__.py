"""Models that translate the lines of many requests in shared batches, loaded while they are used.

In: lines, texts, documents and files. Out: their translations. `http` serves them.
Begin with `models.py` and `batcher.py`.
"""

from transformer_mt.companion import Command, Companion

companion = Companion(
    requires=["documents"],
    commands={"serve": Command("transformer_mt.companions.serving.commands", "translate over HTTP", "use")},
)
