"""The contents of a user's files: the corpora in them, how many pairs, and a sample."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from transformer_mt.companions.wizard.guess_corpora import GuessedCorpora, guess_corpora
from transformer_mt.config import DataConfig
from transformer_mt.corpora.held_out import BlockSample
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.messages import say, show_progress
from transformer_mt.parts import load_part

BATCH_FILL = 0.92
"""Batches are as full as this, because their pairs differ in length."""

# Pairs whose pieces are counted.
_SAMPLE = 20_000
# Characters of a side.
_LONGEST = 4000
# A set that is held out has about this many pairs, but at most this share of all.
_HELD_OUT, _MOST_HELD_OUT = 1000, 0.05
# With fewer pairs such a share may hold out none.
_FEWEST = 200


@dataclass(frozen=True)
class Data:
    """The numbers that the sizes depend on."""

    source_lang: str
    target_lang: str
    guesses: list[GuessedCorpora]
    pairs: int
    sample: list[tuple[str, str]]
    share_before: float
    """The largest share of these files that an earlier config holds out; 0 without one."""
    more: str = ""
    """Further lines of the YAML's section `data`."""


def read_files(
    source_lang: str, target_lang: str, files: Sequence[str], folder: Path, glossary: str | None = None
) -> Data:
    """The contents of the files, after saying what was assumed of them. InputError if it is too little, or if
    the file of terms cannot be read. Earlier configs of the files are looked for in `folder` and its runs.
    """
    terms = (
        None
        if glossary is None
        else load_part("resource", "glossary").read(glossary, (source_lang, target_lang))
    )
    guesses = guess_corpora(files, source_lang, target_lang)
    for guess in guesses:
        say(f"Assuming that {guess.assumed}.")
    data = _read(source_lang, target_lang, guesses, folder)
    say(f"{data.pairs:,} pairs")
    if len(data.sample) < _FEWEST:
        raise InputError(
            f"{', '.join(files)}: must have at least {_FEWEST} pairs with text on both sides, but have "
            f"{len(data.sample)}"
        )
    if terms is None:
        return data
    share = sum(bool(terms.in_both(*pair)) for pair in data.sample) / len(data.sample)
    say(f"{glossary}: {len(terms.terms):,} terms; {share:.1%} of the pairs have one on both sides")
    key = "  changes: [terms]  # for glossaries (docs/how_to/terms.md); needs the extra alignment\n"
    return replace(data, more=key)


def held_out_set(data: Data) -> tuple[str, float]:
    """The YAML of a validation or test set that is held out of the pairs, and about how many it has. A share
    that an earlier config holds out does not shrink: its sentences would move into training.
    """
    share = min(_MOST_HELD_OUT, float(f"{1.2 * _HELD_OUT / data.pairs:.2g}"))
    share = max(share, data.share_before)
    written = f"{share:.10f}".rstrip("0")
    return f"{{from_train: {{share: {written}, max: {_HELD_OUT}}}}}", share * data.pairs


def _share_before(guesses: Sequence[GuessedCorpora], folder: Path) -> float:
    files = {Path(file).resolve() for guess in guesses for file in guess.corpus.local_files()}
    shares = {0.0: Path()}
    for path in (*folder.glob("*.yaml"), *folder.glob("runs/*/config.yaml")):
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))["data"]
            named = {Path(text).resolve() for text in _texts(data["train"])}
            sets = [data["valid"], *(data.get("test") or [])]
            of_config = [float(one["from_train"].get("share", 0.01)) for one in sets if "from_train" in one]
        except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
            continue  # no config
        if of_config and files & named:
            shares[max(of_config)] = path
    if share := max(shares):
        say(f"{shares[share]} holds out {share:.2%} of these files: the same share is used")
    return share


def _texts(value: object) -> Iterator[str]:
    """All strings in a YAML value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def sides_of(pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> Iterator[tuple[list[int], list[int]]]:
    """The pieces of both sides of each pair."""
    return zip(
        tokenizer.encode_src([src for src, _ in pairs]), tokenizer.encode_tgt([tgt for _, tgt in pairs])
    )


def _read(source_lang: str, target_lang: str, guesses: list[GuessedCorpora], folder: Path) -> Data:
    """Count the pairs, and take a sample."""
    first = guesses[0].corpus
    config = DataConfig(source_lang=source_lang, target_lang=target_lang, train=first, valid=first)
    sample, pairs = BlockSample(), 0
    for guess in guesses:
        for pair in show_progress(guess.corpus.read(config.languages), "reading", unit="pairs"):
            sample.add(pairs, (pair[0].strip(), pair[1].strip()))
            pairs += 1
    chosen = [pair for block in sample.blocks() for pair in block.pairs if all(pair)]
    # A text without line ends would count as much as all others, and no training takes so long a pair.
    chosen = [pair for pair in chosen if max(map(len, pair)) <= _LONGEST] or chosen
    step = -(-len(chosen) // _SAMPLE) or 1
    return Data(source_lang, target_lang, guesses, pairs, chosen[::step], _share_before(guesses, folder))
