"""The search of `transformer-mt tune`: Optuna proposes settings, short trainings sort out the bad ones.

A trial is trained with a ninth of the updates, then with a third, then with all, each time from the
beginning: the start of a long training says little, as its learning rate is still high and weight decay pays
late. After each training it goes on only if it is among the best third of the trials that came so far
(asynchronous successive halving, Li et al. 2020). Trials are proposed by TPE (Bergstra et al. 2011).
"""

import json
import math
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from transformer_mt import checkpoint
from transformer_mt.companions.lab import pictures
from transformer_mt.companions.lab.comparison import Comparison, System, compare
from transformer_mt.companions.lab.comparison_page import as_markdown
from transformer_mt.companions.lab.sweep_table import spread
from transformer_mt.companions.lab.translated import translated
from transformer_mt.companions.wizard.plan import lengths_of, plan_training
from transformer_mt.config import Config
from transformer_mt.config.error_sentences import searched_keys
from transformer_mt.config.load import as_overrides, flow, given_settings, load_config
from transformer_mt.corpora.held_out import EvaluationSet, evenly_spaced, read_set
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.evaluation.metrics import metrics_by_test
from transformer_mt.files import FolderLock, lock_folder, wait_for_folder, write_text
from transformer_mt.messages import say, table
from transformer_mt.run_folder import RunFolder
from transformer_mt.training import train

SEEDS = 3
"""Number of trainings of the config, and of the winner, for the final comparison."""
RUNGS = (1, 3, 9)
"""Lengths of a trial's trainings, in ninths of the config's updates."""
_CHANGE_TIME = {
    "train.batch_tokens", "train.update_tokens", "model.d_model", "model.d_ff", "tokenizer.vocab_size",
    "model.num_encoder_layers", "model.num_decoder_layers",
}  # fmt: skip
"""Keys that change the time of an update. The number of updates is changed to make up for it."""


