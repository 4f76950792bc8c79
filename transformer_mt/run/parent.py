"""The parent of a fine-tuned run: its config, vocabulary and weights, and the sentences that it has seen."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.checkpoint import load_model_weights
from transformer_mt.config import Config
from transformer_mt.corpora.corpus import EvaluationSentence
from transformer_mt.corpora.held_out import read_set
from transformer_mt.corpora.seen_sentences import NOTHING_SEEN, SeenSentences, Sentences, keys_of
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.data.vocabulary.given_tokenizer import origins
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.messages import messages_to, say
from transformer_mt.model.interface import NEVER
from transformer_mt.ranks import Ranks
from transformer_mt.run_folder import RunFolder, makers_of, parent_of
from transformer_mt.settings.corpus_keys import label_piece
from transformer_mt.text.languages import base_code
from transformer_mt.update.build_updater import trains_embeddings


@dataclass(frozen=True)
class Parent:
    """A trained run."""

    folder: RunFolder
    config: Config
    weights: str
    """A digest of its weights."""

    @classmethod
    def of(cls, config: Config, ranks: Ranks | None = None) -> "Parent | None":
        """The parent that `init_from` names; None if `init_from` is not set. Rank 0 opens it while the other
        ranks wait. InputError if it is not a trained run.
        """
        if config.init_from is None:
            return None
        if ranks is None:
            folder = parent_of(config)
        else:
            with ranks.rank_zero_first():  # which may take longer than other operations should
                path = str(parent_of(config)) if ranks.is_rank_zero else None
            folder = RunFolder(ranks.broadcast(path))
        try:
            config = folder.config()
            folder.check_weights()
        except InputError as error:
            raise InputError("`init_from` must be the folder of a trained run; ", *error.parts) from None
        return cls(folder, config, str(folder.weights_digest()))

    def give_weights(self, model: nn.Module, config: Config, tokenizer: Tokenizer) -> None:
        """Copy the weights into the model. InputError if there are new tokens but embeddings are frozen.

        A new piece begins with the mean vector of the pieces it was divided into before, a new language with
        the vector of the language that `data.new_languages` maps it to. Other new control tokens, such as
        tags, begin with the vector of <unk>, which the training has made unlikely as output.
        """
        weights = self.folder.weights()
        if damaged := next((name for name, tensor in weights.items() if not tensor.isfinite().all()), None):
            raise InputError(
                f"`init_from` must have finite weights, but {damaged} of {self.folder} has NaN or infinity"
            )
        old = self.folder.tokenizer()
        new = origins(old, tokenizer, config.data.new_languages)
        labels = {label_piece(label) for label in config.data.all_labels}
        never = tokenizer.control_ids.keys() - labels
        is_written = [piece not in never for piece in tokenizer.all_pieces_src[-len(new) :]]
        for name, parameter in model.named_parameters():
            if name in weights and (missing := len(parameter) - len(weights[name])) > 0:
                if not trains_embeddings(config.train):
                    named = "those of data.new_pieces and " if config.data.new_pieces.text else ""
                    raise InputError(
                        f"train.freeze and train.lora must leave embeddings to be trained, as {missing} "
                        f"tokens are new: {named}tags, languages and labels that {self.folder} lacks"
                    )
                weights[name] = _with_rows(weights[name], new[:missing], is_written)
        load_model_weights(model, weights, str(self.folder.weights_file))

    def record(self, folder: RunFolder) -> None:
        """Write into the run's folder what it began from."""
        facts: dict[str, Any] = {
            "folder": str(self.folder), "config": self.config.name, "weights": self.weights,
        }  # fmt: skip
        if public := self.folder.public_model():
            facts["imported"] = public
        write_text(folder.parent_file, json.dumps(facts, indent=1) + "\n")


def _with_rows(weight: Tensor, origins: Sequence[Sequence[int]], is_written: Sequence[bool]) -> Tensor:
    """The embedding, or the output bias, with a new row for each list of ids in `origins`: the mean of their
    rows. In the bias, new tokens that are never written (`is_written` is False) get NEVER.
    """
    rows = torch.stack([weight[list(ids)].mean(dim=0) for ids in origins])
    if weight.dim() == 1:
        rows = rows.masked_fill(~torch.tensor(is_written[: len(origins)]), NEVER)
    return torch.cat([weight, rows])


def note_other_directions(config: Config, parent: Parent) -> None:
    """Print a note if the run translates nothing that its parent does; that is rarely meant."""
    if not parent.config.data.directions:
        return  # it was trained on plain text
    wanted, theirs = (
        {(base_code(source), base_code(target)) for source, target in one.data.directions}
        for one in (config, parent.config)
    )
    if not wanted & theirs:
        of_parent, of_child = (_few(sorted(directions)) for directions in (theirs, wanted))
        say(f"note: {parent.folder} translates {of_parent}, and this run {of_child}")


def _few(directions: Sequence[tuple[str, str]]) -> str:
    """The first five directions and the number of the others, as text."""
    named = ", ".join(f"{source} to {target}" for source, target in directions[:5])
    return named + (f" and {len(directions) - 5:,} more" if len(directions) > 5 else "")


def seen_before(
    config: Config, folder: RunFolder, parent: RunFolder | None, is_resumed: bool
) -> SeenSentences:
    """The run's record before its own training: the sentences seen by the model that it continues and by the
    models that wrote a side of its training pairs.
    """
    if is_resumed:
        return folder.seen() or SeenSentences(NOTHING_SEEN, is_complete=False)
    ancestors = [] if parent is None else [parent]
    for entry in config.data.entries:
        for file in entry.local_files():
            ancestors += makers_of(Path(file))
    records = [ancestor.seen() for ancestor in ancestors]
    for ancestor, record in zip(ancestors, records):
        if record is None or not record.is_complete:
            say(
                f"note: {ancestor} has no full record of its training and test data: none of it is left out "
                "of this training, and scores of sentences that it knows are not marked"
            )
    return SeenSentences.inherited_from(records)


def record_seen(config: Config, data: PreparedData, folder: RunFolder, before: SeenSentences) -> None:
    """Write the run's record. Print a note for each set that has sentences known to `before`."""
    texts: list[str] = []
    for name, sentences in _sets(config, data, folder):
        texts += (text for src, references in sentences for text in (src, *references))
        if known := int(before.inherited.knows(sentences).sum()):
            say(
                f"note: {known:,} of the {len(sentences):,} sentences of {name} were in the training of a "
                "model this run builds on: their scores are too high"
            )
    trained = SeenSentences.read(data.seen_file)
    validated = keys_of(src for valid in data.valid for src, _ in valid.sentences)
    of_run = Sentences(scored=keys_of(texts), validated=validated) | before.own
    of_run |= trained.own if trained else NOTHING_SEEN
    is_complete = before.is_complete and trained is not None
    SeenSentences(of_run, before.inherited, is_complete).write(folder.seen_file)


def _sets(
    config: Config, data: PreparedData, folder: RunFolder
) -> Iterator[tuple[str, list[EvaluationSentence]]]:
    for valid in data.valid:
        yield valid.name, valid.sentences
    for corpus in config.data.test:
        try:
            with messages_to(lambda text: None):  # `prepare` has reported what is wrong with a set
                sentences = list(read_set(corpus, config.data.languages, folder.path, "test"))
            yield corpus.title, sentences
        except InputError as error:  # the data come from the cache, and a test set is out of reach now
            say(f"warning: a run that continues this one may train on its test sentences: {error}")
