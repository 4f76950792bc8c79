"""ONNX: encoder and decoder step as two files, with the tokenizer and model.json, for any runtime."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from transformer_mt.companions.browser.graphs import ENCODER, STEP, write_graphs
from transformer_mt.companions.browser.onnx_model import OnnxModel, import_onnxruntime, quantize
from transformer_mt.companions.browser.rules import rules_of
from transformer_mt.companions.exchange.export.format import (
    OURS_ALONE,
    Output,
    TrainedRun,
    reasons_against_text,
)
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.corpora.held_out import evenly_spaced, read_set
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.evaluation.metrics import build_bleu
from transformer_mt.files import write_text
from transformer_mt.messages import say
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.transformer import Transformer
from transformer_mt.text.languages import has_no_spaces, has_no_word_spaces, language_name
from transformer_mt.translation.result import Options, Translation
from transformer_mt.translator import Translator

FACTS = "model.json"
_TWO_TOKENIZERS = ["tokenizer.src.model", "tokenizer.tgt.model"]
_USAGE = """\
`encoder.onnx` turns `src` (B, S; int64, padded with 0, each with `eos` at its end) into `source`; `step.onnx`
takes one step of all hypotheses: `tokens` (N,), the `rows` (N,) of `past` that they continue, `past`,
`source` and `src` give `log_probs` (N, V) and `present`, the next `past`. Ids, sizes and settings are in
`model.json`. Greedily, from Python:

```python
import json, pathlib
import numpy as np, onnxruntime as ort, sentencepiece

folder = pathlib.Path("{out}")
facts = json.loads((folder / "model.json").read_text())
encoder, step = (ort.InferenceSession(folder / name) for name in ("encoder.onnx", "step.onnx"))
src_side, tgt_side = (
    sentencepiece.SentencePieceProcessor(str(folder / facts["tokenizers"][i])) for i in (0, -1)
)
direction = facts["directions"][0]
text = src_side.encode("...")
src = np.array([direction["before"] + text + [facts["eos"]]])
(source,) = encoder.run(None, {{"src": src}})
past = np.zeros((facts["layers"], 2, 1, facts["heads"], 0, facts["width"]), np.float32)
tokens, written = [facts["bos"], *direction["prompt"]], []
limit = int(facts["search"]["max_length_ratio"] * len(text)) + 10
while tokens and len(written) < limit:
    given = {{"tokens": np.array([tokens.pop(0)]), "rows": np.array([0])}}
    given |= {{"past": past, "source": source, "src": src}}
    log_probs, past = step.run(None, given)
    if not tokens:
        log_probs[:, facts["never"]] = -np.inf
        written += (tokens := [int(log_probs.argmax())])
        tokens = [] if tokens == [facts["eos"]] else tokens
print(tgt_side.decode([i for i in written if i != facts["eos"]]))
```
"""
_PAIRS, _BELOW = 2000, 0.5
"""Validation sentences that int8 is compared on, and the most BLEU that it may cost."""
_SEARCH = ("beam", "length_penalty", "length_penalty_form", "max_length", "max_length_ratio")


class ToOnnx:
    """A folder with encoder.onnx, step.onnx, the SentencePiece model and model.json."""

    name = "ONNX"
    advice = "Translate with the run's folder."
    least_bleu: ClassVar[float] = 70.0  # translations of weak models change; references judge below
    proof_settings: ClassVar[dict[str, Any]] = {"split_sentences": False, "stop_early": True, **OURS_ALONE}

    def __init__(self, quantization: str = "int8") -> None:
        if quantization not in ("int8", "float32"):
            raise InputError(Setting("quantization"), f" must be int8 or float32, but is {quantization}")
        self.quantization = quantization
        import_onnxruntime()

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "ToOnnx":
        return cls(arguments.quantization or "int8")

    def supported_settings(self, settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
        kept = {key: getattr(settings, key) for key in (*_SEARCH, "split_sentences")}
        supported = DecodeConfig.model_validate({**kept, "stop_early": True, **OURS_ALONE})
        unsaid = {"batch_tokens", "retry", *OURS_ALONE}
        names = set(DecodeConfig.model_fields) - unsaid
        return supported, sorted(n for n in names if getattr(settings, n) != getattr(supported, n))

    def reasons_against(self, config: Config) -> list[str]:
        kind = config.model.kind
        reasons = [] if kind == "transformer" else [f"model.kind must be transformer, but is {kind}"]
        return reasons + reasons_against_text(config.data)

    def write(self, run: TrainedRun, folder: Path) -> None:
        assert isinstance(run.model, Transformer)
        if run.tokenizer.numberings:
            raise InputError(f"{run.folder}: must have a vocabulary of its own, but has an imported one")
        self._run = run
        write_graphs(run.model, folder, _positions(run.config))
        if self.quantization == "int8":
            quantize(folder, (ENCODER, STEP))
        run.tokenizer.save(folder)
        facts = model_facts(run)
        write_text(folder / FACTS, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")

    def translate(self, folder: Path, sentences: Sequence[str]) -> Sequence[Output]:
        results = self._translator(OnnxModel(folder)).translate(sentences)
        return [Output(result.translation, result.score, result.tokens) for result in results]

    def _translator(self, model: TranslationModel) -> Translator:
        config = self._run.config
        decode = config.decode.model_copy(update=self.proof_settings)
        return Translator.of_config(model, self._run.tokenizer, config, decode)

    def expected(self, translation: Translation) -> Output | None:
        if translation.segments or {"truncated", "unchanged"} & set(translation.flags):
            return None  # divided elsewhere there
        return Output(translation.translation, translation.score)

    def metadata(self, config: Config) -> dict[str, Any]:
        return {}

    def usage(self, config: Config, out: str) -> str:
        return _USAGE.format(out=out)

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        if self.quantization != "float32":
            self._compare_by_references(folder)
        folder.rename(out)

    def _compare_by_references(self, folder: Path) -> None:
        """WorkError if BLEU of the validation set is more than half a point below the run's."""
        data, run = self._run.config.data, self._run.folder
        # A set in the direction that is translated without being asked for.
        of_direction = [valid for valid in data.valid_sets if data.languages_of(valid) == data.languages]
        try:
            if not of_direction:
                raise InputError(f"no validation set is in {' and '.join(data.languages)}")
            valid = of_direction[0]
            pairs = evenly_spaced(list(read_set(valid, data.languages, run.path, "valid")), _PAIRS)
        except InputError as error:
            say(f"note: {error}; so int8 was compared with the run's own translations alone")
            return
        sources, references = [source for source, _ in pairs], [targets for _, targets in pairs]
        metric = build_bleu(data.target_lang, "auto", lowercase=False)
        scores = []
        for model in (self._run.model, OnnxModel(folder)):
            results = self._translator(model).stream(sources, Options(tag=valid.tag))
            scores.append(metric.score(sources, [result.translation for result in results], references).value)
        ours, theirs = scores
        scored = f"BLEU of {len(pairs)} validation sentences: {theirs:.2f} in int8, {ours:.2f} by the run"
        if theirs < ours - _BELOW:
            raise WorkError(
                f"int8 must cost at most {_BELOW} BLEU, but: {scored}; it was not kept, use float32"
            )
        say(scored)


