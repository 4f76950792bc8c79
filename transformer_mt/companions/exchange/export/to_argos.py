"""Argos Translate and LibreTranslate: one .argosmodel file with CTranslate2's files in it."""

import argparse
import importlib.util
import multiprocessing
import os
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from transformer_mt.companions.exchange.ctranslate2_engine import advice_on_int8, import_ctranslate2
from transformer_mt.companions.exchange.export.format import (
    OURS_ALONE,
    Output,
    TrainedRun,
    reasons_against_language_pieces,
    reasons_against_text,
)
from transformer_mt.companions.exchange.export.to_ctranslate2 import reasons_against, write_model
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.errors import InputError
from transformer_mt.text.languages import base_code, hyphenated, language_name
from transformer_mt.translation.result import Translation

# The search settings of Argos, which are the same for all models. The length penalty and the maximum length
# are fixed; users can set the beam, and this is its default.
_SEARCH: dict[str, Any] = {"beam": 4, "length_penalty": 0.2, "max_length": 256, "max_length_ratio": 100.0}
_CODES = {"zh-hant": "zt", "pt-br": "pb"}


class ToArgos:
    """A package for Argos Translate, which LibreTranslate uses, too."""

    name = "Argos"
    advice = "Train one with one vocabulary for both languages (tokenizer.shared: true), or use ctranslate2."
    proof_settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, quantization: str = "int8") -> None:
        self.quantization, self.low_bleu_advice = quantization, advice_on_int8()
        import_ctranslate2()
        for module in ("argostranslate", "babel"):
            if importlib.util.find_spec(module) is None:
                raise InputError(f"this needs {module}: pip install 'transformer-mt[argos]'")

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "ToArgos":
        return cls(arguments.quantization or "int8")

    def supported_settings(self, settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
        supported = DecodeConfig.model_validate(
            {**_SEARCH, "split_sentences": False, "stop_early": True, **OURS_ALONE}
        )
        unsaid = {"split_sentences", "batch_tokens", "max_length", "max_length_ratio"}
        names = set(DecodeConfig.model_fields) - unsaid
        return supported, sorted(n for n in names if getattr(settings, n) != getattr(supported, n))

    def reasons_against(self, config: Config) -> list[str]:
        reasons = reasons_against(config.model) + reasons_against_text(config.data)
        reasons += reasons_against_language_pieces(config.data)
        if not config.tokenizer.shared:
            reasons.append("tokenizer.shared must be true, but is false")
        return reasons

    def write(self, run: TrainedRun, folder: Path) -> None:
        (folder / "model").mkdir()
        write_model(run.model, run.tokenizer, run.config, folder / "model", self.quantization)
        (folder / "sentencepiece.model").write_bytes(run.tokenizer.models[0])

    def metadata(self, config: Config) -> dict[str, Any]:
        source, target = config.data.source_lang, config.data.target_lang
        return {
            "package_version": "1.0",
            "argos_version": "1.9",
            "type": "translate",
            "from_code": _code(source),
            "from_name": language_name(source),
            "to_code": _code(target),
            "to_name": language_name(target),
        }

    def translate(self, folder: Path, sentences: Sequence[str]) -> Sequence[Output]:
        # In a separate process, because importing Argos creates folders where environment variables point.
        with (
            tempfile.TemporaryDirectory() as home,
            ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process,
        ):
            return process.submit(_translate, folder, list(sentences), home).result()

    def expected(self, translation: Translation) -> Output | None:
        if translation.segments or {"truncated", "unchanged"} & set(translation.flags):
            return None
        # Argos takes every underscore for SentencePiece's mark of a space.
        return Output(translation.translation.replace("_", " ").strip(), translation.score)

    def usage(self, config: Config, out: str) -> str:
        source, target = _code(config.data.source_lang), _code(config.data.target_lang)
        return f"""\
Install it and translate with [Argos Translate](https://github.com/argosopentech/argos-translate) as below;
LibreTranslate finds installed packages by itself.

```python
from argostranslate import package, translate

package.install_from_path("{out}")
print(translate.translate("...", "{source}", "{target}"))
```
"""

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        name = f"translate-{_code(config.data.source_lang)}_{_code(config.data.target_lang)}-1_0"
        packed = folder.with_name(f"{folder.name}.zip")
        try:
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                    archive.write(file, f"{name}/{file.relative_to(folder)}")
            packed.replace(out)
        finally:
            packed.unlink(missing_ok=True)


def _translate(folder: Path, sentences: Sequence[str], home: str) -> list[Output]:
    """The translations by Argos of sentences, given to it one by one."""
    os.environ |= dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), home)
    for key in [key for key in os.environ if key.startswith("ARGOS_")]:
        del os.environ[key]
    import ctranslate2
    from argostranslate.package import Package
    from argostranslate.translate import apply_packaged_translation

    class WholeText:
        """Replaces Argos's own splitter, which may have to download a model."""

        def split_sentences(self, text: str) -> list[str]:
            return [text]

    package = Package(folder)
    translator = ctranslate2.Translator(str(folder / "model"), device="cpu")
    outputs = []
    for sentence in sentences:
        (best,) = apply_packaged_translation(package, sentence, translator, WholeText(), num_hypotheses=1)
        outputs.append(Output(best.value.strip(), best.score))
    return outputs


def _code(language: str) -> str:
    """Argos's code of a language."""
    return _CODES.get(hyphenated(language), base_code(language))
