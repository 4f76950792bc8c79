"""The uses of encoders and decoders alone: fill it, complete it, classify it, score it.

A folder like `translation/`, for models that were trained on plain text (`model.kind: encoder`, `decoder`).
"""
