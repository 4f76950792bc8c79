"""Sources of sentence pairs: files, the hub, OPUS, sacreBLEU, the toy language.

In: a corpus of the YAML. Out: an iterator of (source, target) in the order of the corpus, and facts that
change when the corpus does. Validation and test sets are sentences with one or several references.
Begin with `corpus.py`.
"""
