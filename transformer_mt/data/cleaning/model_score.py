"""The cleaning rule `model_score`: drop the pairs that two trained models find least probable.

Dual conditional cross-entropy (Junczys-Dowmunt 2018): a pair is bad if it is improbable, or if the models of
the two directions disagree.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from transformer_mt.cache import cache_root
from transformer_mt.config.parts.filter import FilterConfig, ModelScore
from transformer_mt.errors import InputError
from transformer_mt.files import fsync
from transformer_mt.runs.folder import RunFolder
from transformer_mt.text.pair import Pair

LogProbs = Callable[[str, Sequence[Pair], tuple[str, str]], np.ndarray]
"""(model's folder, pairs, their languages) -> the mean log-probability per token of each target, given its
source.
"""

_PAIRS = 2000


def identity_of_models(settings: ModelScore) -> list[list[str | int]]:
    """Facts that change when one of the models does. InputError if there is none."""
    facts: list[list[str | int]] = []
    for folder in (settings.forward, settings.backward):
        file = RunFolder(folder).model_file
        if file is None:
            raise InputError(
                f"{folder}: must be a run or an exported model, to score pairs (data.filter.model_score), "
                "but holds no weights"
            )
        facts.append([str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns])
    return facts


def scores_file(
    corpus: Mapping[str, Any], chosen: FilterConfig, languages: tuple[str, str], is_kept: np.ndarray
) -> Path:
    """Where the scores of the rows of a corpus that the other rules keep are: in the cache, but not with the
    prepared data. Scoring takes hours, and neither another vocabulary nor another `keep` changes a score.
    """
    assert chosen.model_score is not None
    facts = {
        "corpus": {**corpus, "filter": None},
        "filter": chosen.model_dump(exclude={"model_score": {"keep"}}),
        "models": identity_of_models(chosen.model_score),
        "languages": languages,
    }
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + is_kept.tobytes()).hexdigest()[:24]
    folder = cache_root() / "scores"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{key}.f32"


def worst_rows(
    rows: np.ndarray,
    pairs: Iterable[Pair],
    languages: tuple[str, str],
    settings: ModelScore,
    log_probs: LogProbs,
    file: Path,
) -> np.ndarray:
    """The rows that are not in the share to keep; the pairs of `rows` follow in the same order. Scores are
    kept in `file`: after an interruption only the missing ones are computed.
    """
    done = file.stat().st_size // 4 if file.exists() else 0
    rest, swapped = islice(pairs, done, None), (languages[1], languages[0])
    with file.open("ab") as output:
        output.truncate(4 * done)
        while chunk := list(islice(rest, _PAIRS)):
            forward = log_probs(settings.forward, chunk, languages)
            backward = log_probs(settings.backward, [(tgt, src) for src, tgt in chunk], swapped)
            output.write(pair_scores(forward, backward).astype(np.float32).tobytes())
            output.flush()
    fsync(file)
    scores = np.fromfile(file, np.float32)
    assert len(scores) == len(rows)
    kept = round(settings.keep * len(rows))
    return rows[np.argsort(-scores, kind="stable")[kept:]]


def pair_scores(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """The score of each pair from the log-probabilities per token of both directions; higher is better."""
    return (forward + backward) / 2 - np.abs(forward - backward)
