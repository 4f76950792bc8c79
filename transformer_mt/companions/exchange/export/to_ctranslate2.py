"""CTranslate2: a folder that translates without torch, quantised where asked."""

import argparse
import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from transformer_mt.companions.exchange.export.ctranslate2_spec import write_model
from transformer_mt.companions.exchange.export.ctranslate2_support import reasons_against
from transformer_mt.companions.exchange.export.format import (
    Output,
    TrainedRun,
    num_positions,
    reasons_against_text,
)
from transformer_mt.companions.exchange.export.shared_files import shared_config, shared_files
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.config.dump import dump_config
from transformer_mt.files import write_text
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.engines.choice import SAME_SEARCH
from transformer_mt.translation.engines.ctranslate2_engine import import_ctranslate2, supported_settings
from transformer_mt.translation.result import Translation
from transformer_mt.translator import Translator


class ToCTranslate2:
    """A folder that is a MODEL for our commands."""

    name = "CTranslate2"
    advice = "Translate with the run's folder."
    proof_settings: ClassVar[dict[str, Any]] = SAME_SEARCH

    def __init__(self, quantization: str = "float32") -> None:
        self.quantization = quantization
        import_ctranslate2()

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "ToCTranslate2":
        return cls(arguments.quantization or "float32")

    def supported_settings(self, settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
        return supported_settings(settings)

    def reasons_against(self, config: Config) -> list[str]:
        return reasons_against(config.model) + reasons_against_text(config.data)

    def write(self, run: TrainedRun, folder: Path) -> None:
        write_model(run.model, run.tokenizer, run.config, folder, self.quantization)
        for file in shared_files(run.folder, run.extras):
            shutil.copyfile(file, folder / file.name)
        exported, weights = RunFolder(folder), run.folder.weights_digest()
        write_text(exported.config_file, dump_config(shared_config(run.config, run.extras)))
        facts = {"run": run.config.name, "weights": weights, "positions": num_positions(run.config)}
        write_text(exported.export_facts_file, json.dumps(facts, indent=1) + "\n")

    def translate(self, folder: Path, sentences: Sequence[str]) -> Sequence[Output]:
        translator = Translator.load(folder, device="cpu", decode=dict(self.proof_settings))
        results = translator.translate(sentences)
        return [Output(result.translation, result.score, result.tokens) for result in results]

    def expected(self, translation: Translation) -> Output | None:
        return Output(translation.translation, translation.score)  # our code divides lines here, too

    def metadata(self, config: Config) -> dict[str, Any]:
        return {}

    def usage(self, config: Config, out: str) -> str:
        return f"""\
On the command line and from Python, with transformer_mt:

```bash
pip install 'transformer-mt[ctranslate2]'
translate {shlex.quote(str(out))} < in.txt
```

```python
from transformer_mt import Translator

for result in Translator.load("{out}").translate(["..."]):
    print(result.translation)
```
"""

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        folder.rename(out)
