"""Public models as runs: all commands work with them.

In: a folder of the Hugging Face hub, of Marian or of CTranslate2. Out: config.yaml, the vocabulary, the
weights, and where they came from. Begin with `import_model.py`.
"""
