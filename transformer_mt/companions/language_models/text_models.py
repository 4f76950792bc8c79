"""Models that translate nothing: masks filled (BERT), texts continued (GPT), and their scores."""

import argparse
import math
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from transformer_mt.cli.arguments import given
from transformer_mt.cli.evaluate import print_scores, update_report
from transformer_mt.cli.model_options import RESOURCE
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.corpora.held_out import AnySet, EvaluationSet, read_set
from transformer_mt.data.batches.batching import validation_batches
from transformer_mt.data.batches.encoded_pairs import EncodedPairs, write_chunks
from transformer_mt.data.changes.training_rows import held_out_rows
from transformer_mt.data.preparation.encode_blocks import encoded_chunks
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.device import choose_device, use_device
from transformer_mt.errors import InputError, Setting, WorkError, advice_on
from transformer_mt.evaluation.classifier import Classifier
from transformer_mt.evaluation.metrics import Score
from transformer_mt.evaluation.set_evaluation import SeenShare, SystemRecord
from transformer_mt.files import to_json, write_text
from transformer_mt.model.interface import TranslationModel
from transformer_mt.run_folder import RunFolder
from transformer_mt.settings.objectives import MASK
from transformer_mt.settings.part import PartName
from transformer_mt.text.lines import Pair
from transformer_mt.translation.engines.engine import Request
from transformer_mt.translation.engines.torch_engine import TorchEngine, load_model
from transformer_mt.version import RESULTS


@dataclass(frozen=True)
class TextModel:
    """A model on its device."""

    model: TranslationModel
    tokenizer: Tokenizer
    config: Config
    device: torch.device

    @classmethod
    def load(cls, folder: str | Path, kinds: tuple[str, ...], device: str = "auto") -> "TextModel":
        """The model in a run's folder. InputError if its `model.kind` is none of these."""
        run = RunFolder(folder)
        config = run.config()
        if config.model.kind not in kinds:
            raise InputError(
                f"{folder}: must be a run with model.kind: {' or '.join(kinds)}, but is {config.model.kind}"
            )
        chosen = choose_device(device)
        use_device(chosen)
        model, tokenizer = load_model(run, config)
        return cls(model.to(chosen).eval(), tokenizer, config, chosen)


_MARK = re.compile(r"\[MASK\]|<mask>")


