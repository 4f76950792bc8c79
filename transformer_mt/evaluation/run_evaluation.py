"""The evaluation of a run's model: its test sets one after the other, kept in its folder."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from transformer_mt.config import Config
from transformer_mt.corpora.evaluation_sets import EvaluationSet
from transformer_mt.errors import WorkError
from transformer_mt.evaluation.alignment_error import HandLinks, alignment_error
from transformer_mt.evaluation.metrics import Metric
from transformer_mt.evaluation.set_evaluation import (
    NOT_ITS_OWN,
    Evaluation,
    SystemRecord,
    evaluate,
    keep_table,
)
from transformer_mt.messages import say
from transformer_mt.run_folder import RunFolder
from transformer_mt.translator import Translator


@dataclass
class RunEvaluation:
    """A translator of a run's model, and what its scores are kept as."""

    folder: RunFolder
    config: Config
    translator: Translator
    weights: str | None
    """A digest of the model's."""
    tag: str | None = None
    """Instead of the test sets' own."""
    others: Sequence[RunFolder] = ()
    """The models that translate with it."""
    is_plain: bool = True
    """Whether the model alone translates, in its usual way."""
    not_saved: WorkError | None = field(default=None, init=False)
    """Set where the folder of a shared model takes no files: raised when all is printed."""

    def __post_init__(self) -> None:
        resources, texts = self.translator.resources, list[str]()
        if resources.memory is not None:
            texts += resources.memory.texts()
        if resources.glossary is not None:
            texts += chain.from_iterable((term.source, *term.targets) for term in resources.glossary.terms)
        self.record = SystemRecord([self.folder, *self.others], texts)
        if not self.record.is_complete:
            say(
                f"note: {self.folder}, or a model it derives from, has no record of its training data: "
                "the sentences it has seen are not counted"
            )

    def evaluations(
        self, tests: Sequence[EvaluationSet], external: Sequence[Metric], hand: list[HandLinks] | None
    ) -> Iterator[tuple[EvaluationSet, Evaluation]]:
        """Each set with its scores, which are kept; `hand` are the links of the words of the only set."""
        for test in tests:
            weights = self.weights if self.is_plain else None
            evaluation = evaluate(self.translator, test, self.config.evaluate, self.tag, weights)
            evaluation = replace(evaluation, seen=self.record.share(test))
            # The report and the card of an export show only translations by this model alone, as configured.
            is_own = self.is_plain and not self.tag
            kept_as = test if is_own else replace(test, name=f"{NOT_ITS_OWN}{test.name}")
            if external:
                self._save(evaluation, kept_as)  # not lost with a command that fails
                evaluation = evaluation.scored_by(external, test)
            if hand is not None:
                pairs = [(src, targets[0]) for src, targets in test.sentences]
                scores = [*evaluation.scores, alignment_error(self.translator, pairs, hand)]
                yield test, replace(evaluation, scores=scores)
            else:
                yield test, evaluation
            self._save(evaluation, kept_as)

    def _save(self, evaluation: Evaluation, test: EvaluationSet) -> None:
        try:
            evaluation.save(self.folder, test)
        except WorkError as error:
            self.not_saved = error

    @property
    def is_usual(self) -> bool:
        """True if the model's own search translates, without anything else."""
        return self.is_plain and not self.tag and self.translator.decode == self.config.decode

    def keep_table(self, name: str, title: str, table: str) -> None:
        """Keep a table with the model; the report shows it below the title."""
        if self.weights and not self.not_saved:
            keep_table(self.folder, name, title, table, self.weights)
