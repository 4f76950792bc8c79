"""The facts that a sweep's job depends on besides its config: the contents of its corpora, and the
program.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from transformer_mt.companions.lab.sweep_plan import Job
from transformer_mt.companions.lab.system_files import set_of_file
from transformer_mt.config import Config
from transformer_mt.corpora.corpus import EvaluationSentence
from transformer_mt.corpora.held_out import AnySet, read_set
from transformer_mt.data.preparation.clean import training_pairs
from transformer_mt.errors import InputError
from transformer_mt.files import digest, missing
from transformer_mt.run_folder import RunFolder, facts_of, parent_of
from transformer_mt.text.hashes import sentence_key
from transformer_mt.version import RESULTS

FACTS_FILE = "job.json"
_TRAINING = ("training data", "validation data", "vocabulary", "parent", "other files")
_SCORING = ("test data", "versions of the program")


def facts_of_job(job: Job) -> dict[str, str]:
    """A hash of each thing that its results depend on."""
    data = job.config.data
    return {
        "training data": _content(data.entries),
        "vocabulary": _files(map(Path, job.config.tokenizer.files)),
        "parent": str(parent_of(job.config).weights_digest()) if job.config.init_from else "",
        "other files": _files(_other_files(job.config)),
        "validation data": _content(data.valid_sets),
        "test data": _content(data.test),
        "versions of the program": str(RESULTS),
    }


def changed_facts(job: Job, facts: dict[str, str]) -> tuple[list[str], list[str]]:
    """Names of the facts that changed since the job was trained, and since it was scored. A test set that
    changed is a change of the training, too, if training pairs stand in one of the two: they are left out.
    """
    before = facts_of(job.folder / FACTS_FILE)
    changed = [name for name in facts if before.get(name, facts[name]) != facts[name]]
    training = [name for name in changed if name in _TRAINING]
    scoring = [name for name in changed if name in _SCORING]
    if "test data" in scoring and not training and _touches_training(job):
        training.append("test data")
    return training, scoring


def _content(corpora: Iterable[AnySet]) -> str:
    return hashlib.sha256(json.dumps([_facts(corpus) for corpus in corpora]).encode()).hexdigest()[:24]


def _facts(corpus: AnySet) -> list[str]:
    """The keys of a corpus, and a hash of the contents of its files."""
    keys = corpus.model_dump_json(exclude={"name", "weight", "license"})
    files = [] if corpus.is_held_out else corpus.local_files()  # type: ignore[union-attr]
    return [keys, _files(files)]


def _other_files(config: Config) -> Iterator[Path]:
    """The files that the training reads besides its corpora, its vocabulary and its parent."""
    data = config.data
    for path in (data.terms.file, data.new_pieces.text, *config.train.guided_alignment.files):
        if path is not None:
            yield Path(path)


def _files(paths: Iterable[Path]) -> str:
    """A hash of the contents of files."""
    stats = ((path, path.stat()) for path in _there(paths))
    return " ".join(_digest(path, of.st_size, (of.st_mtime_ns, of.st_ctime_ns)) for path, of in stats)


def _there(files: Iterable[Path]) -> Iterable[Path]:
    for path in files:
        if not path.exists():
            raise InputError(missing(path))
        yield from sorted(path.rglob("*")) if path.is_dir() else [path]


@cache
def _digest(path: Path, size: int, changed: tuple[int, int]) -> str:
    """Hash of the file, cached by path, size and times of change."""
    return digest(path) if path.is_file() else ""


def _touches_training(job: Job) -> bool:
    """True if a sentence that is in the test sets now or was before, but not both, is a training source, or
    on any side where targets of test sets are left out, too.
    """
    data, run = job.config.data, RunFolder(job.folder)
    before, now = set[int](), set[int]()
    for i, corpus in enumerate(data.test):
        if corpus.is_held_out:  # of the training corpora themselves
            continue
        file = run.translations_file(f"test-{i}")
        if not file.exists():
            return True
        sentences = set_of_file(file).sentences
        before |= _keys(sentences)
        now |= _keys(read_set(corpus, data.languages, run.path, "test"))
    differs = before ^ now
    if not differs:
        return False
    for entry in data.entries:
        sides = (
            2
            if entry.is_text or entry.synthetic or len(data.directions) > 1 or data.leaves_out_targets
            else 1
        )
        for pair in training_pairs(entry, data):
            if any(sentence_key(side.strip()) in differs for side in pair[:sides]):
                return True
    return False


def _keys(sentences: Iterable[EvaluationSentence]) -> set[int]:
    return {
        sentence_key(text) for src, references in sentences for text in (src, *references) if text.strip()
    }
