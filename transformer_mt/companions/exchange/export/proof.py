"""The proof that an export translates like its run, and its model card: README.md with the hub's header.

The card says what the run's folder knows, and nothing else.
"""

import json
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from transformer_mt.companions.exchange.export.format import (
    ExportFormat,
    Output,
    TrainedRun,
    is_path,
    without_parents_folders,
)
from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.held_out import evenly_spaced, read_set
from transformer_mt.corpora.hub import HubCorpus
from transformer_mt.data.cleaning_rules import READ, REASONS
from transformer_mt.data.vocabulary.tokenizer import EOS, Tokenizer
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.evaluation.metrics import build_bleu
from transformer_mt.evaluation.scoring import Pair, score
from transformer_mt.evaluation.set_evaluation import UNKNOWN, is_of_search
from transformer_mt.messages import say, show_progress, table
from transformer_mt.run.report import facts_table, test_scores, tests_table
from transformer_mt.run_folder import RunFolder
from transformer_mt.text.languages import base_code, has_no_word_spaces, is_natural
from transformer_mt.text.lines import read_lines
from transformer_mt.translation.result import Options
from transformer_mt.translator import Translator
from transformer_mt.version import __version__

_PROBES = 200
_IDENTICAL = 0.995  # of the lines, in float32
# Largest difference between the scores of identical lines, in float32; relative to scores larger
# than one, such as sums.
_SCORES = 1e-3
_FEW_WORDS = 4
_PAIRS, _BELOW = 2000, 0.5
"""Validation sentences that int8 is compared on, and the most BLEU that it may cost."""
_BLEU = 95.0  # least BLEU of a quantised model's output against ours, unless a format sets `least_bleu`


@dataclass(frozen=True)
class Proof:
    """The result of the comparison."""

    quantization: str
    sentences: int
    """Lines that were compared."""
    identical: int
    """Lines that both translate alike."""
    largest_difference: float | None
    """Largest difference between the scores of these lines; None if the runtime tells no scores."""
    bleu: float
    """BLEU of the exported model's output against ours."""
    left_out: int = 0
    """Lines that cannot be compared: the other runtime splits them, or stops at a length limit, elsewhere."""
    ties: int = 0
    """Lines that differ although both models give the export's translation the same score: two hypotheses
    were equally good up to rounding, and the searches chose different ones.
    """

    def __str__(self) -> str:
        left_out = (
            f"; {self.left_out} sentences that are split or stopped at their length limit were left out"
            if self.left_out
            else ""
        )
        ties = f" ({self.ties} others differently, with the same score in both models)" if self.ties else ""
        told = self.largest_difference
        scores = "" if told is None else f", scores within {told:.1e}"
        return (
            f"{self.quantization}: {self.identical} of {self.sentences} probe sentences translated "
            f"identically{ties}{scores}, BLEU against the run's own output {self.bleu:.2f}{left_out}"
        )


def probe_sentences(run: RunFolder, data: DataConfig, tokenizer: Tokenizer, file: str | None) -> list[str]:
    """Sentences of the file, else of the validation set, else of test sets the run was scored on, else of
    random pieces.
    """
    if file:
        sentences = _sample(read_lines(file))
        if not sentences:
            raise InputError(f"{file}: must hold sentences, but is empty")
        return sentences
    try:
        valid = data.valid_sets[0]
        return _sample(src for src, _ in read_set(valid, data.languages, run.path, "valid"))
    except InputError as error:
        for scored in sorted(run.evaluation.glob("*.jsonl")):
            say(f"{error}; the probe is made of the sources in {scored} instead")
            return _sample(json.loads(line)["source"] for line in read_lines(scored))
        say(f"{error}; the probe is made of random tokens instead; a file of sentences gives a better one")
    draw = random.Random(0)
    first, last = EOS + 1, tokenizer.src.vocab_size() - 1
    lines = [[draw.randint(first, last) for _ in range(draw.randint(2, 15))] for _ in range(_PROBES)]
    return [text for ids in lines if (text := " ".join(tokenizer.src.decode(ids).split()))]


