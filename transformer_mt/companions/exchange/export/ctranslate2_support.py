"""Model configurations that CTranslate2 supports; checked before any weights are converted."""

from transformer_mt.config.model_section import ModelConfig

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int16", "int8")


def reasons_against(model: ModelConfig) -> list[str]:
    """Every reason why CTranslate2 cannot run such a model, each a key with what it must be; empty where it
    can.
    """
    scores = model.attention.scores()
    possible = {
        "kind": ("transformer",),
        "norm": ("pre", "post"),
        "norm_kind": ("layer", "rms"),
        "feed_forward": ("relu", "gelu", "silu", "swiglu"),
        "position": ("sinusoidal", "sinusoidal_fairseq", "learned", "relative", "rotary", "none"),
    }
    reasons = [
        f"model.{key} must be {' or '.join(values)}, but is {getattr(model, key)}"
        for key, values in possible.items()
        if getattr(model, key) not in values
    ]
    if model.kind != "transformer":
        return reasons  # nothing else would help
    for side in ("encoder", "decoder", "cross"):
        if (score := getattr(scores, side)) != "scaled_dot":
            reasons.append(f"model.attention.score must be scaled_dot, but is {score} ({side})")
    if model.qk_norm:  # tried with 4.8: its encoder and cross-attention compute something else
        reasons.append("model.qk_norm must be false, but is true")
    for key, value in (("window", 0), ("cross", "global"), ("hard", False)):
        if (present := getattr(model.attention, key)) != value:
            reasons.append(f"model.attention.{key} must be {value}, but is {present}")
    return reasons
