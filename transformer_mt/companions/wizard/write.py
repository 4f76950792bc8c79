"""Write a config for a user's files, new or from a trained model, with sizes that suit this machine."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from transformer_mt.companions.wizard.plan import (
    MARIAN,
    UNSEGMENTED_LEAST,
    Size,
    seconds_per_update,
    shortened,
    size_for,
    smaller,
    suited,
    weight_decay,
)
from transformer_mt.companions.wizard.user_files import BATCH_FILL, Data, held_out_set, read_files, sides_of
from transformer_mt.config import Config, DataConfig
from transformer_mt.config.load import flow, load_config
from transformer_mt.config.resolve import with_parent
from transformer_mt.config.root import NAME_PATTERN, TokenizerConfig
from transformer_mt.corpora.corpus import ImportedCorpus
from transformer_mt.corpora.file import FileCorpus
from transformer_mt.corpora.toy import ToyCorpus
from transformer_mt.data.vocabulary.given_tokenizer import given_tokenizer, lost_letters_notes
from transformer_mt.data.vocabulary.tokenizer import Tokenizer, VocabularySizeError
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.messages import duration, say
from transformer_mt.processes import OtherPrograms, cpu_name
from transformer_mt.run_folder import RunFolder, parent_of
from transformer_mt.settings.corpus_keys import check_language
from transformer_mt.text.languages import count_unsegmented, has_no_word_spaces

FEW_PAIRS = 20_000
"""Up to this many pairs, `new` suggests beginning with denoising. Measured with 6,600 pairs
(docs/measurements/low_resource.md).
"""


def denoising_file(out: Path) -> Path:
    """File for the config that denoises the text of the pairs of `out`."""
    return out.with_name(f"{out.stem}_denoise{out.suffix}")


def write_denoising(data: Data, out: Path, updates: int) -> str:
    """Write a config that learns to denoise both sides of the pairs, in half of the `updates` of `out`.
    Returns the commands that train it first, then `out`.
    """
    entries = []
    for guess in data.guesses:
        changes: dict[str, object] = {"objective": "denoise"}
        if isinstance(guess.corpus, FileCorpus):  # both columns, so that a text is held out with its pair
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
    """The config completed with the parent's keys, its YAML, and the parent's vocabulary. The parent is the
    folder of a run or of a public model, or a name on the hub.
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
  # About {about:,.0f} of the sources, chosen by a hash, so that more data never moves one into training.
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
  # LoRA saves memory; with it, set learning_rate: {_LORA_LEARNING_RATE}
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


_HOUR = 3600.0
# A vocabulary has at most one token for this many words of the text: rarer tokens are learnt badly.
_WORDS_PER_PIECE = 20
# The 256 bytes, the special tokens and some letters; below the second number there is no room for letters.
_MIN_VOCABULARY, _REFUSED_VOCABULARY = 400, 300
_EXPORTS = {
    "rotary": "transformers cannot hold\n# rotary positions: for it, train with `model.position=sinusoidal`.",
    "sinusoidal": "All exports but bergamot can hold it.",
    MARIAN: "Of the exports,\n# only bergamot can hold it.",
}
"""A comment on the positions."""
_FOR_MARIAN = {
    "norm": "post", "init": "depth_scaled", "autoregression": "ssru", "decoder_start": "zeros"
}  # fmt: skip
# BLEU counts sequences of up to this many tokens.
_FEW_TOKENS = 4


