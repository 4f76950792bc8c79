"""From trained teachers to a small, fast student: sequence-level distillation (Kim and Rush 2016).

The student is trained on the teachers' translations of the training sentences, which are simpler than
people's.
"""

import multiprocessing
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.companions.exchange.ctranslate2_engine import import_ctranslate2
from transformer_mt.companions.exchange.export.export import export
from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2, reasons_against
from transformer_mt.companions.lab.synthetic import (
    ALL,
    PairSelection,
    Runs,
    SyntheticCorpusTask,
    Teacher,
    TextSource,
    check_links,
    counts_in_words,
    is_described,
    known_tag,
    make_corpus,
    must_open,
    with_corpora,
)
from transformer_mt.companions.lab.translated import start_over
from transformer_mt.config import Config, DataConfig, EvaluateConfig
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.file import FileCorpus
from transformer_mt.corpora.held_out import EvaluationSet, read_set
from transformer_mt.device import choose_device, keep_freed_memory
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.evaluation.metrics import Score, build_metrics, corpus_scores
from transformer_mt.evaluation.set_evaluation import SEEN_NOTE, SystemRecord
from transformer_mt.files import write_text
from transformer_mt.messages import say, table
from transformer_mt.ranks import LONG_TIMEOUT, Ranks
from transformer_mt.run_folder import RunFolder, after_training, facts_of
from transformer_mt.settings.corpus_keys import FilterConfig
from transformer_mt.training import train
from transformer_mt.translation.result import Options
from transformer_mt.translator import Translator

_MEASURED = ["BLEU", "chrF"]
_INT8 = "int8"  # the folder of the exported student, inside its run's folder


@dataclass(frozen=True)
class StudentRow:
    """One model of the comparison."""

    name: str
    bleu: Score
    chrf: Score
    searched: str
    megabytes: float
    sentences_per_second: float
    seen: str
    """The share of the set that it, or a model it is made of, was trained on."""


@dataclass(frozen=True)
class DistillationPlan:
    """The corpora that the student learns from."""

    teachers: Sequence[Path]
    """Runs, which translate together as an ensemble; or the YAML file of a language model."""
    texts: Sequence[Path] = ()
    """Files of text in the source language, besides the sources of the training corpora."""
    with_references: bool = False
    """True if the student also learns from the training corpora themselves."""
    choice: PairSelection = ALL
    """Which of the teachers' translations it learns from; by default all."""

    @property
    def has_runs(self) -> bool:
        return not is_described(self.teachers[0])


def distill(plan: DistillationPlan, config: Config, out: Path | None, fresh: bool = False) -> str:
    """Train and export the student. Returns the table that compares teacher, student and int8 student,
    and writes it to distillation.md in the student's folder.

    Finished work is not repeated, unless `fresh` moves an old folder aside first. Raises WorkError if the
    int8 student translates too differently to be kept. Several processes share the translating and the
    training; rank 0 does the rest, and the other ranks return an empty string.
    """
    folder = out or Path("runs") / config.name
    _check_student(plan, config)
    test, more_text = _test_set(config.data), _more_text(plan)
    ranks = Ranks.join(choose_device(config.train.device), LONG_TIMEOUT)
    if ranks.is_rank_zero:
        if fresh:
            start_over(folder, [*plan.teachers, *plan.texts])
        else:
            _check_folder(folder, plan)
    # Send only the settings that were given: a parent or a vocabulary may decide the others.
    config = Config.model_validate(ranks.broadcast(config.model_dump(exclude_unset=True)))
    entries = _distilled_entries(plan, more_text, config, folder, ranks)
    ranks.leave()
    train(with_corpora(config, entries), folder)
    if not ranks.is_rank_zero:
        return ""
    after_training(folder)
    can_export = not reasons_against(config.model)
    refused = _export(folder) if can_export else None
    models = {"teacher": list(plan.teachers)} if plan.has_runs else {}
    models["student"] = [folder]
    if can_export and refused is None:
        models["student, int8"] = [folder / _INT8]
    rows = [_measure_alone(name, folders, test, config.evaluate) for name, folders in models.items()]
    text = _table(rows)
    write_text(folder / "distillation.md", text)
    if refused is not None:
        say(text)
        raise refused
    return text