class Tuning:
    """A study in a folder. Several processes, on machines that share the folder, may work on it."""

    def __init__(
        self,
        file: str,
        overrides: Sequence[str],
        keys: Sequence[str],
        folder: Path,
        hours: float = math.inf,
        most_trials: float = math.inf,
    ) -> None:
        """`file` and `overrides` are the config to begin with; the hours are from now on."""
        try:
            import optuna
        except ImportError:
            raise InputError("tune needs Optuna: pip install 'transformer-mt[tune]'") from None
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.file, self.overrides, self.folder = file, overrides, folder
        self._deadline, self._most_trials = time.monotonic() + 3600 * hours, most_trials
        self.config = load_config(file, list(overrides))
        if self.config.train.monitor == "loss" and "tokenizer.vocab_size" in keys:
            raise InputError(
                "train.monitor must be a metric to search tokenizer.vocab_size, because losses of different "
                "vocabularies cannot be compared, but is loss"
            )
        self.start = {key: attrgetter(key)(self.config) for key in keys if key in searched_keys(Config)}
        self._ranges = {key: _range_of(key, self.start) for key in keys}
        folder.mkdir(parents=True, exist_ok=True)
        backend = optuna.storages.journal.JournalFileBackend(str(folder / "study.journal"))
        self.study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name="tune",
            load_if_exists=True,
            direction="maximize",
            # Unfinished trials of other processes count as bad ones, so that all look at different places.
            sampler=optuna.samplers.TPESampler(multivariate=True, constant_liar=True),
            pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
        )
        described = [given_settings(self.config), *sorted(keys)]
        if self.study.user_attrs.get("described", described) != described:
            raise InputError(
                f"{folder}: is the study of another config or of other keys; name another folder with ",
                Setting("out"),
            )
        self.study.set_user_attr("described", described)

    def run(self) -> None:
        """Train trials until there are enough, or until only the time for the final comparison is left."""
        while (claimed := self._next_trial()) is not None:
            trial, lock = claimed
            with lock:
                self._train(trial)

    def _next_trial(self) -> tuple[Any, FolderLock] | None:
        """An interrupted trial, or a new one; None if there is no time for it."""
        from optuna.trial import Trial, TrialState

        for frozen in self.study.get_trials(states=[TrialState.RUNNING]):
            if "settings" in frozen.user_attrs and (lock := self._lock(frozen.number)):
                # Another process may have ended it since the trials were listed.
                if self.study.trials[frozen.number].state == TrialState.RUNNING:
                    return Trial(self.study, frozen._trial_id), lock
                lock.release()
        num_trials = len(self.study.get_trials(deepcopy=False))
        if num_trials >= self._most_trials or not self._has_time(RUNGS[0]):
            return None
        if not num_trials:  # the config itself
            near = {key: min(max(self.start[key], of.low), of.high) for key, of in self._ranges.items()}
            self.study.enqueue_trial(near)
        trial = self.study.ask(self._ranges)
        lock = self._lock(trial.number)
        assert lock is not None, "the trial is new"
        trial.set_user_attr("settings", _settings(self.config, trial.params) if trial.number else {})
        return trial, lock

    def _lock(self, number: int) -> FolderLock | None:
        """Lock the folder of a trial. None if another process is training this trial."""
        folder = self.folder / f"trial-{number:03}"
        folder.mkdir(exist_ok=True)
        try:
            return lock_folder(folder)
        except InputError:
            return None

    def _has_time(self, rung: int) -> bool:
        """True if a training of this rung will end in time, and the comparison after it."""

        def longest(rung: int) -> float:
            trials = self.study.get_trials(deepcopy=False)
            return max((trial.user_attrs.get(f"seconds-{rung}", 0.0) for trial in trials), default=0.0)

        return time.monotonic() + longest(rung) + 2 * (SEEDS - 1) * longest(RUNGS[-1]) < self._deadline

    def _train(self, trial: Any) -> None:
        from optuna.trial import TrialState

        settings, name = trial.user_attrs["settings"], f"trial {trial.number}"
        say(f"{name}: {', '.join(as_overrides(settings)) or 'the config itself'}")
        for rung in RUNGS:
            begun = time.monotonic()
            try:
                value = self.trained(settings, self.run_folder(trial, rung), rung)
            except (WorkError, InputError) as error:  # it diverged, or the settings do not go together
                if trial.number == 0:
                    raise
                say(f"{name}: {error}")
                value = math.nan
            trial.report(value, rung)
            if math.isnan(value):
                self.study.tell(trial, state=TrialState.PRUNED)
                return
            trial.set_user_attr(f"seconds-{rung}", time.monotonic() - begun)
            say(f"{name}: {self.config.train.monitor} {abs(value):.2f} after {rung}/9 of the updates")
            goes_on = rung == RUNGS[-1] or (not trial.should_prune() and self._has_time(3 * rung))
            if not (goes_on or trial.number == 0):
                self.study.tell(trial, state=TrialState.PRUNED)
                return
        self.study.tell(trial, value)

    def run_folder(self, trial: Any, rung: int = RUNGS[-1]) -> Path:
        """The folder of a training of the trial."""
        return self.folder / f"trial-{trial.number:03}" / f"{rung}-of-9"

    def trained(
        self, settings: Mapping[str, Any], folder: Path, rung: int = RUNGS[-1], more_seed: int = 0
    ) -> float:
        """Train with these settings, or resume such a training. Returns the validation score by which the
        checkpoint was chosen, negated if lower scores are better.
        """
        run = RunFolder(folder)
        if not run.is_finished:
            own = {"train.keep_checkpoints": 1, "train.export": False, "seed": self.config.seed + more_seed}
            words = {**self.whole_settings(settings, rung / RUNGS[-1]), **own}
            train(load_config(self.file, [*self.overrides, *as_overrides(words)]), folder)
        shutil.rmtree(run.checkpoints, ignore_errors=True)  # it will not be trained further
        (score,) = json.loads(checkpoint.metadata(run.weights_file)["transformer_mt"])["score"].values()
        return float(score)

    def whole_settings(self, settings: Mapping[str, Any], share: float = 1.0) -> dict[str, Any]:
        """The settings of a trial, with a length of training that takes this share of the config's time."""
        config = load_config(self.file, [*self.overrides, *as_overrides(settings)])
        share *= self._time_ratio(config) if _CHANGE_TIME & settings.keys() else 1
        length = {
            "train.max_updates": max(1, round(config.train.max_updates * share)),
            "train.max_epochs": config.train.max_epochs * share,
            "train.warmup": round(config.train.warmup * share),
        }
        return {**settings, **(length if share != 1 else {})}

    def _time_ratio(self, config: Config) -> float:
        """How many updates of this config take as long as one update of the study's config. The times are
        kept in the study, because a resumed training must have the same number of updates.
        """
        known = dict(self.study.user_attrs.get("seconds", {}))
        for name, one in ((given_settings(one), one) for one in (self.config, config)):
            if name not in known:
                known[name] = plan_training(*lengths_of(one)).seconds
                if known[name] is None:
                    raise WorkError("the model does not fit the memory")
        self.study.set_user_attr("seconds", known)
        return known[given_settings(self.config)] / known[given_settings(config)]


