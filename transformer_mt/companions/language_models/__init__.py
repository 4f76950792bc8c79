"""Uses of encoders and decoders alone: fill in words, continue texts, label texts, score texts.

In: a run with `model.kind: encoder` or `decoder`, which the core trains. Begin with `text_models.py`.
"""

from transformer_mt.companion import Command, Companion

_HERE = "transformer_mt.companions.language_models"
companion = Companion(
    commands={
        "fill": Command(f"{_HERE}.commands:add_fill", "fill in masked words (BERT)", "research"),
        "complete": Command(f"{_HERE}.commands:add_complete", "continue texts (GPT)", "research"),
        "classify": Command(f"{_HERE}.commands:add_classify", "label texts", "research"),
    },
    hooks={"evaluate_text": f"{_HERE}.text_models:evaluate_text"},
)
