"""Lines in, translations out: the same number, in the same order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from transformer_mt.checkpoint import CheckpointError, load_model_weights, load_weights
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.config_file import load_config
from transformer_mt.data.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer_mt.decoding.beam import Hypothesis, beam_search
from transformer_mt.device import choose_device
from transformer_mt.errors import InputError, WorkError
from transformer_mt.model.build import build_model
from transformer_mt.model.transformer import Transformer


@dataclass(frozen=True)
class Candidate:
    """One translation of a line."""

    translation: str
    score: float
    """log P / length^a."""
    tokens: list[str]
    """Pieces, without end-of-sentence."""


@dataclass(frozen=True)
class Translation:
    """What became of one line: its translation, and what could not be done faithfully."""

    source: str
    translation: str
    score: float
    tokens: list[str]
    problems: list[str] = field(default_factory=list)
    """Sentences such as "the source was cut ..."; empty when all is well."""
    n_best: list[Candidate] = field(default_factory=list)
    """The n best, the first being this one."""

    def __str__(self) -> str:
        return self.translation


class Translator:
    """A trained model with its vocabulary and the settings of its search."""

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        decode: DecodeConfig,
        max_src_length: int,
        max_tgt_length: int | None = None,
    ) -> None:
        """Sources are cut at `max_src_length` pieces with EOS; `max_tgt_length` is the model's own limit, if it has one."""
        self.model, self.tokenizer, self.decode = model, tokenizer, decode
        self.max_src_length, self.max_tgt_length = max_src_length, max_tgt_length
        self.device = next(model.parameters()).device

    @classmethod
    def load(
        cls, folder: str | Path, device: str = "auto", dtype: str = "float32", decode: dict[str, object] | None = None
    ) -> "Translator":
        """The translator in a run's folder; `decode` changes settings of its search (`{"beam": 1}`)."""
        folder = Path(folder)
        config = load_run_config(folder, decode)
        weights_file = folder / "model.safetensors"
        if not weights_file.exists():
            raise InputError(f"{folder}: no model.safetensors yet; training writes it at its first validation")
        tokenizer = Tokenizer.load(folder)
        model = build_model(
            config.model,
            tokenizer.src.vocab_size(),
            tokenizer.tgt.vocab_size(),
            tokenizer.shared,
            config.data.max_length,
        )
        try:
            load_model_weights(model, load_weights(weights_file), str(weights_file))
        except CheckpointError as error:
            raise WorkError(f"{error}; copy the run's folder again, or train on") from None
        model.to(choose_device(device), getattr(torch, dtype)).eval()
        return cls.of_config(model, tokenizer, config)

    @classmethod
    def of_config(
        cls, model: Transformer, tokenizer: Tokenizer, config: Config, decode: DecodeConfig | None = None
    ) -> "Translator":
        """The translator of a model that was built from `config`."""
        max_tgt_length = config.data.max_length if config.model.position == "learned" else None
        return cls(model, tokenizer, decode or config.decode, config.data.max_length, max_tgt_length)

    def translate(self, lines: Sequence[str], n_best: int = 1, max_length: int | None = None) -> list[Translation]:
        """One Translation a line, in order. `max_length` bounds each translation's pieces.

        Raises InputError if `n_best` is more than the beam.
        """
        if n_best > self.decode.beam:
            raise InputError(f"--n-best must be at most --beam ({self.decode.beam}), but is {n_best}")
        results: list[Translation | None] = [None] * len(lines)
        encoded = self.tokenizer.encode_src(lines)
        problems: list[list[str]] = [[] for _ in lines]
        for i, ids in enumerate(encoded):
            if not ids:
                results[i] = Translation(
                    lines[i], "", 0.0, [], ["there is nothing to translate"], [Candidate("", 0.0, [])]
                )
            elif len(ids) >= self.max_src_length:
                problems[i].append(f"the source was cut after {self.max_src_length - 1} of its {len(ids)} pieces")
                del ids[self.max_src_length - 1 :]
        for rows in self._batches(encoded):
            limits = [self._limit(len(encoded[i]), max_length) for i in rows]
            for i, limit, hypotheses in zip(rows, limits, self._search([encoded[i] for i in rows], limits)):
                if not hypotheses:
                    raise WorkError(
                        "the model's output is not a number; its weights are broken, go back to an earlier checkpoint"
                    )
                if len(hypotheses[0].tokens) >= limit:
                    problems[i].append(f"the translation was stopped at {limit} pieces")
                n_best_i = [self._candidate(hypothesis) for hypothesis in hypotheses[:n_best]]
                first = n_best_i[0]
                results[i] = Translation(lines[i], first.translation, first.score, first.tokens, problems[i], n_best_i)
        return [result for result in results if result is not None]

    def _batches(self, encoded: Sequence[list[int]]) -> Iterator[list[int]]:
        """Rows of similar length, the longest first so that memory is asked for once; empty ones are left out."""
        rows = sorted((i for i in range(len(encoded)) if encoded[i]), key=lambda i: -len(encoded[i]))
        start = 0
        while start < len(rows):
            length = len(encoded[rows[start]]) + 1
            size = max(1, self.decode.batch_tokens // (length * self.decode.beam))
            yield rows[start : start + size]
            start += size

    def _limit(self, src_length: int, max_length: int | None) -> int:
        """Most pieces of a translation, end-of-sentence counted; from the source alone, never from its batch mates."""
        bounds = [
            int(self.decode.max_length_ratio * src_length) + 10,
            self.max_tgt_length,
            max_length and max_length + 1,
        ]
        return min(bound for bound in bounds if bound)

    @torch.inference_mode()
    def _search(self, sources: list[list[int]], limits: list[int]) -> list[list[Hypothesis]]:
        longest = max(map(len, sources)) + 1
        src = torch.tensor([[*ids, EOS, *[PAD] * (longest - len(ids) - 1)] for ids in sources], device=self.device)
        src_mask = src != PAD
        state = self.model.start(self.model.encode(src, src_mask), src_mask)
        return beam_search(
            self.model.step,
            state,
            limits,
            bos_id=BOS,
            eos_id=EOS,
            beam=self.decode.beam,
            alpha=self.decode.length_penalty,
            banned=(PAD, BOS),
            device=self.device,
        )

    def _candidate(self, hypothesis: Hypothesis) -> Candidate:
        ids = hypothesis.tokens[:-1]
        return Candidate(self.tokenizer.decode_tgt(ids), hypothesis.score, self.tokenizer.pieces_tgt(ids))


def load_run_config(folder: Path, decode: dict[str, object] | None = None) -> Config:
    """The config of a run's folder, with the given settings of `decode` changed."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; a model is the folder of a run, such as runs/demo")
    if not (folder / "config.yaml").exists():
        raise InputError(f"{folder}: must be a run's folder, but holds no config.yaml")
    return load_config(folder / "config.yaml", [f"decode.{key}={value}" for key, value in (decode or {}).items()])