def _check_student(plan: DistillationPlan, config: Config) -> None:
    """InputError, before any work, if the student cannot learn from its teachers; a note if it cannot become
    int8.
    """
    import_ctranslate2()
    build_metrics(config.evaluate, config.data.target_lang, _MEASURED)  # an extra that is missing
    known = wanted = _directions(config.data)
    if file := next(filter(is_described, plan.teachers), None):
        if plan.teachers[1:]:
            raise InputError(f"{file}: a language model must translate alone, but is part of an ensemble")
        must_open(file, wanted[0])
    else:
        known = _directions(RunFolder(plan.teachers[0]).config().data)
    if missing := [direction for direction in wanted if direction not in known]:
        names = ", ".join(f"{source} to {target}" for source, target in known)
        source, target = missing[0]
        raise InputError(
            f"the student must translate {names} like its teacher, but translates {source} to {target}"
        )
    if reasons := reasons_against(config.model):
        say(f"note: CTranslate2 cannot run this student, so it is not exported: {'; '.join(reasons)}")
    check_links(config)


def _test_set(data: DataConfig) -> EvaluationSet:
    """The set that all models are compared on: the first test set, else the first validation set. InputError
    if a set is held out of the student's training corpora.
    """
    for key, sets in (("valid", data.valid_sets), ("test", data.test)):
        if any(corpus.is_held_out for corpus in sets):
            raise InputError(
                f"data.{key} of the student must be a separate corpus, but is part of its training "
                "corpora, which are machine translations"
            )
    name, corpus = ("test", data.test[0]) if data.test else ("valid", data.valid_sets[0])
    sentences = list(read_set(corpus, data.languages, None, name))
    return EvaluationSet(name, corpus.describe(), sentences, corpus.tag, data.languages_of(corpus))


def _more_text(plan: DistillationPlan) -> TextSource | None:
    """The lines that are translated besides the sources of the training corpora."""
    if not plan.texts:
        return None
    text = TextSource.of_files(plan.texts)
    if text.is_empty:
        raise InputError(f"{', '.join(map(str, plan.texts))}: must have lines to translate, but is empty")
    return text


def _export(folder: Path) -> WorkError | None:
    """Export the student as int8 unless its present model is exported already. Returns the error if the
    export translates too differently.
    """
    student, int8 = RunFolder(folder), RunFolder(folder / _INT8)
    if _is_export_of(student, int8):
        return None
    shutil.rmtree(int8.path, ignore_errors=True)
    try:
        say(str(export(student, int8.path, ToCTranslate2("int8"), None)))
    except WorkError as error:
        return error
    return None


def _measure_alone(
    name: str, folders: Sequence[Path], test: EvaluationSet, rules: EvaluateConfig
) -> StudentRow:
    """A row of the table, measured in a new process, like a `translate` command: what training left in the
    memory of the current process halves the speed.
    """
    say(f"measuring {name}")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        try:
            return process.submit(_measure, name, folders, test, rules).result()
        except BrokenProcessPool:
            raise WorkError(
                f"measuring {name}: its process was ended, probably for lack of memory; close other "
                "programs and run the same command to resume"
            ) from None


def _check_folder(folder: Path, plan: DistillationPlan) -> None:
    """InputError, before any translation, if the folder is a teacher's or that of another training."""
    for teacher in plan.teachers:
        if teacher.resolve() == folder.resolve():
            raise InputError(
                f"{folder}: must not be the teacher's folder; name another with ", Setting("out")
            )
    if RunFolder(folder).config_file.exists() and not list(folder.glob("distilled*.origin.json")):
        raise InputError(
            f"{folder}: must be a separate folder, but belongs to another training; name another with ",
            Setting("out"), ", or move this one aside with ", Setting("fresh"),
        )  # fmt: skip


def _directions(data: DataConfig) -> list[tuple[str, str]]:
    """All (source, target) directions; if there is only one, `source_lang` and `target_lang` of the data."""
    return data.directions if len(data.directions) > 1 else [(data.source_lang, data.target_lang)]


def _is_export_of(run: RunFolder, exported: RunFolder) -> bool:
    """True if the export was made from the weights and the search that the run has now."""
    if facts_of(exported.export_facts_file).get("weights") != run.weights_digest():
        return False
    return exported.config().decode == run.config().decode


