"""Write a config that adapts a trained model to a user's files."""

import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_mt.companions.wizard.user_files import BATCH_FILL, Data, held_out_set, sides_of
from transformer_mt.config import Config, DataConfig
from transformer_mt.config.load import flow, load_config
from transformer_mt.config.resolve import with_parent
from transformer_mt.corpora.corpus import ImportedCorpus
from transformer_mt.corpora.file import FileCorpus
from transformer_mt.corpora.toy import ToyCorpus
from transformer_mt.data.vocabulary.given_tokenizer import given_tokenizer
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.files import write_text
from transformer_mt.run_folder import RunFolder, parent_of

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
    no_terms = "  changes: []\n" if data.more else ""  # there are no translations that have them
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


# Measured on captions (docs/measurements/adapting.md): more epochs of few pairs only forget more.
_EPOCHS = ((3_000, 10.0), (30_000, 5.0), (300_000, 3.0))
_MOST_EPOCHS = 1.0
_BATCH_TOKENS = 2048
_LEARNING_RATE = 0.0005
_LORA_LEARNING_RATE = 0.005


def adapting_config(data: Data, parent: str, out: Path) -> tuple[Config, str, Tokenizer]:
    """The config that is trained, with the parent's keys; its YAML; and the parent's vocabulary. The parent
    is a run's folder, a public model's, or a name on the hub.
    """
    is_run = RunFolder(parent).config_file.exists()
    head = _head(data, parent, is_run, out)
    config, tokenizer = _resolved(head + _train(100), out)
    lengths = [max(len(src), len(tgt)) + 1 for src, tgt in sides_of(data.sample, tokenizer)]
    epochs = next((epochs for pairs, epochs in _EPOCHS if data.pairs <= pairs), _MOST_EPOCHS)
    tokens = sum(lengths) / len(lengths) * data.pairs / BATCH_FILL
    text = head + _train(max(50, int(epochs * tokens / _BATCH_TOKENS) // 10 * 10))
    config, tokenizer = _resolved(text, out)
    return config, text, tokenizer


def _head(data: Data, parent: str, is_run: bool, out: Path) -> str:
    """The YAML without its section `train`."""
    begins = flow(parent) if is_run else flow({"huggingface": parent})
    corpora = "".join(f"\n    - {flow(guess.corpus)}" for guess in data.guesses)
    max_length = 128
    if is_run:
        config = RunFolder(parent).config()
        corpora += _of_parent(config.data)
        if config.model.has_max_positions:
            max_length = config.data.max_length
    held_out, about = held_out_set(data)
    return f"""\
# Written by `transformer-mt new` to adapt {parent} to {data.pairs:,} pairs. Inspect them first:
# transformer-mt inspect {shlex.quote(str(out))}
init_from: {begins}
data:
  source_lang: {data.source_lang}
  target_lang: {data.target_lang}
  train:{corpora}
  # About {about:,.0f} of the sources, by a hash: more data never moves one into training.
  valid: {held_out}
  test: [{held_out}]
  max_length: {max_length}
{data.more}"""


def _train(updates: int) -> str:
    every = max(10, updates // 10)
    return f"""\
train:
  max_updates: {updates}
  batch_tokens: {_BATCH_TOKENS}
  optimizer: adamw
  learning_rate: {_LEARNING_RATE}  # low, to keep what the model knows
  schedule: linear
  warmup: {max(5, updates // 10)}
  validate_every: {every}
  save_every: {every}
  patience: 5
  # Saves memory; set learning_rate: {_LORA_LEARNING_RATE}
  # lora: {{rank: 16, alpha: 32}}
"""


def _of_parent(data: DataConfig) -> str:
    """The training corpora of the parent, a run of this project, as a YAML comment."""
    entries = [entry for entry in data.entries if not isinstance(entry, (ImportedCorpus, ToyCorpus))]
    note = "\n    # To avoid forgetting, add some of the parent's training data"
    if not any(corpus.is_held_out for corpus in data.valid_sets):
        note += ", and\n    # name files for `valid` and `test`: held-out sets would be pairs that it knows"
    note += ":"
    return note + "".join(f"\n    # - {flow(entry)}" for entry in entries) if entries else ""


def _resolved(text: str, out: Path) -> tuple[Config, Tokenizer]:
    """The config completed by its parent, and the vocabulary. InputError if they do not fit."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / out.with_suffix(".yaml").name
        write_text(file, text)
        config = load_config(file)
    run = parent_of(config)
    run.check_weights()
    config = with_parent(config, run.config())
    tokenizer = given_tokenizer(config, run.tokenizer())
    assert tokenizer is not None
    return config, tokenizer