def _sample(lines: Iterable[str]) -> list[str]:
    """Lines with text at equal distances: runtimes differ in what they do with an empty line."""
    return evenly_spaced([line for line in lines if line.strip()], _PROBES)


def prove(ours: Translator, target: ExportFormat, folder: Path, sentences: Sequence[str]) -> Proof:
    """Translate with our model and with the runtime of the exported one in `folder`, and compare."""
    results = list(show_progress(ours.stream(sentences), "proof", len(sentences), unit="sentences"))
    pairs = [(result.source, output) for result in results if (output := target.expected(result))]
    outputs = target.translate(folder, [source for source, _ in pairs])
    left_out = len(results) - len(pairs)
    expected = [output for _, output in pairs]
    differing = [
        (source, theirs)
        for (source, mine), theirs in zip(pairs, outputs)
        if mine.translation != theirs.translation
    ]
    scores = _our_scores(ours, differing) if target.quantization == "float32" else []
    facts = target.quantization, ours.target_lang, left_out
    least = getattr(target, "least_bleu", _BLEU)
    return compare(expected, outputs, *facts, scores, least, getattr(target, "low_bleu_advice", ()))


def _our_scores(ours: Translator, lines: Sequence[tuple[str, Output]]) -> list[float]:
    """Our model's scores for the exported model's translations; NaN for a translation that is too long."""
    ids = {piece: i for i, piece in enumerate(ours.tokenizer.all_pieces_tgt)}
    sources = ours.encode_src([source for source, _ in lines], None)
    encoded = ours.tokenizer.encode_tgt([output.translation for _, output in lines])
    scores = []
    for (source, output), src, again in zip(lines, sources, encoded):
        tgt = [ids[piece] for piece in output.tokens] or again
        try:
            (scored,) = score(ours, [Pair("", source, output.translation, [(src, tgt)])])
            scores.append(scored.score)
        except InputError:
            scores.append(math.nan)
    return scores


def compare(
    expected: Sequence[Output],
    outputs: Sequence[Output],
    quantization: str,
    target_lang: str,
    left_out: int = 0,
    scores: Sequence[float] = (),
    least_bleu: float = _BLEU,
    advice: Sequence[str | Setting] = (),
) -> Proof:
    """Compare `outputs` with ours, `expected`. `scores` are our model's scores for the outputs that differ,
    in order; `advice` is said of a low BLEU. WorkError if the outputs differ by more than is allowed.
    """
    if not expected:
        raise WorkError(
            f"the export must be compared on sentences it can translate whole, but all {left_out} are "
            "split or stopped at their length limit; it was not kept, give shorter ones with ",
            Setting("probe"), ", or train the model longer",
        )  # fmt: skip
    if len(outputs) != len(expected):
        raise WorkError(
            f"the runtime of the export must translate each of {len(expected)} lines, but gives "
            f"{len(outputs)} translations; it was not kept"
        )
    # Where the runtime tells no scores, ours stand in: a translation that differs is a tie if our model has
    # the same score for both.
    tells_scores = all(output.score is not None for output in outputs)
    mine = [float(a.score or 0.0) for a in expected]
    theirs = [score if b.score is None else b.score for score, b in zip(mine, outputs)]
    differences = [abs(a - b) / max(1.0, abs(a)) for a, b in zip(mine, theirs)]
    is_alike = [a.translation == b.translation for a, b in zip(expected, outputs)]
    others = [score for score, same in zip(theirs, is_alike) if not same]
    alike = sum(is_alike)
    ties = sum(abs(ours - other) <= _SCORES * max(1.0, abs(ours)) for ours, other in zip(scores, others))
    difference = max((by for by, same in zip(differences, is_alike) if same), default=0.0)
    # SacreBLEU's word splitters are extras. Lines of fewer than four words have no four-gram.
    num_words = sum(len(output.translation.split()) for output in expected)
    is_short = num_words < _FEW_WORDS * len(expected)
    tokenize = "char" if is_short or has_no_word_spaces(target_lang) else "13a"
    translations = [output.translation for output in outputs]
    references = [[output.translation] for output in expected]
    bleu_score = build_bleu(target_lang, tokenize, lowercase=False).score([], translations, references)
    # SacreBLEU gives 0 if no line has four characters
    bleu = 100.0 if alike == len(expected) else bleu_score.value
    told = difference if tells_scores else None
    proof = Proof(quantization, len(expected), alike, told, bleu, left_out, ties)
    if quantization == "float32":
        if alike + ties < int(_IDENTICAL * len(expected)) or not difference <= _SCORES:
            raise WorkError(
                f"the export must translate {_IDENTICAL:.1%} of the lines identically, or differently with "
                f"the same score in both, and have scores within {_SCORES}, but: {proof}; it was not kept"
            )
    elif bleu < least_bleu:
        raise WorkError(
            f"the export must have a BLEU of {least_bleu:.0f} against the run's own output, but: {proof}; it "
            "was not kept, give sentences like those it will translate with ",
            Setting("probe"),
            ", or another ",
            Setting("quantization"),
            *advice,
        )
    return proof