def _distilled_entries(
    plan: DistillationPlan, more_text: TextSource | None, config: Config, folder: Path, ranks: Ranks
) -> list[Corpus]:
    """The student's training entries: the teachers' translations of the sources of the config's entries and
    of `more_text`, and where asked the entries themselves.
    """
    distilled: list[Corpus] = []
    data = config.data
    entries = data.entries
    for number, entry in enumerate(entries, start=1):
        if entry.is_text:  # it is learned from as it stands
            distilled.append(entry)
            continue
        file = folder / ("distilled.jsonl" if len(entries) == 1 else f"distilled-{number}.jsonl")
        languages = data.languages_of(entry)
        text = TextSource.of_corpora(data, [entry])
        columns = _translate(plan, config, text, entry.tag, languages, file, ranks)
        kept = entry.model_dump(include=set(Corpus.model_fields), exclude={"filter", "reverse"})
        kept |= {"source_lang": languages[0], "target_lang": languages[1]}
        kept |= {"synthetic": entry.synthetic or not plan.has_runs}
        distilled.append(FileCorpus(**kept, file=str(file), columns=list(columns), filter=FilterConfig()))
    if more_text is not None:
        file, languages = folder / "distilled-text.jsonl", (data.source_lang, data.target_lang)
        columns = _translate(plan, config, more_text, None, languages, file, ranks)
        distilled.append(
            FileCorpus(
                name="text",
                file=str(file),
                columns=list(columns),
                filter=FilterConfig(),
                synthetic=not plan.has_runs,
            )
        )
    return [*distilled, *(entry for entry in entries if plan.with_references and not entry.is_text)]


def _translate(
    plan: DistillationPlan,
    config: Config,
    text: TextSource,
    tag: str | None,
    languages: tuple[str, str],
    file: Path,
    ranks: Ranks,
) -> tuple[str, str]:
    """Write the corpus `file`. Returns its columns, which are the teacher's names of the languages."""
    if plan.has_runs:
        first, *others = plan.teachers
        translator = Translator.load(first, config.train.device, ensemble=others)
        teacher: Teacher = Runs(translator.for_set(languages), plan.teachers, tag)
    else:
        teacher, text = must_open(plan.teachers[0], languages), text.without_sets(config.data)
    task = SyntheticCorpusTask(teacher, text, True, plan.choice)
    if counts := make_corpus(task, file, ranks):
        say(f"{file}: {counts_in_words(counts)}")
    return task.languages


def _measure(name: str, folders: Sequence[Path], test: EvaluationSet, rules: EvaluateConfig) -> StudentRow:
    """A row of the table; several models translate together."""
    keep_freed_memory(one_heap=True)
    first, *others = folders
    assert test.languages is not None
    # Runs are measured with torch, so that teacher and student have one engine.
    engine = "auto" if RunFolder(first).is_export else "torch"
    loaded = Translator.load(first, device="cpu", engine=engine, ensemble=others)
    translator = loaded.for_set(test.languages)
    runs = [RunFolder(folder) for folder in folders]
    megabytes = sum(run.model_file.stat().st_size for run in runs if run.model_file) / 1e6
    return _timed(name, translator, test, rules, megabytes, str(SystemRecord(runs).share(test)))


def _timed(
    name: str, translator: Translator, test: EvaluationSet, rules: EvaluateConfig, megabytes: float, seen: str
) -> StudentRow:
    """The speed and the scores of the translator, with the test set's tag before each source."""
    options = Options(tag=known_tag(test.tag, translator))
    few = range(min(32, len(test.sources)))  # what is done once is not measured
    list(translator.stream([test.sources[i] for i in few], options.of_lines(few)))
    start = time.perf_counter()
    results = list(translator.stream(test.sources, options))
    seconds = time.perf_counter() - start
    metrics = build_metrics(rules, translator.target_lang, _MEASURED)
    translations = [result.translation for result in results]
    bleu, chrf = corpus_scores(metrics, test.sources, translations, test.references)
    searched = f"{name}: {translator.decode.in_words} by {translator.engine_in_words}"
    return StudentRow(name, bleu, chrf, searched, megabytes, len(results) / seconds, seen)


def _table(rows: Sequence[StudentRow]) -> str:
    cells = [
        (
            row.name, row.seen, f"{row.bleu.value:.2f}", f"{row.chrf.value:.2f}", f"{row.megabytes:.1f}",
            f"{row.sentences_per_second:.0f}",
        )
        for row in rows
    ]  # fmt: skip
    searches = "; ".join(dict.fromkeys(row.searched for row in rows))
    signatures = f"BLEU `{rows[0].bleu.signature}`, chrF `{rows[0].chrf.signature}`"
    head = ["model", "seen", "BLEU", "chrF", "MB", "sentences/s"]
    return f"{table(cells, head)}\n\n{searches}; {signatures}; {SEEN_NOTE}\n"
