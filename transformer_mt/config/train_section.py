"""The YAML's `train` section."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from transformer_mt.config.decode_section import metric_name
from transformer_mt.settings.objectives import objective_class
from transformer_mt.settings.part import PartName, PartOf
from transformer_mt.settings.section import (
    AutoOrBool,
    AutoOrPositive,
    Changeable,
    Conflict,
    Location,
    Mark,
    NonNegative,
    Positive,
    Probability,
    Searched,
    Section,
    pattern,
)


class LoraConfig(Section):
    """Low-rank adaptation (Hu et al. 2021): trains low-rank matrices that are added to frozen ones.
    The model in the run's folder has them merged.
    """

    rank: NonNegative = 0
    """Rank of the added matrices; 0 turns LoRA off, 8 to 64 are usual."""
    alpha: float = Field(32.0, gt=0.0)
    """The product of both matrices is multiplied by alpha / rank."""
    modules: list[Literal["attention", "feed_forward"]] = Field(["attention", "feed_forward"], min_length=1)
    """Adapted sublayers."""

    def conflicts_with(self, config: Any) -> Iterator[Conflict]:
        if self.rank and config.init_from is None:
            yield "train.lora.rank must be left out without init_from, which names the frozen model"
        if self.rank and config.model.kind != "transformer":
            yield f"train.lora.rank must be left out with model.kind: {config.model.kind}"


class GuidedAlignmentConfig(Section):
    """Supervision of one head of the cross-attention by word alignments (Garg et al. 2019, section 4.1)."""

    weight: float = Field(0.0, ge=0.0)
    """Weight of the alignment loss in the total loss; 0 turns it off, 0.05 is usual."""
    layer: AutoOrPositive = "auto"
    """Decoder layer, from 1; auto: the last but one if there are more than three, else the last."""
    file: Location[str | list[str] | None] = None
    """Alignments in Pharaoh format (`0-0 1-2`: words separated by spaces, counted from 0), one line per pair
    of the corpus; a list has one file per translation corpus. If omitted, the aligner eflomal (extra
    `alignment`) aligns the pairs.
    """

    @property
    def files(self) -> list[Path]:
        """The files of alignments; none where an aligner makes them."""
        files = [self.file] if isinstance(self.file, str) else self.file or []
        return [Path(file) for file in files]

    @property
    def guided_layer(self) -> Literal["auto"] | int | None:
        """The decoder layer whose first head learns to align words; None where none does."""
        return self.layer if self.weight else None

    def conflicts_with(self, config: Any) -> Iterator[Conflict]:
        corpora = sum(objective_class(entry.objective).translates for entry in config.data.entries)
        if self.files and not needs_links(config):
            yield "train.guided_alignment.file must be left out where nothing uses alignments"
        if self.files and len(self.files) != corpora:
            yield (
                f"train.guided_alignment.file must be one file per training corpus of translations "
                f"({corpora}), but is {len(self.files)}"
            )
        if not self.weight:
            return
        if config.model.kind != "transformer":
            yield (
                f"train.guided_alignment.weight must be 0 with model.kind: {config.model.kind}, but is "
                f"{self.weight:g}"
            )
        is_the_parents = config.init_from and "num_decoder_layers" not in config.model.model_fields_set
        if is_the_parents or self.layer == "auto":
            return
        if self.layer > (layers := config.model.num_decoder_layers):
            yield (
                f"train.guided_alignment.layer must be at most model.num_decoder_layers ({layers}), but is "
                f"{self.layer}"
            )


def needs_links(config: Any) -> bool:
    """True if training needs word alignments of its pairs, for guided alignment or for a change of rows."""
    return config.train.guided_alignment.weight > 0 or config.data.reads_links


_EMA_DECAY = 0.999
_DEVICE = pattern(r"^(auto|cpu|cuda(:\d+)?|mps)$", "auto, cpu, cuda, cuda:N or mps")
Monitor = Annotated[PartName, PartOf("metric", "loss"), BeforeValidator(metric_name)]


class TrainConfig(Section):
    """The training loop."""

    max_updates: Changeable[Positive] = 100_000
    """Number of updates after which training ends."""
    max_epochs: Changeable[float] = Field(0.0, ge=0.0)
    """Epochs after which training ends, if before max_updates; 0: only max_updates applies."""
    batch_tokens: Annotated[AutoOrPositive, Searched(512, 32_768, log=True)] = 4096
    """Budget of one batch in padded tokens: sentences x longest side; auto: as many as fit the device's
    memory.
    """
    update_tokens: Annotated[NonNegative, Searched(512, 131_072, log=True)] = 0
    """Padded tokens of one update over all devices, whatever their number; batch_tokens then only
    limits what a device holds at a time. 0: an update is `accumulate` batches per device.
    """
    accumulate: Changeable[Positive] = 1
    """Batches per device summed up for one update."""
    micro_batch_tokens: Changeable[NonNegative] = 0
    """Split batches into micro-batches of at most this many padded tokens, which gives the same update; 0:
    split only after running out of memory.
    """
    packed: AutoOrBool = "auto"
    """Pack several sentences into each row of a batch instead of padding one sentence per row;
    auto: on a GPU, for networks that support it.
    """
    parallel: Changeable[Literal["ddp", "fsdp"]] = "ddp"
    """With several devices: ddp keeps a full replica on each; fsdp shards weights and optimizer state over
    them.
    """
    fsdp_weights: Changeable[Literal["fp32", "bf16"]] = "fp32"
    """With parallel: fsdp, the precision of the layers' weights that devices exchange; bf16 halves this
    traffic and the memory of the layer in use.
    """
    activation_checkpointing: Changeable[bool] = False
    """Keep only each layer's input for the backward pass and recompute the rest: less memory, about a
    third more time; more on a CPU, as it turns off threads that compute parts of a batch.
    """
    share_muon: Changeable[bool] = False
    """With several devices: each computes Muon's steps of its share of the matrices and sends them
    to the others. Faster unless the network is slow; always on with parallel: fsdp.
    """
    freeze: list[Literal["embeddings", "encoder", "decoder"]] = Field([])
    """Frozen parts of the model of `init_from`; a tied output projection belongs to the embeddings."""
    lora: LoraConfig = LoraConfig()
    """Low-rank adaptation of the parent."""
    optimizer: Annotated[PartName, PartOf("optimizer")] = PartName("muon")
    """adamw has decoupled weight decay of matrices, adam adds the decay to the gradient; muon is Muon for the
    layers' matrices, AdamW for the rest.
    """
    learning_rate: Annotated[Changeable[float], Searched(1e-4, 0.03, log=True)] = Field(0.0007, gt=0.0)
    """The highest learning rate, reached at the end of the warm-up."""
    betas: Changeable[list[Probability]] = Field([0.9, 0.98], min_length=2, max_length=2)
    """Adam's decay rates of the two moments (paper, section 5.3)."""
    eps: Changeable[float] = Field(1.0e-9, gt=0.0)
    """Adam's epsilon (paper, section 5.3)."""
    weight_decay: Annotated[Changeable[float], Searched(0.0, 2.0)] = Field(0.0, ge=0.0)
    """Each update shrinks matrices by this share times the learning rate. With muon, 6 / (learning_rate x
    max_updates) is right for a new model of up to about 100,000 pairs (docs/measurements/sizing.md).
    """
    schedule: Annotated[Changeable[PartName], PartOf("schedule")] = PartName("inverse_sqrt")
    """The learning rate after the warm-up; linear and cosine reach zero one update after the last."""
    warmup: Annotated[Changeable[NonNegative], Searched(10, 8000, log=True)] = 4000
    """Updates over which the learning rate rises linearly."""
    loss: Annotated[PartName, PartOf("loss")] = PartName("cross_entropy")
    """cross_entropy is label-smoothed; companions bring others: {r_drop: {weight: 5}}."""
    label_smoothing: Annotated[Changeable[Probability], Searched(0.0, 0.3)] = 0.1
    """Share of the probability spread over the whole vocabulary (paper, section 5.4)."""
    guided_alignment: GuidedAlignmentConfig = GuidedAlignmentConfig()
    """Let one head of the cross-attention learn word alignments."""
    max_grad_norm: Changeable[float] = Field(1.0, ge=0.0)
    """Larger gradient norms are scaled down to this; 0 turns it off."""
    precision: Changeable[Literal["auto", "fp32", "bf16", "fp16"]] = "auto"
    """Precision of the matrix products; auto is bf16 if the device supports it, else fp16 with CUDA and
    fp32 elsewhere. Unless it is fp32, float32 products in validations on a GPU use TF32.
    """
    compile: Changeable[AutoOrBool] = "auto"
    """torch.compile for the layers and the loss, with packed batches; auto: with CUDA, if it saves more
    time than it takes: some 20 seconds, or 8 if the compiler's cache has the code.
    """
    device: Changeable[str] = Field("auto", pattern=_DEVICE)
    """auto, cpu, cuda, cuda:N or mps."""
    log_every: Changeable[Positive] = 100
    """Updates between lines of metrics.jsonl."""
    log_gradients: Changeable[bool] = False
    """Log the length of each layer's gradient, and the update's share of its weights, every log_every
    updates. On a GPU this turns CUDA graphs off.
    """
    loggers: Changeable[list[Annotated[PartName, PartOf("logger")]]] = Field([])
    """Send metrics.jsonl also to tensorboard (files in the run's folder) or wandb (Weights & Biases,
    which receives the config and sample translations; WANDB_MODE=offline keeps them local), or to
    a companion's.
    """
    validate_every: Changeable[Positive] = 1000
    """Updates between validations."""
    validate_sentences: Annotated[Changeable[Positive], Mark.AFFECTS_SCORES] = 1000
    """Maximum sentences of a validation set translated (greedily) for the metrics, evenly spread over a
    larger set; the loss uses all but those that data.max_length and data.max_length_ratio exclude.
    """
    save_every: Changeable[Positive] = 1000
    """Updates between checkpoints."""
    save_minutes: Changeable[float] = Field(0.0, ge=0.0)
    """Also save when the last checkpoint is older than this; 0 turns it off."""
    keep_checkpoints: Changeable[Positive] = 3
    """Newest checkpoints to keep, besides the best."""
    average_checkpoints: Changeable[Positive] = 5
    """Checkpoints whose weights are averaged at the end; 1 turns it off. Not used with average: ema."""
    average: Changeable[Literal["last", "best", "ema"]] = "last"
    """Average the newest checkpoints, those that validated best, or, with ema, the weights of all updates (an
    exponential moving average).
    """
    ema_decay: Changeable[Probability] = _EMA_DECAY
    """The share of the moving average that stays at each update."""
    export: Changeable[bool] = True
    """When training is finished, export the model into the run's folder if CTranslate2 is installed;
    commands on a CPU search with it.
    """
    monitor: Annotated[Changeable[Monitor], Mark.AFFECTS_SCORES] = PartName("BLEU")
    """The score that selects the best checkpoint: loss, or a metric of greedy translations, as in
    evaluate.metrics, or the NAME of `train --monitor NAME=COMMAND`.
    """
    monitor_set: Annotated[Changeable[str], Mark.AFFECTS_SCORES] = "mean"
    """With several validation sets: the name of the deciding one; mean weights all equally."""
    patience: Changeable[NonNegative] = 10
    """End training after this many validations without a new best; 0: never."""

    def conflicts(self) -> Iterator[Conflict]:
        if len(set(self.freeze)) == 3:
            yield "train.freeze must leave something to be trained, but names all parts"
        if self.lora.rank and {"encoder", "decoder"} <= set(self.freeze):  # where its matrices would be
            yield "train.freeze must leave the encoder or the decoder to train.lora, but names both"
        if self.average != "ema" and self.ema_decay != _EMA_DECAY:
            yield f"train.ema_decay must be left out without train.average: ema, but is {self.ema_decay}"
        if self.update_tokens and self.accumulate != 1:
            yield (
                "train.accumulate must be 1 with train.update_tokens, which sets the size of the update, "
                f"but is {self.accumulate}"
            )
        if self.fsdp_weights == "bf16" and self.parallel != "fsdp":
            yield (
                "train.fsdp_weights must be fp32 without train.parallel: fsdp, which sends weights, "
                "but is bf16"
            )

    def conflicts_with(self, config: Any) -> Iterator[Conflict]:
        if self.freeze and config.init_from is None:
            yield "train.freeze must be left out without init_from, which names the frozen model"
        if self.freeze and config.model.kind != "transformer":
            yield f"train.freeze must be left out with model.kind: {config.model.kind}"
        if config.model.share_layers and (self.parallel == "fsdp" or self.lora.rank):
            key, value = ("parallel", "fsdp") if self.parallel == "fsdp" else ("lora.rank", self.lora.rank)
            must = "ddp" if key == "parallel" else 0
            yield f"train.{key} must be {must} with model.share_layers: true, but is {value}"
        longest = config.data.max_length
        for key, tokens in (("update_tokens", self.update_tokens), ("batch_tokens", self.batch_tokens)):
            if tokens != "auto" and 0 < tokens < longest:
                yield f"train.{key} must be at least data.max_length ({longest}), but is {tokens}"