def _range_of(key: str, start: Mapping[str, Any]) -> Any:
    """The range of a key for Optuna."""
    import optuna

    known = searched_keys(Config)
    if key not in known:
        raise InputError(Setting("keys"), f" must be among {', '.join(known)}, but names {key}")
    if isinstance(start[key], str):
        raise InputError(f"{key} must be a number to be searched, but is {start[key]}")
    low, high = known[key].low, known[key].high
    if isinstance(low, int):
        return optuna.distributions.IntDistribution(low, int(high), known[key].log, known[key].step)
    return optuna.distributions.FloatDistribution(low, high, known[key].log)


def _settings(config: Config, params: Mapping[str, float]) -> dict[str, Any]:
    """The settings of a trial, rounded to three digits. If the width is searched, the number of heads and the
    size of the feed-forward networks grow with it.
    """
    settings = {key: float(f"{v:.3g}") if isinstance(v, float) else v for key, v in params.items()}
    if (width := settings.get("model.d_model")) is None:
        return settings
    heads = max(1, int(width) * config.model.num_heads // config.model.d_model)
    heads = next(number for number in range(heads, 0, -1) if width % number == 0)
    inner = config.model.d_ff * width // config.model.d_model
    return {"model.num_heads": heads, "model.d_ff": inner, **settings}


def finish(search: Tuning) -> str:
    """Train the start and the winner with more seeds, write tune.md, tune.png and tuned.yaml into the study's
    folder, and return the page. WorkError if another process still trains the config itself.
    """
    from optuna.trial import TrialState

    start, *_ = search.study.get_trials(deepcopy=False)
    if start.state != TrialState.COMPLETE:
        raise WorkError(f"{search.folder}: another process still trains the config itself; it ends the study")
    winner = search.study.best_trial
    systems = {"config": start, "winner": winner} if winner.number else {"config": start}
    runs: dict[str, list[RunFolder]] = {}
    values: dict[str, list[float]] = {}
    final = search.folder / "final"
    final.mkdir(exist_ok=True)
    with wait_for_folder(final):  # every process compares; later ones choose among more trials
        for seed in range(SEEDS if winner.number else 1):
            for name, trial in systems.items():
                folder = final / f"{name}-{trial.number:03}-seed-{seed}" if seed else search.run_folder(trial)
                value = search.trained(trial.user_attrs["settings"], folder, more_seed=seed)
                values.setdefault(name, []).append(abs(value))
                runs.setdefault(name, []).append(RunFolder(folder))
    settings: Mapping[str, Any] = winner.user_attrs["settings"]
    comparison = _compared(search, runs) if len(runs) > 1 else None
    monitor = search.config.train.monitor
    scores = {name: spread(of_seeds) for name, of_seeds in values.items()}
    if settings:
        result = (
            f"validation {monitor} {scores['config']} with the config, {scores['winner']} with the winner"
        )
        result += f" ({SEEDS} seeds{_significance(comparison, monitor)})"
        named = {**search.whole_settings(settings), "name": f"{search.config.name}-tuned"}
        tuned = load_config(search.file, [*search.overrides, *as_overrides(named)])
        write_text(search.folder / "tuned.yaml", f"# {result}\n{given_settings(tuned)}")
    else:
        result = f"no trial is better than the config: validation {monitor} {scores['config']}"
    curves = [(name, run.entries()) for name, of_name in runs.items() for run in of_name]
    pictures.curves(curves, "updates", search.folder / "tune.png")
    importance = _importance(search)
    keys = [
        [f"`{key}`", flow(value), flow(settings.get(key, value)), importance.get(key, "")]
        for key, value in search.start.items()
    ]
    page = f"# {search.config.name}, tuned\n\n{result[0].upper()}{result[1:]}.\n\n"
    page += f"{table(keys, ['key', 'config', 'winner', 'importance'])}\n\n"
    page += "Importance: the share of the differences between the shortest trainings that a key explains "
    page += "(PED-ANOVA).\n\n"
    page += f"{as_markdown(comparison)}\n" if comparison else ""
    page += f"![learning curves](tune.png)\n\n{_trials(search)}\n"
    write_text(search.folder / "tune.md", page)
    return page


def _compared(search: Tuning, runs: Mapping[str, list[RunFolder]]) -> Comparison | None:
    """Compare the config and the winner on the validation sets, with all seeds. None for models that do not
    translate.
    """
    data, train = search.config.data, search.config.train
    if not data.directions:
        return None
    tests = []
    for number, corpus in enumerate(data.valid_sets):
        if data.translates_set(corpus):
            sentences = list(read_set(corpus, data.languages, runs["config"][0].path, "valid"))
            chosen, languages = evenly_spaced(sentences, train.validate_sentences), data.languages_of(corpus)
            tests.append(EvaluationSet(f"valid-{number}", corpus.describe(), chosen, corpus.tag, languages))
    systems = []
    for name, of_name in runs.items():
        outputs = [translated(run, tests, train.device) for run in of_name]
        search_in_words = search.config.decode.in_words
        systems.append(System(name, outputs, search=search_in_words, seeds=tuple(range(len(of_name)))))
    names = [] if train.monitor == "loss" else [train.monitor]
    return compare(tests, systems, metrics_by_test(search.config.evaluate, data.target_lang, names))


def _significance(comparison: Comparison | None, monitor: str) -> str:
    """The p-values of the validation sets, in words."""
    cells = [cell for cell in comparison.cells if cell.p is not None] if comparison else []
    metric = monitor if monitor != "loss" else next((cell.metric for cell in cells), "")
    p = [f"{cell.p:.3f}" for cell in cells if cell.metric == metric]
    return f"; p = {', '.join(p)} of {metric} with beam search" if p else ""


def _importance(search: Tuning) -> dict[str, str]:
    """The importance of each key, computed from the trainings of the first rung, which all trials have. Empty
    if there are too few trials or only one key.
    """
    import optuna

    first = optuna.create_study(direction="maximize")
    for trial in search.study.get_trials(deepcopy=False):
        value = trial.intermediate_values.get(RUNGS[0])
        if value is not None and value == value:  # NaN: it failed
            params, ranges = trial.params, trial.distributions
            first.add_trial(optuna.create_trial(params=params, distributions=ranges, value=value))
    if len(first.trials) < 8 or len(search.start) < 2:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    values = optuna.importance.get_param_importances(first, evaluator=evaluator)
    return {key: f"{value:.0%}" for key, value in values.items()}


def _trials(search: Tuning) -> str:
    """The table of all trials, the best first."""
    rows = []
    for trial in search.study.get_trials(deepcopy=False):
        values = [trial.intermediate_values.get(rung) for rung in RUNGS]
        settings = trial.user_attrs.get("settings", {})
        named = [flow(settings.get(key, value)) for key, value in search.start.items()]
        shown = ["" if value is None else f"{abs(value):.2f}".replace("nan", "failed") for value in values]
        order = [-float("inf") if value is None or value != value else value for value in reversed(values)]
        rows.append((order, [trial.number, *named, *shown]))
    head = ["trial", *(f"`{key}`" for key in search.start), *(f"{rung}/9" for rung in RUNGS)]
    return table([row for _, row in sorted(rows, key=lambda row: row[0], reverse=True)], head)
