"""The parts that this package brings to transformer_mt. It imports no more: parts are imported when used."""

from transformer_mt.companion import Command, Companion

companion = Companion(
    kinds={
        "attention_score": {"sigmoid": "stranger.attention_score:Sigmoid"},
        "position": {"kerple": "stranger.position:Kerple"},
        "norm": {"scale": "stranger.norm:ScaleNorm"},
        "feed_forward": {"experts": "stranger.feed_forward:Experts"},
        "residual": {"sandwich": "stranger.residual:Sandwich"},
        "loss": {"focal": "stranger.loss:Focal"},
        "optimizer": {"lion": "stranger.optimizer:Lion"},
        "schedule": {"trapezoid": "stranger.schedule:Trapezoid"},
        "objective": {"reverse": "stranger.objective:Reverse"},
        "corpus": {"numbers": "stranger.corpus:Numbers"},
        "change": {"swap": "stranger.change:SwappedNeighbours"},
        "stage": {"vowels": "stranger.stage:Vowels"},
        "resource": {"least": "stranger.resource:Least"},
        "engine": {"copy": "stranger.engine:Copy"},
        "selection": {"at_least": "stranger.selection:AtLeast"},
        "rule": {"no_digits": "stranger.rule:NoDigits"},
        "metric": {"first word": "stranger.metric:FirstWord"},
        "logger": {"csv": "stranger.logger:Csv"},
        "document_format": {"list": "stranger.document:FORMATS"},
        "export_format": {"zip": "stranger.export_format:Zip"},
    },
    commands={"vowels": Command("stranger.command", "count the vowels of the texts", "research")},
    hooks={"open_model": "stranger.open_model:open_link"},
)