@dataclass(frozen=True)
class Filling:
    """A token for one mask."""

    piece: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text with its masks filled."""

    text: str
    """With the most probable token at each mask."""
    guesses: list[list[Filling]]
    """For each mask its tokens, the most probable first."""


class MaskFiller:
    """Fills `[MASK]` in texts; several masks of a text are filled independently of each other."""

    def __init__(self, loaded: TextModel) -> None:
        self._model, self._tokenizer, self._device = loaded.model, loaded.tokenizer, loaded.device
        self._most = loaded.config.data.max_length - 1
        if MASK not in loaded.tokenizer.control_ids:
            raise InputError("the model was not trained with objective: masked_lm")
        self._mask_id = loaded.tokenizer.control_ids[MASK]
        never = {*range(EOS + 1), *loaded.tokenizer.control_ids.values()}
        ids = range(loaded.tokenizer.src.vocab_size())
        self._is_never_V = torch.tensor([i in never for i in ids], device=loaded.device)

    def fill(self, text: str, top: int = 1) -> Filled:
        """The text with its masks filled, and the `top` most probable tokens of each. InputError if it has no
        mask, or is too long.
        """
        ids = self._ids(text)
        where = [position for position, piece in enumerate(ids) if piece == self._mask_id]
        if not where:
            raise InputError("the text must have [MASK] where a word is to be filled in, but has none")
        if len(ids) > self._most:
            raise InputError(f"the text must have at most {self._most} tokens, but has {len(ids)}")
        src = torch.tensor([[BOS, *ids, EOS]], device=self._device)
        with torch.inference_mode():
            logits_SV = self._model(src, src != PAD, src)[0].float()
        logits_SV = logits_SV.masked_fill(self._is_never_V, -torch.inf)
        guesses = []
        for position in where:
            probabilities, best = logits_SV[position + 1].softmax(dim=-1).topk(min(top, logits_SV.size(1)))
            pieces = self._tokenizer.pieces_src(best.tolist())
            guesses.append([Filling(*guess) for guess in zip(pieces, probabilities.tolist())])
            ids[position] = int(best[0])
        return Filled(self._tokenizer.src.decode(ids), guesses)

    def _ids(self, text: str) -> list[int]:
        """Encode a text: each [MASK], together with the space before it, becomes the id of <mask>."""
        first, *others = _MARK.split(text)
        ids = self._encoded(first)
        for part in others:
            of_part = self._encoded(part)
            ids += [self._mask_id, *(of_part if part[:1].isspace() else self._without_space(of_part))]
        return ids

    def _encoded(self, text: str) -> list[int]:
        return list(self._tokenizer.encode_src([text.strip()], num_threads=1)[0])

    def _without_space(self, ids: list[int]) -> list[int]:
        """Remove the space that SentencePiece puts before each text, as this text continues a word."""
        if not ids:
            return ids
        piece = self._tokenizer.pieces_src(ids[:1])[0].removeprefix("▁")
        first = [self._tokenizer.src.piece_to_id(piece)] if piece else []
        # A vocabulary may have the first token only with its space: then the space stays.
        return ids if first == [UNK] else [*first, *ids[1:]]


MOST = 50
"""Tokens of a completion, unless `max_length` says otherwise."""


class Completer:
    """Continues texts with the same searches as a translation."""

    def __init__(self, loaded: TextModel, decode: DecodeConfig) -> None:
        self._engine = TorchEngine(loaded.model, loaded.tokenizer)
        self._tokenizer, self._decode = loaded.tokenizer, decode
        self._positions = loaded.config.data.max_length
        self._engine.check(decode)
        if decode.search == "mbr":
            raise InputError(
                Setting("decode.search"), " must be beam or sample to complete a text, but is mbr"
            )

    def complete(self, text: str) -> list[str]:
        """The text with each of its completions, the best first. InputError where nothing more fits."""
        ids = self._tokenizer.encode_tgt([text], num_threads=1)[0]
        left = self._positions - len(ids)
        if left < 1:
            raise InputError(
                f"the text must have fewer than {self._positions} tokens (data.max_length), but has "
                f"{len(ids)}"
            )
        least = self._decode.min_length
        if least >= left:
            raise InputError(
                Setting("decode.min_length"),
                f" must be below {left} after this text (data.max_length), but is {least}",
            )
        limit = min(left, max(self._decode.max_length or MOST, least) + 1)
        request = Request([], limit, prompt=ids)
        wanted = self._decode.num_hypotheses
        ((_, hypotheses),) = self._engine.search([request], self._decode, wanted)
        as_read = self._tokenizer.decode_tgt(ids)  # not always as it was given: normalised
        texts = [self._tokenizer.decode_tgt([*ids, *hypothesis.tokens]) for hypothesis in hypotheses]
        whole = (text.rstrip() + one[len(as_read) :] if one.startswith(as_read) else one for one in texts)
        return list(dict.fromkeys(whole)) or [text]


_BATCH_TOKENS = 4096
_OF_TRANSLATIONS = (
    "source", "reference", "external", "robust", "tag", "ensemble", "engine", "dtype", "links",
    "to", "from",
)  # fmt: skip
"""Options of `evaluate` that apply only to models that translate."""
_NOT_GIVEN: tuple[object, ...] = (None, False, [], "auto")


def text_scores(loaded: TextModel, corpus: AnySet, rows: Sequence[Pair]) -> list[Score]:
    """The scores of a test set. For labels, this is the accuracy; for plain text, the perplexity of the
    predicted tokens, with the accuracy if they are masked tokens, or the bits per character if they are next
    tokens. Plain texts that are too long for the model are left out. The masks are always the same.
    """
    data, tokenizer = loaded.config.data, loaded.tokenizer
    objective = data.objective_of(corpus)
    if objective == "classification":
        labels = Classifier(loaded.model, tokenizer, loaded.config).labels([text for text, _ in rows])
        right = sum(label.strip() == predicted for (_, label), predicted in zip(rows, labels))
        return [Score("accuracy", 100 * right / len(rows), f"texts:{len(rows)}|labels:{len(data.labels)}")]
    most = data.max_length - 1 - len(data.pieces_before(corpus))
    lengths = map(len, tokenizer.encode_src([text for text, _ in rows]))
    read = [row for row, length in zip(rows, lengths) if 0 < length <= most]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.arrow"
        write_chunks(file, (chunk for chunk, _ in encoded_chunks(read, tokenizer, data, corpus)))
        nll, right, pieces = _predicted(loaded, EncodedPairs([file]), objective)
    characters = sum(len(text) for text, _ in read)
    if not pieces:
        return []
    signature = f"texts:{len(read)} of {len(rows)}|pieces:{pieces}|vocabulary:{tokenizer.src.vocab_size()}"
    scores = [Score("perplexity", math.exp(min(nll / pieces, 100.0)), signature, digits=3)]
    if objective == "masked_lm":
        scores.append(Score("accuracy of masked tokens", 100 * right / pieces, signature))
    if objective == "causal_lm":
        bits = Score(
            "bits per character", nll / math.log(2) / max(1, characters), f"{signature}|chars:{characters}", 4
        )
        scores.append(bits)
    return scores


def save_scores(run: RunFolder, test: EvaluationSet, seen: SeenShare, scores: Sequence[Score]) -> None:
    """Keep the scores of a test set in the run's folder. WorkError if they cannot be written there."""
    facts = {
        "corpus": test.corpus, "sentences": len(test.sentences), "scores": [asdict(s) for s in scores],
        "weights": run.weights_digest(), "results": RESULTS, "seen": seen.to_keep,
    }  # fmt: skip
    try:
        run.evaluation.mkdir(parents=True, exist_ok=True)
        write_text(run.scores_file(test.name), to_json(facts, indent=1) + "\n")
    except OSError as error:
        raise WorkError(
            f"{run.evaluation}: the scores could not be written: {error.strerror}; {advice_on(error)}"
        ) from None


