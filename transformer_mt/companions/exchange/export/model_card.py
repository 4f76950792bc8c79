"""The model card of an export: README.md with the Hugging Face hub's header, and the same facts as JSON.

It says what the run's folder knows, and nothing else.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from transformer_mt.companions.exchange.export.format import ExportFormat, is_path, without_parents_folders
from transformer_mt.companions.exchange.export.proof import Proof
from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.hub import HubCorpus
from transformer_mt.data.cleaning.cleaning_rules import READ, REASONS
from transformer_mt.evaluation.set_evaluation import UNKNOWN, is_of_search
from transformer_mt.messages import table
from transformer_mt.run.report import facts_table, test_scores, tests_table
from transformer_mt.run_folder import RunFolder
from transformer_mt.text.languages import base_code, is_natural
from transformer_mt.version import __version__

_DIRECTIONS = 12  # that are named
_OF_FILES = re.compile(r"[/\\]|\.\w")
"""In titles that name files."""
_OF_SCORES = ("sentences", "search", "scores", "tag", "languages", "seen")
"""What a card says of the scores of a test set."""
_ON_THE_HUB = {"Hugging Face": "transformers"}
"""The hub's names of the libraries that load a target."""


def card_facts(run: RunFolder, config: Config, proof: Proof, license: str | None) -> dict[str, Any]:
    """The facts about the model, as JSON."""
    data, public, usual = config.data, run.public_model(), run.config().decode
    names = _SetNames(data)
    facts: dict[str, Any] = {
        "name": config.name,
        "directions": [f"{source} to {target}" for source, target in data.directions],
        "source_lang": data.source_lang,
        "target_lang": data.target_lang,
        "license": license or public.get("license"),
        "base_model": _base_model(public),
        "made_with": f"transformer_mt {__version__}",
        "training": _corpora(run, config.data),
        "scores": [
            {key: value for key, value in scores.items() if key in _OF_SCORES}
            | {"corpus": names.of(scores, name)}
            for name, scores in test_scores(run)
            if is_of_search(scores, usual)
        ],
        "longest_source": data.max_length,
        "tags": data.tags,
        "proof": vars(proof),
    }
    return {key: value for key, value in facts.items() if value not in (None, [], "")}


