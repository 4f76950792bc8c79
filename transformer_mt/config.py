"""Every key of the YAML: its type, its default, its range, and its meaning in a line (corpora: config_corpus.py; the
network: config_model.py).

`config_file.py` reads the YAML into these classes; `transformer-mt config show` prints them back.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from transformer_mt.config_corpus import (
    Corpus,
    NonNegative,
    Positive,
    Probability,
    Section,
    corpus_kind,
)
from transformer_mt.config_model import ModelConfig


class DataConfig(Section):
    """What is translated into what, and from which sentence pairs."""

    source_lang: str = Field(pattern=r"^[A-Za-z]{2,8}([_-]\w+)*$")
    """Language code of the source (`en`); also the default column."""
    target_lang: str = Field(pattern=r"^[A-Za-z]{2,8}([_-]\w+)*$")
    """Language code of the target (`de`); also the default column, and it chooses BLEU's tokenizer."""
    hub: str | None = None
    """Default `hub` of the corpora below."""
    config: str | None = None
    """Default `config` of the corpora below."""
    train: Corpus
    """The pairs trained on."""
    valid: Corpus
    """The pairs that say when to stop and which checkpoint is best."""
    test: list[Corpus] = Field([])
    """The pairs `evaluate` scores on; training pairs that stand here are left out."""
    max_length: Positive = 256
    """Longest side of a training pair, and longest source translated in one piece, in pieces with end-of-sentence."""
    max_length_ratio: float = Field(4.0, ge=1.0)
    """A pair is dropped when its longer side has more pieces than this times the shorter's, plus ten."""
    remove_duplicates: bool = True
    """Keep only the first of identical training pairs."""

    @model_validator(mode="before")
    @classmethod
    def _hand_down_the_hub(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not data.get("hub"):
            if isinstance(data, dict) and data.get("config"):
                raise ValueError(
                    f"data.config must stand with data.hub, of which it is one, but is {data['config']} alone"
                )
            return data

        def complete(corpus: Any) -> Any:
            if not isinstance(corpus, dict) or corpus_kind(corpus) != "hub" or "hub" in corpus:
                return corpus
            inherited = {"hub": data["hub"]} | ({"config": data["config"]} if data.get("config") else {})
            return inherited | corpus

        data = dict(data)
        for key in ("train", "valid"):
            if key in data:
                data[key] = complete(data[key])
        if isinstance(data.get("test"), list):
            data["test"] = [complete(corpus) for corpus in data["test"]]
        return data


class TokenizerConfig(Section):
    """SentencePiece, trained on the training pairs when the run begins."""

    kind: Literal["bpe", "unigram"] = "bpe"
    """How pieces are found: byte-pair merges or a unigram language model."""
    vocab_size: Annotated[int, Field(ge=8, le=1_000_000)] = 8000
    """Number of pieces, the special ones and the 256 bytes included (of each side where not shared)."""
    shared: bool = True
    """One vocabulary for both languages, or one each."""
    byte_fallback: bool = True
    """Spell unknown characters as bytes, so that nothing is ever <unk>."""
    character_coverage: float = Field(0.9999, ge=0.98, le=1.0)
    """Share of the text's characters that get a piece of their own."""
    sampling: Probability = 0.0
    """BPE-dropout: the probability with which a merge is left out in training, where words are spelled anew in each epoch."""
    normalization: Literal["nmt_nfkc", "nfkc", "identity"] = "nmt_nfkc"
    """Unicode normalisation; `identity` keeps full-width punctuation, as Chinese needs."""

    @model_validator(mode="after")
    def _only_merges_can_be_left_out(self) -> "TokenizerConfig":
        if self.sampling and self.kind != "bpe":
            raise ValueError(f"tokenizer.sampling must be 0.0 with tokenizer.kind: {self.kind}, but is {self.sampling}")
        return self


class TrainConfig(Section):
    """The training loop."""

    max_updates: Positive = 100_000
    """Updates of the weights after which training ends."""
    batch_tokens: Literal["auto"] | Positive = 4096
    """Budget of one batch in padded tokens: sentences x longest side; auto is the most that fits the device's memory."""
    accumulate: Positive = 1
    """Batches summed up for one update, on each device."""
    micro_batch_tokens: NonNegative = 0
    """Batches of more padded tokens are computed in parts, which gives the same update; 0: none, until memory runs out."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """With several devices: a whole copy of everything on each, or weights and optimizer shared out among them."""
    optimizer: Literal["adamw", "adam", "muon"] = "muon"
    """adamw decays matrices apart from the gradient, adam with it; muon is Muon for the layers' matrices, AdamW for the rest."""
    learning_rate: float = Field(0.0007, gt=0.0)
    """The highest learning rate, reached at the end of the warm-up."""
    betas: list[Probability] = Field([0.9, 0.98], min_length=2, max_length=2)
    """Adam's decay rates of the two moments (paper, section 5.3)."""
    eps: float = Field(1.0e-9, gt=0.0)
    """Adam's epsilon (paper, section 5.3)."""
    weight_decay: float = Field(0.0, ge=0.0)
    """Decay of the weights."""
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = "inverse_sqrt"
    """What the learning rate does after the warm-up; linear and cosine reach zero with the update after the last."""
    warmup: NonNegative = 4000
    """Updates over which the learning rate rises linearly."""
    label_smoothing: Probability = 0.1
    """Share of the probability spread over the whole vocabulary (paper, section 5.4)."""
    max_grad_norm: float = Field(1.0, ge=0.0)
    """Gradients longer than this are scaled down to it; 0 turns it off."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Arithmetic of the matrix products; auto is bf16 where the device computes in it, else fp16 with CUDA, fp32 elsewhere."""
    compile: Literal["auto"] | bool = "auto"
    """torch.compile; auto is on with CUDA."""
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")
    """auto, cpu, cuda, cuda:N or mps."""
    log_every: Positive = 100
    """Updates between lines of metrics.jsonl."""
    validate_every: Positive = 1000
    """Updates between validations."""
    validate_sentences: Positive = 1000
    """At most this many validation sentences are translated (greedily) for BLEU and chrF; the loss sees all."""
    save_every: Positive = 1000
    """Updates between checkpoints."""
    keep_checkpoints: Positive = 3
    """The newest checkpoints kept, besides the best."""
    average_checkpoints: Positive = 5
    """Checkpoints whose weights are averaged at the end; 1 turns it off."""
    average: Literal["last", "best"] = "last"
    """Average the newest checkpoints or those that validated best."""
    monitor: Literal["bleu", "loss"] = "bleu"
    """What on the validation set says which checkpoint is best."""
    patience: NonNegative = 10
    """Validations without a new best after which training ends; 0 turns it off."""

    @model_validator(mode="before")
    @classmethod
    def _without_what_earlier_versions_had(cls, values: Any) -> Any:
        """Their runs' configs say that R-Drop was off, and that is all they need it for."""
        if isinstance(values, dict) and values.get("r_drop") == 0.0:
            return {key: value for key, value in values.items() if key != "r_drop"}
        return values


class DecodeConfig(Section):
    """The search for the best translation."""

    search: Literal["beam", "sample", "mbr"] = "beam"
    """The likeliest translation; the likeliest of some drawn at random; or the one most like all of those drawn."""
    beam: Annotated[int, Field(gt=0, le=1000)] = 5
    """Hypotheses kept by beam search; 1 is greedy search."""
    length_penalty: float = Field(1.0, ge=0.0, le=10.0)
    """Exponent a of score = log P / length^a; 0 prefers short translations, 1 is the mean per token."""
    length_penalty_form: Literal["plain", "gnmt"] = "plain"
    """What is raised to that power: the length, or (5 + length) / 6 (Wu et al. 2016)."""
    coverage_penalty: float = Field(0.0, ge=0.0, le=10.0)
    """Weight of GNMT's coverage penalty, against source words nothing attended to."""
    diversity: float = Field(0.0, ge=0.0, le=100.0)
    """Taken off for each better continuation of the same hypothesis, for n best that differ (Li et al. 2016)."""
    samples: Annotated[int, Field(gt=0, le=10_000)] = 1
    """Translations drawn of each line by `sample` and `mbr`."""
    temperature: float = Field(1.0, gt=0.0, le=100.0)
    """Of sampling: log-probabilities are divided by it."""
    top_k: NonNegative = 0
    """Of sampling: only the k likeliest tokens; 0 is all."""
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    """Of sampling: only the likeliest tokens that together have this probability."""
    seed: NonNegative = 1
    """Of sampling: the same line in the same batch always gets the same samples."""
    utility: Literal["chrf", "bleu"] = "chrf"
    """What mbr maximises: the mean likeness to the other samples, by sentence chrF or BLEU."""
    min_length: Annotated[int, Field(ge=0, le=10_000)] = 0
    """A translation has at least this many pieces."""
    max_length: Annotated[int, Field(gt=0, le=10_000)] | None = None
    """A translation has at most this many pieces; by default as max_length_ratio says."""
    max_length_ratio: float = Field(2.0, gt=0.0, le=100.0)
    """A translation has at most this many times the source's pieces, plus ten."""
    no_repeat_ngram: NonNegative = 0
    """No so many pieces in a row twice in a translation; 0 turns it off."""
    repetition_penalty: float = Field(1.0, ge=1.0, le=100.0)
    """Factor on the log-probability of pieces that were there before; 1 turns it off."""
    banned: list[str] = Field([])
    """Words that are never written."""
    split_sentences: Literal["auto"] | bool = "auto"
    """Translate each sentence of a line by itself; auto: unless a fifth of the training sources had several sentences."""
    batch_tokens: Positive = 8192
    """Budget of one batch in padded source tokens x hypotheses."""

    @model_validator(mode="after")
    def _settings_fit_the_search(self) -> "DecodeConfig":
        of_sampling = {"samples": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        of_beams = {"coverage_penalty": 0.0, "diversity": 0.0}
        for key, default in (of_sampling if self.search == "beam" else of_beams).items():
            if (value := getattr(self, key)) != default:
                other = "sample" if self.search == "beam" else "beam"
                raise ValueError(
                    f"decode.{key} must be {default} with search: {self.search}, but is {value}; it needs search: {other}"
                )
        if self.diversity and self.beam == 1:
            raise ValueError("decode.beam must be at least 2 with decode.diversity, but is 1")
        if self.search == "mbr" and self.samples < 2:
            raise ValueError(f"decode.samples must be at least 2 with search: mbr, but is {self.samples}; 32 is usual")
        if self.max_length and self.min_length > self.max_length:
            raise ValueError(
                f"decode.min_length must be at most max_length ({self.max_length}), but is {self.min_length}"
            )
        if any(not word.strip() for word in self.banned):
            raise ValueError("decode.banned must hold words, but one of them is empty")
        return self


class EvaluateConfig(Section):
    """How translations are scored."""

    tokenize: Literal["auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"] = "auto"
    """BLEU's tokenizer; auto goes by the target language, none is for text that is tokenised already."""
    lowercase: bool = False
    """Score without regard to case; the signature says so."""


class Config(Section):
    """One experiment."""

    name: str = Field(pattern=r"^\w[\w.+-]*$")
    """The run's folder is runs/NAME; by default the name of the YAML file."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Of everything random: initial weights, order of the data, dropout."""
    data: DataConfig
    """The sentence pairs."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """The vocabulary."""
    model: ModelConfig = ModelConfig()
    """The network."""
    train: TrainConfig = TrainConfig()
    """The training."""
    decode: DecodeConfig = DecodeConfig()
    """The search."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """The scores."""

    @model_validator(mode="after")
    def _what_cannot_be_compiled_is_not(self) -> "Config":
        if self.train.compile is True and self.model.kind == "recurrent":
            raise ValueError(
                "train.compile must be auto or false with model.kind: recurrent, whose graph changes with the length, "
                "but is true"
            )
        return self

    @model_validator(mode="after")
    def _every_pair_fits_a_batch(self) -> "Config":
        if self.train.batch_tokens != "auto" and self.data.max_length > self.train.batch_tokens:
            raise ValueError(
                f"train.batch_tokens must be at least data.max_length ({self.data.max_length}), "
                f"but is {self.train.batch_tokens}"
            )
        return self
