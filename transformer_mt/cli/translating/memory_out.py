"""translate --memory-out: what is translated as a translation memory."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.cli.translating.request import TranslateRequest

if TYPE_CHECKING:
    from transformer_mt.translation.translator import Translator


def memory_out(
    request: TranslateRequest, translator: "Translator", files: ExitStack
) -> Callable[[str, str], None]:
    """The function that is called with each source and its translation."""
    if not request.memory_out:
        return lambda source, target: None
    from transformer_mt.memories.tmx_writer import TmxWriter

    languages = translator.source_lang, translator.target_lang
    return files.enter_context(TmxWriter(Path(request.memory_out), languages)).add
