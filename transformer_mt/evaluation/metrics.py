"""The metrics a config can ask for, by name, and their scores of a test set."""

from collections.abc import Callable, Sequence

from transformer_mt.config.build_part import part_settings
from transformer_mt.config.evaluate_section import EvaluateConfig
from transformer_mt.corpora.evaluation_sets import EvaluationSet
from transformer_mt.evaluation.metric import Metric, References, Score, checked_metric
from transformer_mt.parts import load_part
from transformer_mt.text.languages import is_natural
from transformer_mt.text.unsegmented import has_no_word_spaces


def build_metrics(rules: EvaluateConfig, target_lang: str, names: Sequence[str] = ()) -> list[Metric]:
    """The metrics of the names, or else of the rules. InputError names the extra that one needs."""
    return [_build(name, rules, target_lang) for name in names or metric_names(rules, target_lang)]


def metric_names(rules: EvaluateConfig, target_lang: str) -> list[str]:
    """The metrics the rules ask for, or the usual ones of the language."""
    usual = ["BLEU", "chrF"] if has_no_word_spaces(target_lang) else ["BLEU", "chrF", "TER"]
    return list(rules.metrics) or usual


def metrics_by_test(
    rules: EvaluateConfig, target_lang: str, names: Sequence[str] = (), others: Sequence[Metric] = ()
) -> Callable[[EvaluationSet], list[Metric]]:
    """The metrics of each test set, and the `others`. Its target language is that of the set where it is a
    language code, as a corpus may call its languages by the names of its columns; else `target_lang`. All
    sets have metrics of the same names.
    """
    names = names or metric_names(rules, target_lang)

    def of_test(test: EvaluationSet) -> list[Metric]:
        target = test.languages[1] if test.languages and is_natural(test.languages[1]) else target_lang
        return [*build_metrics(rules, target, names), *others]

    return of_test


def _build(name: str, rules: EvaluateConfig, target_lang: str) -> Metric:
    kind = load_part("metric", name)
    metric = kind(rules, target_lang, **part_settings(kind, name, "evaluate.metrics"))
    return checked_metric(metric, f"the metric {name}")


def corpus_scores(
    metrics: Sequence[Metric], sources: Sequence[str], translations: Sequence[str], references: References
) -> list[Score]:
    """The score by each metric of detokenised `translations`."""
    return [metric.score(sources, translations, references) for metric in metrics]


def tokenised_note(references: Sequence[str], tokenize: str) -> str | None:
    """The note that belongs to a BLEU on tokenised text; None where the references look like plain text.

    Tokenised means that `tokenize` is none, or that most sentences that end in . ? or ! have a space before
    it.
    """
    ended = [line for line in references if line.rstrip().endswith((".", "?", "!"))]
    spaced = sum(line.rstrip()[-2:-1] == " " for line in ended)
    if tokenize == "none" or spaced > len(ended) / 2:
        return "note: the references are tokenised text; compare this BLEU only with the same tokenisation"
    return None
