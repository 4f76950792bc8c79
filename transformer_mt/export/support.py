"""What CTranslate2 can run of what a YAML file can describe; asked before any weights move."""

from transformer_mt.config import ModelConfig

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int16", "int8")


def reasons_against(model: ModelConfig) -> list[str]:
    """Every reason why CTranslate2 cannot run such a model, each a key with what it must be; empty where it can."""
    possible = {
        "kind": ("transformer",),
        "norm": ("pre", "post"),
        "activation": ("relu", "gelu", "swiglu"),
        "position": ("sinusoidal", "learned"),
    }
    return [
        f"model.{key} must be {' or '.join(values)}, but is {getattr(model, key)}"
        for key, values in possible.items()
        if getattr(model, key) not in values
    ]
