"""A format of documents for `translate -i`: a JSON list of texts."""

import json
from pathlib import Path

from transformer_mt.cli.model_options import load_translator
from transformer_mt.text.file_formats import DocumentFormats

FORMATS = DocumentFormats(endings={".list": "list"}, translate="stranger.document:translate")


def translate(request, format):
    """Write the list of the translations."""
    texts = json.loads(Path(request.input).read_text(encoding="utf-8"))
    results = load_translator(request.model).translate(texts)
    text = json.dumps([result.translation for result in results], ensure_ascii=False)
    Path(request.output).write_text(text, encoding="utf-8")