def model_card(facts: dict[str, Any], run: RunFolder, config: Config, target: ExportFormat, out: str) -> str:
    """The card of the export named `out`, in Markdown."""
    languages = _few(facts["directions"])
    entries = run.entries()
    parts = [
        f"---\n{_header(facts, config, target)}\n---",
        f"# {facts['name']}: {languages}",
        "A Transformer that translates sentences, trained with transformer_mt.",
        _origin(facts, run),
        f"## How to use it\n\n{target.usage(config, out).rstrip()}",
        _limits(facts),
        _scores(facts),
        _data(facts),
        "## Training\n\n" + facts_table(without_parents_folders(config), entries) if entries else "",
        _proof(facts, target),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _few(directions: list[str]) -> str:
    """The first directions and the number of the others: a model of a hundred languages has 9,900."""
    more = len(directions) - _DIRECTIONS
    return ", ".join(directions[:_DIRECTIONS]) + (f" and {more:,} other directions" if more > 0 else "")


def _hub_name(entry: Corpus) -> str | None:
    """The name of a corpus on the hub; None for other corpora, and for folders in the hub's layout."""
    return entry.hub if isinstance(entry, HubCorpus) and not is_path(entry.hub) else None


def _corpora(run: RunFolder, data: DataConfig) -> list[dict[str, Any]]:
    """Counts and licence of each training corpus."""
    counted = run.corpora()
    if len(counted) != len(data.entries):
        return []
    return [
        {**corpus, "name": corpus["name"] if entry.is_public else entry.name or f"own corpus {number}"}
        | ({"license": entry.license} if entry.license else {})
        for number, (corpus, entry) in enumerate(zip(counted, data.entries), start=1)
    ]


class _SetNames:
    """Names of test sets for others: those of public ones, those that the config gives, and numbers."""

    def __init__(self, data: DataConfig) -> None:
        sets = [test for test in data.test if isinstance(test, Corpus)]
        self._shown = {test.title for test in sets if test.is_public or test.name}
        self._others: list[str] = []

    def of(self, scores: Mapping[str, Any], name: str) -> str:
        title = str(scores.get("corpus") or name)
        if title in self._shown or not _OF_FILES.search(title):
            return title
        self._others.append(title)
        return f"own test set {len(self._others)}"


def _header(facts: dict[str, Any], config: Config, target: ExportFormat) -> str:
    results = [
        EvalResult(
            task_type="translation",
            dataset_type=scored["corpus"],
            dataset_name=scored["corpus"],
            metric_type=score["name"].lower(),
            metric_name=score["name"],
            metric_value=round(score["value"], 2),
        )
        for scored in facts.get("scores", [])
        if scored.get("seen", "") in ("", UNKNOWN)  # the hub shows no more than the number
        for score in scored["scores"]
    ]
    datasets = [name for entry in config.data.entries if (name := _hub_name(entry))]
    base_model = facts.get("base_model") or ""
    header = ModelCardData(
        language=list(dict.fromkeys(base_code(code) for code in _languages(config.data) if is_natural(code))),
        license=facts.get("license"),
        base_model=base_model if "/" in base_model else None,  # folders are named without those they are in
        library_name=_ON_THE_HUB.get(target.name, target.name.lower()),
        pipeline_tag="translation",
        datasets=datasets or None,
        model_name=facts["name"],
        eval_results=results or None,
    )
    return header.to_yaml(line_break="\n").rstrip()


def _base_model(public: Mapping[str, Any]) -> str | None:
    """The public model's name on the hub, which has a revision, or that of its folder."""
    name = public.get("model")
    return name if name is None or public.get("revision") else Path(name).name


def _origin(facts: dict[str, Any], run: RunFolder) -> str:
    """The public model that it is, or was adapted from."""
    if "base_model" not in facts:
        return ""
    revision = run.public_model().get("revision")
    verb = "It is" if run.imported_file.exists() else "It was adapted from"
    return f"{verb} {facts['base_model']}{f', revision {revision}' if revision else ''}."


def _languages(data: DataConfig) -> list[str]:
    return [language for direction in data.directions for language in direction]


def _limits(facts: dict[str, Any]) -> str:
    lines = [
        f"- It was trained on sources of at most {facts['longest_source']:,} tokens of its vocabulary.",
        f"- It only translates {_few(facts['directions'])}, one sentence at a time.",
    ]
    if facts.get("tags"):
        lines.append(f"- Tags that it knows before a source: {', '.join(facts['tags'])}.")
    return "## Limits\n\n" + "\n".join(lines)


def _scores(facts: dict[str, Any]) -> str:
    scores = facts.get("scores", [])
    if not scores:
        return ""
    of_sets = tests_table([(scored["corpus"], scored) for scored in scores])
    return f"## Scores\n\nMeasured on the original run.\n\n{of_sets}"


def _data(facts: dict[str, Any]) -> str:
    corpora = facts.get("training", [])
    if not corpora:
        return ""
    reasons = [name for name in (READ, *REASONS) if any(corpus["counts"].get(name) for corpus in corpora)]
    rows = [
        (corpus["name"], corpus.get("license", "not stated"),
         *(f"{corpus['counts'].get(reason, 0):,}" for reason in reasons))
        for corpus in corpora
    ]  # fmt: skip
    return f"## Training data\n\nSentence pairs.\n\n{table(rows, ['corpus', 'licence', *reasons])}"


def _proof(facts: dict[str, Any], target: ExportFormat) -> str:
    return (
        f"## Proof of this export\n\nTranslated by {target.name}, compared with the run it comes from: "
        f"{Proof(**facts['proof'])}."
    )
