"""Write a config that adapts a trained model to a user's files."""

import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_mt.config import Config
from transformer_mt.config.dump import flow
from transformer_mt.config.load import load_config
from transformer_mt.data.corpora.imported import ImportedCorpus
from transformer_mt.data.corpora.toy import ToyCorpus
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.files import write_text
from transformer_mt.importing.model_folder import parent_of
from transformer_mt.new_config.files import Data, held_out_share, sides_of
from transformer_mt.runs.folder import RunFolder
from transformer_mt.runs.resolve import with_parent

# Measured on captions (docs/measurements/adapting.md): more epochs of few pairs only forget more.
_EPOCHS = ((3_000, 10.0), (30_000, 5.0), (300_000, 3.0))
_MOST_EPOCHS = 1.0
_BATCH_TOKENS = 2048
_LEARNING_RATE = 0.0002
_BATCH_FILL = 0.92


def adapting_config(data: Data, parent: str, out: Path) -> tuple[Config, str, Tokenizer]:
    """The config that is trained, with the parent's keys; its YAML; and the parent's vocabulary. The parent
    is a run's folder, a public model's, or a name on the hub.
    """
    is_folder = Path(parent).is_dir() and not (Path(parent) / "config.json").exists()
    begins = flow(parent) if is_folder else flow({"huggingface": parent})
    share, most = held_out_share(data.pairs)
    held_out = f"{{from_train: {{share: {share}, max: {most}}}}}"
    train = "".join(f"\n    - {flow(guess.corpus)}" for guess in data.guesses)
    train += _of_parent(parent) if is_folder else ""
    text = f"""\
# Written by `transformer-mt new` to adapt {parent} to {data.pairs:,} pairs. Look at them first:
# transformer-mt inspect {shlex.quote(str(out))}
init_from: {begins}
data:
  source_lang: {data.source_lang}
  target_lang: {data.target_lang}
  train:{train}
  # About {float(share) * data.pairs:,.0f} of the sources, by a hash: more data never moves one into training.
  valid: {held_out}
  test: [{held_out}]
  max_length: 128
train:
  max_updates: UPDATES  # about EPOCHS epochs
  batch_tokens: {_BATCH_TOKENS}
  optimizer: adamw
  learning_rate: {_LEARNING_RATE}  # low: the model is to keep what it knows
  schedule: linear
  warmup: WARMUP
  validate_every: EVERY
  save_every: EVERY
  patience: 5
  # Little memory, and less is forgotten; with learning_rate: 0.001
  # lora: {{rank: 16, alpha: 32}}
"""
    config, tokenizer = _resolved(_with_numbers(text, 100, 1.0), out)
    lengths = [max(len(src), len(tgt)) + 1 for src, tgt in sides_of(data.sample, tokenizer)]
    epochs = next((epochs for pairs, epochs in _EPOCHS if data.pairs <= pairs), _MOST_EPOCHS)
    tokens = sum(lengths) / len(lengths) * data.pairs / _BATCH_FILL
    text = _with_numbers(text, max(50, int(epochs * tokens / _BATCH_TOKENS) // 10 * 10), epochs)
    config, tokenizer = _resolved(text, out)
    return config, text, tokenizer


def _of_parent(parent: str) -> str:
    """The corpora that a run of this project was trained on, as a comment."""
    entries = [
        entry
        for entry in RunFolder(parent).config().data.entries
        if not isinstance(entry, (ImportedCorpus, ToyCorpus))
    ]
    note = "\n    # To forget nothing, add some of what the parent was trained on:"
    return note + "".join(f"\n    # - {flow(entry)}" for entry in entries) if entries else ""


def _with_numbers(text: str, updates: int, epochs: float) -> str:
    numbers = {"UPDATES": updates, "WARMUP": max(5, updates // 10), "EVERY": max(10, updates // 10)}
    for name, value in (*numbers.items(), ("EPOCHS", f"{epochs:g}")):
        text = text.replace(name, str(value))
    return text


def _resolved(text: str, out: Path) -> tuple[Config, Tokenizer]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / out.with_suffix(".yaml").name
        write_text(file, text)
        config = load_config(file)
    run = parent_of(config)
    assert run is not None
    return with_parent(config, run.config()), run.tokenizer()
