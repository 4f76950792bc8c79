"""What `transformer-mt tune` ends with: the winner against the start, a page, and a config."""

from collections.abc import Mapping
from typing import Any

from transformer_mt.companions.lab import pictures
from transformer_mt.companions.lab.comparison import Comparison, System, compare
from transformer_mt.companions.lab.comparison_table import as_markdown
from transformer_mt.companions.lab.sweep_table import spread
from transformer_mt.companions.lab.translated import translated
from transformer_mt.companions.lab.tune import RUNGS, SEEDS, Tuning
from transformer_mt.config.dump import as_overrides, flow, given_settings
from transformer_mt.config.load import load_config
from transformer_mt.corpora.held_out import EvaluationSet, evenly_spaced, read_set
from transformer_mt.errors import WorkError
from transformer_mt.evaluation.metrics import metrics_by_test
from transformer_mt.files import wait_for_folder, write_text
from transformer_mt.markdown import table
from transformer_mt.run_folder import RunFolder


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
    with wait_for_folder(final):  # of several processes each compares, the later ones with more trials
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
    page += "Importance: the share of the differences between the shortest trainings (PED-ANOVA).\n\n"
    page += f"{as_markdown(comparison)}\n" if comparison else ""
    page += f"![learning curves](tune.png)\n\n{_trials(search)}\n"
    write_text(search.folder / "tune.md", page)
    return page


def _compared(search: Tuning, runs: Mapping[str, list[RunFolder]]) -> Comparison | None:
    """Both on the validation sets, with all their seeds; None for models that translate nothing."""
    data, train = search.config.data, search.config.train
    if not data.directions:
        return None
    tests = []
    for number, corpus in enumerate(data.valid_sets):
        if data.objective_of(corpus) == "translation":
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
    """The importance of each key by the trainings of the first rung, which all trials have; empty if there
    are too few, or with one key.
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