def _positions(config: Config) -> int:
    """The longest sequence that the graphs must compute: each position takes a row of a table in them."""
    most = config.data.max_length
    longest = int(config.decode.max_length_ratio * most) + 12
    return most if config.model.position == "learned" else max(most, longest)


def model_facts(run: TrainedRun) -> dict[str, Any]:
    """Everything that a search needs besides graphs and SentencePiece models, as model.json has it."""
    config, tokenizer = run.config, run.tokenizer
    data, decode = config.data, config.decode
    layers = run.model.attentions["decoder"]

    def ids(piece: str | None) -> list[int]:
        return [tokenizer.control_id(piece)] if piece else []

    directions: list[dict[str, Any]] = [
        {
            "from": pair[0],
            "to": pair[1],
            "title": " → ".join(map(language_name, pair)),
            "before": ids(data.language_piece(pair)),
            "prompt": ids(data.target_piece(pair)),
            "source_has_spaces": not has_no_word_spaces(pair[0]),
            "target_has_spaces": not has_no_spaces(pair[1]),
            "rules": rules_of(*pair, decode),
        }
        for pair in dict.fromkeys([data.languages, *data.directions])
    ]
    return {
        "title": f"Translate with {config.name}",
        "directions": directions,
        "tags": {tag: tokenizer.control_id(tag) for tag in data.tags},
        **{"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS},
        "never": [PAD, UNK, BOS, *tokenizer.never_written],
        "layers": len(layers),
        "heads": layers[0].num_kv_heads,
        "width": config.model.d_model // config.model.num_heads,
        "max_source": config.data.max_length,
        "max_target": _positions(config) - len(directions[0]["prompt"]),
        "search": {key: getattr(decode, key) for key in _SEARCH},
        "split_sentences": bool(decode.split_sentences),
        "tokenizers": ["tokenizer.model"] if len(tokenizer.models) == 1 else _TWO_TOKENIZERS,
    }