def new_config(
    source_lang: str,
    target_lang: str,
    files: Sequence[str],
    out: Path,
    parent: str | None = None,
    glossary: str | None = None,
    purpose: str = "ctranslate2",
    hours: float | None = None,
) -> float:
    """Write a config for the files to `out`, of a new model or of one that adapts `parent`, say what was
    assumed, and return the seconds that the training will take. With a `glossary` the model learns to obey
    one. `purpose` is the export that a new model must fit, and `hours` the time that its training may take.
    """
    for file in (out, denoising_file(out)):
        if file.exists():
            raise InputError(f"{file}: must not exist yet, but does; name another file, or remove it")
    for code in (source_lang, target_lang):
        check_language(code)
    if source_lang == target_lang:
        raise InputError(f"source and target language must differ, but both are {source_lang}")
    if not re.fullmatch(NAME_PATTERN, out.stem):
        raise InputError(
            f"{out}: the name of a config must begin with a letter or digit and have only letters, digits "
            "and . + - _, as it is the name of the run's folder; name another file"
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out.parent).close()
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from None
    data = read_files(source_lang, target_lang, files, out.parent, glossary)
    if parent is not None:
        config, text, tokenizer = adapting_config(data, parent, out)
        for note in lost_letters_notes(tokenizer, data.sample, is_given=True):
            say(note)
        pieces = [(len(src) + 1, len(tgt) + 1) for src, tgt in sides_of(data.sample, tokenizer)]
        return _write(out, config, text, len(tokenizer.all_pieces_tgt), pieces) * config.train.max_updates
    size, updates = suited(size_for(data.pairs), purpose), None
    if hours is None:
        size, lengths = _fitting(size, data)
    else:
        say("measuring this machine, to fit the time")
        size, lengths, updates = _within(hours, data, size, out)
    config, text = _config(data, size, lengths, out, updates)
    seconds = _write(out, config, text, size.vocab_size, lengths)
    if data.pairs <= FEW_PAIRS:
        commands = write_denoising(data, out, config.train.max_updates)
        say(
            f"{data.pairs:,} pairs are few: training can begin by denoising their text and more text "
            f"(docs/how_to/few_pairs.md): {commands}"
        )
    return seconds * config.train.max_updates


def _write(
    out: Path, config: Config, text: str, vocab_size: int, lengths: Sequence[tuple[int, int]]
) -> float:
    """Write the config, and say how long its training will take. Returns the seconds of an update."""
    say("measuring this machine")
    others = OtherPrograms()
    seconds = seconds_per_update(config, vocab_size, lengths)
    total = seconds * config.train.max_updates
    note = others.note(total)
    estimate = f"# Estimated on {cpu_name()}: {duration(total)} in updates{note} (compare report.md)\n"
    write_text(out, text + estimate)
    say(
        f"{out}: training will take about {duration(total)} on this machine ({config.train.max_updates:,} "
        f"updates of {seconds:.2f} s), validations not counted{note}"
    )
    return seconds


def _tokenizer_keys(data: Data, size: Size) -> dict[str, object]:
    """The section `tokenizer` for this size and these languages."""
    keys: dict[str, object] = {"vocab_size": size.vocab_size}
    if any(map(has_no_word_spaces, (data.source_lang, data.target_lang))):
        keys["character_coverage"] = 0.9995
    if size.bpe_dropout:
        keys["bpe_dropout"] = size.bpe_dropout
    return keys


def _augment_keys(data: Data) -> dict[str, float]:
    """The augmentations that help (docs/measurements/experiments.md); typos if words have spaces."""
    return {"punctuation": 0.1} | ({} if has_no_word_spaces(data.source_lang) else {"typos": 0.1})


def _fitting(size: Size, data: Data) -> tuple[Size, list[tuple[int, int]]]:
    """Fit the vocabulary size to the languages and the text. Returns the size, and the lengths in tokens of
    the sampled pairs, end-of-sentence counted.
    """
    if any(map(has_no_word_spaces, (data.source_lang, data.target_lang))):
        size = replace(size, vocab_size=max(UNSEGMENTED_LEAST, size.vocab_size))
    texts = [text for pair in data.sample for text in pair]
    words = sum(len(text.split()) + count_unsegmented(text) for text in texts) / len(data.sample)
    most = int(words * data.pairs / _WORDS_PER_PIECE)
    vocab_size, least = min(size.vocab_size, max(_MIN_VOCABULARY, most)), _REFUSED_VOCABULARY
    while True:
        size = replace(size, vocab_size=vocab_size)
        try:
            keys = TokenizerConfig.model_validate(_tokenizer_keys(data, size))
            tokenizer = Tokenizer.train(data.sample, keys, [])
            break
        except VocabularySizeError as error:
            if error.nearest > vocab_size:  # the text has more characters
                vocab_size = least = error.nearest
            elif vocab_size * 3 // 4 < least:
                raise
            else:
                vocab_size = vocab_size * 3 // 4
    return size, [(len(src) + 1, len(tgt) + 1) for src, tgt in sides_of(data.sample, tokenizer)]