def check_cost_of_int8(
    run: TrainedRun,
    settings: Mapping[str, Any],
    translate: Callable[[Sequence[str], str | None], Sequence[str]],
    advice: Sequence[str | Setting] = ("use float32",),
) -> None:
    """Compare BLEU of the validation set by the export, which translates lines with a tag, with the run's,
    which searches with these `settings`. WorkError, with the advice, if the export's is more than half a
    point lower.
    """
    config = run.config
    data = config.data
    # Only sets in the default direction.
    sets = [valid for valid in data.valid_sets if data.languages_of(valid) == data.languages]
    try:
        if not sets:
            raise InputError(f"no validation set is in {' and '.join(data.languages)}")
        valid = sets[0]
        pairs = evenly_spaced(list(read_set(valid, data.languages, run.folder.path, "valid")), _PAIRS)
    except InputError as error:
        say(f"note: {error}; so int8 was compared with the run's own translations alone")
        return
    sources, references = [source for source, _ in pairs], [targets for _, targets in pairs]
    decode = config.decode.model_copy(update=dict(settings))
    by_run = Translator.of_config(run.model, run.tokenizer, config, decode).stream(
        sources, Options(tag=valid.tag)
    )
    metric = build_bleu(data.target_lang, "auto", lowercase=False)
    ours, theirs = (
        metric.score(sources, translations, references).value
        for translations in ([result.translation for result in by_run], list(translate(sources, valid.tag)))
    )
    scored = f"BLEU of {len(pairs)} validation sentences: {theirs:.2f} in int8, {ours:.2f} by the run"
    if theirs < ours - _BELOW:
        raise WorkError(
            f"int8 must cost at most {_BELOW} BLEU, but: {scored}; the export was not kept, ", *advice
        )
    say(scored)


_DIRECTIONS = 12  # that are named
_OF_FILES = re.compile(r"[/\\]|\.\w")
"""Matches titles that name files."""
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
    """Test set names that may be published: titles of public or named sets, numbers for private files."""

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
        if scored.get("seen", "") in ("", UNKNOWN)  # the hub shows the score without the share that was seen
        for score in scored["scores"]
    ]
    datasets = [name for entry in config.data.entries if (name := _hub_name(entry))]
    base_model = facts.get("base_model") or ""
    header = ModelCardData(
        language=list(dict.fromkeys(base_code(code) for code in _languages(config.data) if is_natural(code))),
        license=facts.get("license"),
        base_model=base_model if "/" in base_model else None,  # without "/" it is a local folder
        library_name=_ON_THE_HUB.get(target.name, target.name.lower()),
        pipeline_tag="translation",
        datasets=datasets or None,
        model_name=facts["name"],
        eval_results=results or None,
    )
    return header.to_yaml(line_break="\n").rstrip()


def _base_model(public: Mapping[str, Any]) -> str | None:
    """The public model's name: on the hub if it has a revision, else the name of its folder."""
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
