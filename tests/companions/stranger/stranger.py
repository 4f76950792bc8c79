"""The parts that this package brings to transformer_mt. It imports no more: parts are imported when used."""

from transformer_mt.companion import Command, Companion

companion = Companion(
    commands={"vowels": Command("stranger_parts", "count the vowels of the texts", "research")},
    kinds={
        "attention_score": {"sigmoid": "stranger_parts:Sigmoid"},
        "loss": {"focal": "stranger_parts:Focal"},
        "stage": {"vowels": "stranger_parts:Vowels"},
    },
)
