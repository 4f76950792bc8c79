"""Monolingual text of the target language with sources that a backward model makes (Sennrich et al. 2016)."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from transformer_mt.config.filter import FilterConfig
from transformer_mt.data.cleaning_rules import Rule, rules_of
from transformer_mt.data.lines import count_lines, cut_to_whole_lines, read_lines
from transformer_mt.errors import WorkError
from transformer_mt.evaluation.outputs import weights_digest
from transformer_mt.experiments.origin import check_origin
from transformer_mt.files import digest, fsync
from transformer_mt.locks import lock_output
from transformer_mt.progress_bar import show_progress
from transformer_mt.training.distributed import Ranks
from transformer_mt.translation.chunk_size import ChunkSize
from transformer_mt.translation.translator import Translator

EMPTY, REPEATED, LONG, LOW = "empty", "repeated", "over-long", "low score"
READ, KEPT = "read", "kept"
WRONG = ("none", "cut", "copied", "repeating", "length_ratio")
"""Flags of a translation that is no source to learn from."""


@dataclass(frozen=True)
class Choice:
    """Which of the translations are kept."""

    rules: FilterConfig
    """The cleaning rules, of pairs (translation, text)."""
    keep: float = 1.0
    """The share with the best scores, of those that the rules keep."""


def backtranslate(
    translator: Translator,
    models: Sequence[Path],
    texts: Sequence[Path],
    out: Path,
    choice: Choice,
    say: Callable[[str], None],
    ranks: Ranks | None = None,
) -> Counter[str]:
    """Write the lines of `texts` with their translations to `out`, a corpus file in JSON lines; gives back
    the number of lines by what became of them.

    Interrupted, it resumes; done, it does nothing. With several ranks each translates its share, and rank 0
    reads and writes. `models` are the folders of the translator.
    """
    ranks = ranks or Ranks()
    counts: Counter[str] = Counter()
    if not ranks.is_rank_zero:
        while lines := ranks.broadcast(None):
            _translated(translator, lines, ranks)
        return counts
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.part")
    with lock_output(out):
        check_origin(out, out.exists() or part.exists(), _facts(translator, models, texts, choice))
        if out.exists():
            say(f"{out}: is done already")
            part.unlink(missing_ok=True)
        else:
            _translate_into(part, translator, texts, counts, say, ranks)
            _write_kept(part, out, translator, choice, counts)
    ranks.broadcast(None)
    return counts


def _facts(
    translator: Translator, models: Sequence[Path], texts: Sequence[Path], choice: Choice
) -> dict[str, str]:
    """What the file is made from."""
    return {
        "model": " ".join(str(weights_digest(model)) for model in models),
        "search": json.dumps(translator.decode.model_dump(exclude={"batch_tokens"}), sort_keys=True),
        "text": digest(*texts),
        "choice": json.dumps([choice.rules.model_dump(), choice.keep]),
    }


def _translate_into(
    part: Path,
    translator: Translator,
    texts: Sequence[Path],
    counts: Counter[str],
    say: Callable[[str], None],
    ranks: Ranks,
) -> None:
    """All lines with their translations, one JSON object each; those in the file already stay."""
    done, total = cut_to_whole_lines(part), _total(texts)
    say(f"{done:,} lines are translated already" if done else translator.searched)
    lines = _worth_translating(translator, texts, counts)
    for _ in islice(lines, done):
        pass
    with (
        part.open("a", encoding="utf-8", newline="\n") as output,
        show_progress(None, "translating", total, counts[READ], unit="lines") as bar,
    ):
        size, before = ChunkSize(), counts[READ]
        while chunk := list(islice(lines, size.next())):
            ranks.broadcast(chunk)
            for row in _translated(translator, chunk, ranks):
                output.write(json.dumps(row, ensure_ascii=False) + "\n")
            output.flush()
            bar.update(counts[READ] - before)
            before = counts[READ]


def _total(texts: Sequence[Path]) -> int | None:
    """Lines of all files; None where that is not known without reading them."""
    sizes = [count_lines(str(text)) for text in texts]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _worth_translating(translator: Translator, texts: Sequence[Path], counts: Counter[str]) -> Iterator[str]:
    """Lines that are not empty, not there before, and not longer than what the model was trained on."""
    seen: set[bytes] = set()  # about 70 MB for a million lines
    for text in texts:
        for line in map(str.strip, read_lines(text)):
            counts[READ] += 1
            key = hashlib.blake2b(line.encode(), digest_size=8).digest()
            if not line:
                counts[EMPTY] += 1
            elif key in seen:
                counts[REPEATED] += 1
            elif len(translator.tokenizer.encode_src([line], num_threads=1)[0]) >= translator.max_src_length:
                counts[LONG] += 1
            else:
                seen.add(key)
                yield line


Row = dict[str, Any]


def _translated(translator: Translator, lines: Sequence[str], ranks: Ranks) -> list[Row]:
    """The rows of these lines, on each rank; each translates its share."""
    results = translator.stream(lines[ranks.rank :: ranks.size])
    mine = [
        {
            translator.target_lang: result.translation,
            translator.source_lang: result.source,
            "score": round(result.score, 4),
            "flags": result.flags,
        }
        for result in results
    ]
    shares = ranks.gather(mine)
    return [shares[i % ranks.size][i // ranks.size] for i in range(len(lines))]


def _write_kept(part: Path, out: Path, translator: Translator, choice: Choice, counts: Counter[str]) -> None:
    """The chosen rows of `part` as `out`, whole or not at all."""
    languages = translator.target_lang, translator.source_lang
    rules = rules_of(choice.rules, languages)
    scores: list[float] = []
    for row in _rows(part):
        reason = _reason(row, languages, rules)
        counts[reason or KEPT] += 1
        scores += [] if reason else [row["score"]]
    if not scores:
        raise WorkError(
            f"{part}: no translation is left after cleaning ({words(counts)}); is it a model from "
            f"{translator.source_lang}?"
        )
    least = float(np.quantile(scores, 1 - choice.keep)) if choice.keep < 1 else -np.inf
    temporary = out.with_name(f".{out.name}.tmp")
    with temporary.open("w", encoding="utf-8", newline="\n") as output:
        for row in _rows(part):
            if _reason(row, languages, rules):
                continue
            if row["score"] < least:
                counts[LOW] += 1
                counts[KEPT] -= 1
                continue
            del row["flags"]
            output.write(json.dumps(row, ensure_ascii=False) + "\n")
    fsync(temporary)
    temporary.replace(out)
    part.unlink()


def _rows(part: Path) -> Iterator[Row]:
    return map(json.loads, read_lines(part))


def _reason(row: Row, languages: tuple[str, str], rules: Sequence[Rule]) -> str | None:
    """Why the row is no pair to learn from; None if it is one."""
    src, tgt = (row[language].strip() for language in languages)
    if wrong := next((flag for flag in row["flags"] if flag in WRONG), None):
        return str(wrong)
    if not src:
        return "none"
    return next((rule.reason for rule in rules if rule.drops(src, tgt)), None)


def words(counts: Counter[str]) -> str:
    """The counts in a line: read 1,000, empty 3, kept 950."""
    others = sorted(set(counts) - {READ, KEPT})
    return ", ".join(f"{name} {counts[name]:,}" for name in (READ, *others, KEPT))
