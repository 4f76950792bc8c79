"""What a user's files contain: corpora, guessed from formats, columns and names, and a sample of pairs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import yaml

from transformer_mt.config import DataConfig
from transformer_mt.corpora.file import TABLES, FileCorpus, named_rows, text_rows
from transformer_mt.corpora.held_out import BlockSample
from transformer_mt.corpora.line_files import FilesCorpus
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.messages import say, show_progress
from transformer_mt.parts import load_part
from transformer_mt.text.languages import (
    LanguageIdentifier,
    base_code,
    is_same_language,
    names_of,
    script_share,
)
from transformer_mt.text.lines import read_lines, without_compression

# The rows of a table that are examined: the first `_STRIDE`, then one in `_STRIDE`, `_ROWS` in all.
_ROWS, _STRIDE = 300, 20
_NAMES = {"src": 0, "source": 0, "tgt": 1, "trg": 1, "target": 1}


@dataclass
class GuessedCorpora:
    """A corpus, and what was assumed about it."""

    corpus: FileCorpus | FilesCorpus
    assumed: str


@dataclass
class _Text:
    """A plain text file, its side (guessed from its name or its lines), and its name without the language."""

    path: str
    side: int
    stem: str
    by: str = "their names"
    shares: tuple[float, float] | None = None
    """The shares of its lines that may be in each language; None if its name says the language."""


def guess_corpora(files: Sequence[str], source_lang: str, target_lang: str) -> list[GuessedCorpora]:
    """The corpora in the files, in the order in which they are named. InputError if a file cannot be used."""
    languages = source_lang, target_lang
    guesses: dict[int, GuessedCorpora] = {}
    texts: list[str] = []
    named: set[Path] = set()
    for number, path in enumerate(files):
        if Path(path).resolve() in named:
            raise InputError(f"{path}: must be named once, but is named again")
        named.add(Path(path).resolve())
        if Path(path).is_dir():
            raise InputError(
                f"{path}: must be a file, but is a folder; name the files in it, or write {{hub: {path}, "
                "split: train} into a config by hand"
            )
        suffix = Path(without_compression(path)).suffix.lower()
        if suffix in TABLES:
            guesses[number] = _table(path, suffix, languages)
        elif suffix in (".tmx", ".zip"):
            guesses[number] = GuessedCorpora(
                FileCorpus(file=path), f"the pairs of {path} are its units in {' and '.join(languages)}"
            )
        else:
            texts.append(path)
    for first, second in _paired(texts, languages):
        src, tgt = sorted((first, second), key=lambda text: text.side)
        by = " and ".join(dict.fromkeys((src.by, tgt.by)))
        assumed = (
            f"line n of {tgt.path} ({target_lang}) translates line n of {src.path} ({source_lang}); the "
            f"languages are taken from {by}"
        )
        guesses[files.index(first.path)] = GuessedCorpora(
            FilesCorpus(source=src.path, target=tgt.path), assumed
        )
    return [guesses[number] for number in sorted(guesses)]


# Text files


def _paired(paths: Sequence[str], languages: tuple[str, str]) -> list[tuple[_Text, _Text]]:
    """Pair the text files whose names differ only in the language; two files alone may have any names."""
    texts = [_text(path, languages) for path in paths]
    if len(texts) == 2 and all(text.shares is not None for text in texts):
        _tell_apart(texts[0], texts[1], languages)
    if len(texts) == 2 and texts[0].side != texts[1].side:
        return [(texts[0], texts[1])]
    pairs, left = [], list(texts)
    while left:
        text = left.pop(0)
        partner = next((other for other in left if other.stem == text.stem and other.side != text.side), None)
        if partner is None:
            raise InputError(
                f"{text.path}: must have a line-aligned file in the other language, but there is none; give "
                f"both, with names that differ only in the language: all.{languages[0]} all.{languages[1]}"
            )
        left.remove(partner)
        pairs.append((text, partner))
    return pairs


def _tell_apart(first: _Text, second: _Text, languages: tuple[str, str]) -> None:
    """Assign two texts to source and target, comparing both orders: one language may be unidentifiable."""
    assert first.shares and second.shares
    in_order, swapped = min(first.shares[0], second.shares[1]), min(second.shares[0], first.shares[1])
    if in_order == swapped or max(in_order, swapped) < 0.5:
        raise InputError(
            f"{first.path} and {second.path}: their names must tell which is {languages[0]}, as all."
            f"{languages[0]} and all.{languages[1]} do, because their text does not"
        )
    first.side, second.side = int(in_order < swapped), int(in_order > swapped)


def _text(path: str, languages: tuple[str, str]) -> _Text:
    name = Path(without_compression(path)).name
    candidates = [
        (match.start(), match.group().lower() == language.lower(), side, match)
        for side, language in enumerate(languages)
        for match in _code_in_names(language).finditer(name)
    ]
    if candidates:  # the last code counts: Europarl.de-en.en is English
        _, _, side, match = max(candidates, key=lambda candidate: candidate[:2])
        return _Text(path, side, f"{Path(path).parent}/{name[: match.start()]}*{name[match.end() :]}")
    lines = list(islice(read_lines(path), 0, _ROWS * _STRIDE, _STRIDE))
    of_src, of_tgt = (_share_in(lines, language) for language in languages)
    return _Text(path, int(of_tgt > of_src), name, "their text", (of_src, of_tgt))


def _code_in_names(language: str) -> "re.Pattern[str]":
    """A pattern for the code in file names, alone or with script or country: zh, zh_Hans, zh_CN."""
    whole, base = re.escape(language), re.escape(base_code(language))
    return re.compile(rf"(?<![A-Za-z])(?i:{whole}|{base})(?:[_-](?:[A-Z][a-z]{{3}}|[A-Z]{{2}}))*(?![A-Za-z])")


def _share_in(lines: Sequence[str], language: str) -> float:
    """The share of the lines that may be in the language, by their script and their words."""
    lines = [line for line in lines if any(map(str.isalpha, line))]
    # If the scripts of the language are not known, every script fits.
    fitting = [line for line in lines if (share := script_share(line, language)) is None or share > 0.3]
    if not fitting:
        return 0.0
    identifier = LanguageIdentifier()
    if not identifier.knows(language):
        return len(fitting) / len(lines)
    return sum(is_same_language(identifier.best(line), language) for line in fitting) / len(lines)


# Tables


def _table(path: str, suffix: str, languages: tuple[str, str]) -> GuessedCorpora:
    delimiter = _delimiter(path) if suffix in (".tsv", ".csv") else None
    rows = _rows(path, suffix, delimiter)
    if not rows:
        raise InputError(f"{path}: a corpus must have sentence pairs, but is empty")
    if named := _by_name(list(rows[0].values() if delimiter else rows[0]), languages):
        # The columns are the two languages by default.
        columns = None if named == list(languages) else named
        assumed = f"the pairs of {path} are its columns {named[0]} and {named[1]}, by their names"
        return GuessedCorpora(_corpus(path, columns, delimiter), assumed)
    if not delimiter and isinstance(rows[0].get("translation"), dict):
        return GuessedCorpora(
            _corpus(path, None, None), f"the pairs of {path} are {' and '.join(languages)} of `translation`"
        )
    chosen, shares = _by_text(rows[1:] or rows, languages)
    if not chosen:
        raise InputError(
            f"{path}: must have a column in {languages[0]} and one in {languages[1]}, but has one column of "
            "text; join the two files of a text with `paste`, or give both files"
        )
    if min(shares) < 0.5:
        described = " and ".join(
            f"{share:.0%} of its rows in {lang}" for share, lang in zip(shares, languages)
        )
        raise InputError(
            f"{path}: must have a column in {languages[0]} and one in {languages[1]}, but the best two have "
            f"{described}; give the columns these names in the first line, or write the corpus into a config "
            "by hand, with `columns`"
        )
    header = ""
    if delimiter:
        if max(chosen) > len(rows[0]):
            raise InputError(
                f"{path}: row 1 must have {max(chosen)} columns, as others have, but has {len(rows[0])}; "
                "remove lines above the table"
            )
        names = [str(rows[0][column]) for column in chosen]
        if _are_names(names, [[str(row.get(column)) for row in rows[1:]] for column in chosen], languages):
            chosen = names
        else:
            header = " (no header)"
    assumed = f"the pairs of {path} are its columns {chosen[0]} and {chosen[1]}, by their text{header}"
    return GuessedCorpora(_corpus(path, chosen, delimiter), assumed)


def _corpus(path: str, columns: list[str] | list[int] | None, delimiter: str | None) -> FileCorpus:
    usual = "," if Path(without_compression(path)).suffix.lower() == ".csv" else "\t"
    return FileCorpus(file=path, columns=columns, delimiter=None if delimiter == usual else delimiter)


def _delimiter(path: str) -> str:
    """Guess the column separator: the usual one, or else the most frequent one in all first lines."""
    usual = "," if Path(without_compression(path)).suffix.lower() == ".csv" else "\t"
    lines = [line for line in islice(read_lines(path), 50) if line]
    counts = {mark: min((line.count(mark) for line in lines), default=0) for mark in ("\t", ";", ",", "|")}
    if counts[usual]:
        return usual
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else usual


def _rows(path: str, suffix: str, delimiter: str | None) -> list[dict[Any, Any]]:
    """Sampled rows as dicts from column name, or in text tables column number from 1, to value."""
    rows: Iterator[dict[Any, Any]]
    if delimiter is None:
        rows = (row for _, row in named_rows(path, suffix))
    else:
        rows = (dict(enumerate(cells, start=1)) for _, cells in text_rows(path, suffix, delimiter))
    return [
        row
        for number, row in enumerate(islice(rows, _ROWS * _STRIDE))
        if number < _STRIDE or number % _STRIDE == 0
    ]


def _by_name(names: Sequence[Any], languages: tuple[str, str]) -> list[str] | None:
    """The columns named after the languages (en, English) or source and target. Exact codes win, as
    with pt and pt_BR. None if there are no such columns.
    """
    words = {name: name.strip().lower() for name in names if isinstance(name, str)}
    sides: dict[int, str] = {}
    for is_exact in (True, False):
        for side, language in enumerate(languages):
            fitting = {language.lower()} if is_exact else {base_code(language), *names_of(language)}
            for name, word in words.items():
                fits = word in fitting or (not is_exact and _NAMES.get(word) == side)
                if fits and name not in sides.values():
                    sides.setdefault(side, name)
    return [sides[0], sides[1]] if len(sides) == 2 else None


def _are_names(names: Sequence[str], columns: Sequence[Sequence[str]], languages: tuple[str, str]) -> bool:
    """True if the first row is a header: its cells are in neither language, or are single words above
    sentences.
    """
    for name, column, language in zip(names, columns, languages):
        of_sentences = sum(" " in cell for cell in column) > len(column) / 2
        is_word = re.fullmatch(r"[\w-]+", name) is not None
        if not (is_word and of_sentences) and _share_in([name], language):
            return False
    return bool(columns[0])


def _by_text(rows: Sequence[dict[Any, Any]], languages: tuple[str, str]) -> tuple[list[Any], list[float]]:
    """The two columns whose text fits the languages best, and the shares of rows that fit."""
    columns = [name for name, value in rows[0].items() if isinstance(value, str)]
    shares = {
        name: [_share_in([str(row.get(name) or "") for row in rows], language) for language in languages]
        for name in columns
    }
    pairs = [pair for both in combinations(columns, 2) for pair in (both, both[::-1])]
    if not pairs:
        return [], [0.0, 0.0]
    best = max(pairs, key=lambda pair: min(shares[pair[0]][0], shares[pair[1]][1]))
    return list(best), [shares[best[0]][0], shares[best[1]][1]]


BATCH_FILL = 0.92
"""Share of a batch that is filled. The rest is padding, because the pairs differ in length."""

# Pairs whose tokens are counted.
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
    """Read the files, and print what was assumed about them. InputError if they have too few pairs, or if the
    glossary cannot be read. Earlier configs for these files are looked for in `folder` and its runs.
    """
    terms = (
        None
        if glossary is None
        else load_part("resource", "glossary").read(glossary, (source_lang, target_lang)).glossary
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
    """The YAML of a validation or test set that is held out of the pairs, and its approximate size. The share
    is at least as large as in an earlier config; otherwise sentences held out there would move into training.
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
    """The tokens of both sides of each pair."""
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
    # A text without line breaks would count as much as all others, and no training uses such long pairs.
    chosen = [pair for pair in chosen if max(map(len, pair)) <= _LONGEST] or chosen
    step = -(-len(chosen) // _SAMPLE) or 1
    return Data(source_lang, target_lang, guesses, pairs, chosen[::step], _share_before(guesses, folder))