@torch.inference_mode()
def _predicted(loaded: TextModel, texts: EncodedPairs, objective: PartName) -> tuple[float, int, int]:
    """The negative log-likelihood of all predicted tokens, how many are right, and their number."""
    nll, right, pieces = 0.0, 0, 0
    alone = loaded.config.data.masked_lm.model_copy(update={"next_sentence": False})
    data = loaded.config.data.model_copy(update={"masked_lm": alone})
    config = loaded.config.model_copy(update={"data": data})
    rows = held_out_rows(config, texts, objective, loaded.tokenizer)
    for batch in validation_batches(rows, _BATCH_TOKENS):
        on_device = batch.to(loaded.device)
        hidden_BTD = loaded.model.hidden(on_device.src, on_device.src_mask, on_device.tgt_in)
        logits_RV = loaded.model.output(hidden_BTD.flatten(0, 1)[on_device.real]).float()
        targets_R = on_device.tgt_out.flatten()[on_device.real]
        nll += float(F.cross_entropy(logits_RV, targets_R, reduction="sum"))
        right += int((logits_RV.argmax(dim=-1) == targets_R).sum())
        pieces += batch.num_tokens
    return nll, right, pieces


def evaluate_text(arguments: argparse.Namespace, folder: RunFolder, config: Config) -> None:
    """Print and save the test scores of an encoder-only or decoder-only model, which cannot translate."""
    options = [name for name in _OF_TRANSLATIONS if vars(arguments).get(name) not in _NOT_GIVEN]
    options += [f"{prefix}{key}" for prefix in (RESOURCE, "decode.") for key in given(arguments, prefix)]
    if options:
        raise InputError(f"{folder}: ", Setting(options[0]), " must be left out: it translates nothing")
    if not config.data.test:
        raise InputError(f"{folder}: its config must have data.test to be evaluated, but has none")
    loaded = TextModel.load(folder.path, (config.model.kind,), arguments.device)
    record = SystemRecord([folder])
    for number, corpus in enumerate(config.data.test):
        sentences = list(read_set(corpus, config.data.languages, folder.path, "test"))
        test = EvaluationSet(f"test-{number}", corpus.describe(), sentences)
        seen = record.share(test)
        rows = [(text, target) for text, targets in sentences for target in targets]
        scores = text_scores(loaded, corpus, rows)
        save_scores(folder, test, seen, scores)
        print_scores(arguments, test, seen, scores, f"{corpus.describe()}, {len(rows):,} texts")
    update_report(folder, config)
