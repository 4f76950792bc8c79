"""From text to batches of token ids.

`corpora` read pairs, `cleaning` drops some, `vocabulary` turns text into ids, `preparation` does this once
for all corpora of a config and caches the result, `batches` turns it into the updates of each epoch. To
follow a preparation step by step, read preparation.py at the top of the package.
"""
