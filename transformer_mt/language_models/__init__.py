"""What encoders and decoders alone do with a text: fill it, complete it, classify it, score it.

A folder like `translation/`, for models that were trained on plain text (`model.kind: encoder`, `decoder`).
"""
