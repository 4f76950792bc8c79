"""From text to batches of token ids.

`corpora` read pairs, `cleaning` drops some, `vocabulary` turns text into ids, `preparation` does this once
for all corpora of a config and caches the result, `batches` makes each epoch's updates of it. The story of a
preparation stands at the top of the package, in preparation.
"""