def _has_short_targets(data: Data) -> bool:
    """True if the targets have fewer tokens than BLEU's four-grams need."""
    targets = [tgt for _, tgt in data.sample]
    return sum(len(text.split()) + count_unsegmented(text) for text in targets) < _FEW_TOKENS * len(targets)


def _updates(data: Data, size: Size, lengths: Sequence[tuple[int, int]]) -> int:
    per_pair = sum(map(max, lengths)) / len(lengths) / BATCH_FILL
    return max(100, int(size.epochs * data.pairs * per_pair / size.batch_tokens) // 10 * 10)


def _validate_every(updates: int) -> int:
    """The number of updates between validations: about 15 validations, in a short training at least five."""
    return max(1, min(max(50, updates // 150 * 10), updates // 5))


def _config(
    data: Data, size: Size, lengths: Sequence[tuple[int, int]], out: Path, updates: int | None = None
) -> tuple[Config, str]:
    """The config, and its YAML with a comment on each choice. Without `updates`, as many as the data need."""
    updates = updates or _updates(data, size, lengths)
    every = _validate_every(updates)
    held_out, about = held_out_set(data)
    longest = sorted(map(max, lengths))
    max_length = next((n for n in (64, 128, 256) if longest[int(0.999 * (len(longest) - 1))] <= n), 256)
    fitting = sum(length <= max_length for length in longest) / len(longest)
    per_pair = sum(map(sum, lengths)) / len(lengths)
    entries = [flow(guess.corpus) for guess in data.guesses]
    train = f" {entries[0]}" if len(entries) == 1 else "".join(f"\n    - {entry}" for entry in entries)
    note = " BPE-dropout splits words into other tokens each time." if size.bpe_dropout else ""
    text = f"""\
# Written by `transformer-mt new` for {data.pairs:,} pairs of about {per_pair:.0f} tokens. Inspect them first:
# transformer-mt inspect {shlex.quote(str(out))}
data:
  source_lang: {data.source_lang}
  target_lang: {data.target_lang}
  train:{train}
  # About {about:,.0f} of the sources, chosen by a hash, so that more data never moves one into training.
  valid: {held_out}
  test: [{held_out}]
  max_length: {max_length}  # tokens; {fitting:.1%} of the pairs fit
  augment: {flow(_augment_keys(data))}  # people misspell words and leave out full stops
{data.more}\
# Sizes for about {size.pairs:,} pairs.{note}
tokenizer: {flow(_tokenizer_keys(data, size))}
# Width and depth fit the amount of data; less data gets more dropout. {_EXPORTS[size.position]}
model: {flow(_model_keys(size))}
train:
  max_updates: {updates}
  batch_tokens: {size.batch_tokens}
  learning_rate: {size.learning_rate}
  weight_decay: {weight_decay(size.learning_rate, updates)}
  schedule: cosine  # zero at max_updates; if the last validation is by far the best, raise it
  warmup: {max(10, updates // 12)}
  validate_every: {every}
  save_every: {every}
  log_every: {min(100, every)}
  patience: 0
"""
    if _has_short_targets(data):
        text += f"  monitor: chrF  # the targets have fewer than {_FEW_TOKENS} words, too few for BLEU\n"
    with TemporaryDirectory() as folder:
        file = Path(folder) / out.with_suffix(".yaml").name
        write_text(file, text)
        return load_config(file), text


def _within(hours: float, data: Data, size: Size, out: Path) -> tuple[Size, list[tuple[int, int]], int]:
    """The largest size that makes at least a quarter of its updates in this time, the lengths in its tokens,
    and the updates.
    """
    for other in [size, *smaller(size)]:
        chosen, lengths = _fitting(other, data)
        config, _ = _config(data, chosen, lengths, out)
        wanted = config.train.max_updates
        updates = min(wanted, int(hours * _HOUR / seconds_per_update(config, chosen.vocab_size, lengths)))
        if updates >= wanted / 4:
            break
    return shortened(chosen, chosen.epochs * updates / wanted), lengths, max(100, updates)


def _model_keys(size: Size) -> dict[str, object]:
    return {
        "d_model": size.d_model,
        "d_ff": size.d_ff,
        "num_heads": size.num_heads,
        "num_encoder_layers": size.layers,
        "num_decoder_layers": 1 if size.shallow_decoder else size.layers,
        "dropout": size.dropout,
        "position": size.position,
        **(_FOR_MARIAN if size.position == MARIAN else {}),
    }
