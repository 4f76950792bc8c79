"""Uses of encoders and decoders alone: fill, complete, classify, score.

A folder like `translation/`, for models that were trained on plain text (`model.kind: encoder`, `decoder`).
"""
