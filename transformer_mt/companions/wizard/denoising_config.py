"""The config of the denoising that a translation of few pairs begins with."""

import shlex
from pathlib import Path

from transformer_mt.companions.wizard.user_files import Data
from transformer_mt.config.dump import flow
from transformer_mt.corpora.file import FileCorpus
from transformer_mt.files import write_text

FEW_PAIRS = 20_000
"""So many are few. Measured with 6,600 (docs/measurements/low_resource.md)."""


def denoising_file(out: Path) -> Path:
    """File for the config that denoises the text of the pairs of `out`."""
    return out.with_name(f"{out.stem}_denoise{out.suffix}")


def write_denoising(data: Data, out: Path, updates: int) -> str:
    """Write the config that restores both sides of the pairs, for half of the updates of `out`. Returns the
    commands that begin with it.
    """
    entries = []
    for guess in data.guesses:
        changes: dict[str, object] = {"objective": "denoise"}
        if isinstance(guess.corpus, FileCorpus):  # both: a text is held out with its pair
            changes["columns"] = guess.corpus.columns or [data.source_lang, data.target_lang]
        for language in (data.target_lang, data.source_lang):
            entries.append(flow(guess.corpus.model_copy(update={**changes, "language": language})))
    file = denoising_file(out)
    half = max(100, updates // 2)
    no_terms = "  terms: {share: 0.0}\n" if data.more else ""  # there are no translations that have them
    text = f"""\
# Written by `transformer-mt new`: denoises the text of {out.name}, whose training can start from it.
# Add text without pairs in these languages: {{text: FILE, language: {data.target_lang}, objective: denoise}}.
extends: {out.name}
data:
  train:{"".join(f"{chr(10)}    - {entry}" for entry in entries)}
{no_terms}train: {{max_updates: {half}, schedule: constant, weight_decay: 0.0, monitor: loss}}
"""
    write_text(file, text)
    first, second = shlex.quote(str(file)), shlex.quote(str(out))
    return f"transformer-mt train {first}; transformer-mt train {second} init_from=runs/{file.stem}"
