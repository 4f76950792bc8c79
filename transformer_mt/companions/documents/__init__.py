"""Documents: their text is translated, everything else stays.

In: a document as text. Out: the same document with translated texts; markup within a sentence is placed by
alignment. Begin with `translate_file.py`.
"""

from transformer_mt.companion import Companion

_HERE = "transformer_mt.companions.documents"
companion = Companion(
    kinds={"document_format": {"documents": f"{_HERE}.formats:DOCUMENT_FORMATS"}},
    options={"translate": f"{_HERE}.translate_file:add_options"},
)
