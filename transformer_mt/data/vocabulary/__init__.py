"""Text to token ids and back: SentencePiece, learnt or given.

In: pairs and the keys of `tokenizer`. Out: a `Tokenizer`. PAD, UNK, BOS and EOS are always ids 0 to 3.
Begin with `tokenizer.py`.
"""
