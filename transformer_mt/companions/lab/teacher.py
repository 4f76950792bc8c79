"""The teachers of a synthetic corpus: trained models, and those that a companion opens from a YAML file."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from transformer_mt.companion import hooks
from transformer_mt.errors import InputError
from transformer_mt.messages import say
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.result import Options
from transformer_mt.translator import Translator

Languages = tuple[str, str]
Row = dict[str, Any]
"""A line and its translation, under their languages, with the `score` of the translation and its `flags`."""


class Teacher(Protocol):
    """Translates the lines of a corpus."""

    languages: Languages
    """Source and target of its translations."""
    models: Sequence[Path]
    """The models whose records of sentences its students inherit."""
    has_scores: bool
    """False if all translations have the score 0."""

    def facts(self, languages: Languages) -> dict[str, str]:
        """The facts that its translations depend on; `languages` are those of the pairs."""

    def takes(self, line: str) -> bool:
        """False for a line that is too long."""

    def begin(self, lines: Callable[[], Iterable[str]]) -> None:
        """Say what will be done with the lines of the corpus, before the first of them is translated."""

    def rows(self, lines: Sequence[str]) -> Iterator[Row]:
        """The rows of these lines, in order. Without a translation the first flag is the reason."""

    def end(self, out: Path, lines: Callable[[], Iterable[str]], counts: Mapping[str, int]) -> None:
        """Called before the corpus appears, with the number of lines by what became of them."""


class Runs:
    """A trained model, or several that translate together."""

    has_scores = True

    def __init__(self, translator: Translator, models: Sequence[Path], tag: str | None = None) -> None:
        """`models` are the folders of the translator; the tag is put before each line."""
        self.translator, self.models = translator, models
        self.languages = translator.source_lang, translator.target_lang
        self._tag = known_tag(tag, translator)

    def facts(self, languages: Languages) -> dict[str, str]:
        decode = self.translator.decode.model_dump(exclude={"batch_tokens"})
        return {
            "model": " ".join(str(RunFolder(model).weights_digest()) for model in self.models),
            "search": json.dumps([decode, self._tag, *languages], sort_keys=True),
            "engine": f"{self.translator.engine.name} {self.translator.engine.dtype}",
        }

    def takes(self, line: str) -> bool:
        """True unless it is longer than what the model was trained on."""
        translator = self.translator
        return len(translator.tokenizer.encode_src([line], num_threads=1)[0]) < translator.max_src_length

    def begin(self, lines: Callable[[], Iterable[str]]) -> None:
        say(f"{', '.join(map(str, self.models))} translates, {self.translator.decode.in_words}")

    def rows(self, lines: Sequence[str]) -> Iterator[Row]:
        source, target = self.languages
        for result in self.translator.stream(lines, Options(tag=self._tag)):
            yield {
                target: result.translation,
                source: result.source,
                "score": round(result.score, 4),
                "flags": result.flags,
            }

    def end(self, out: Path, lines: Callable[[], Iterable[str]], counts: Mapping[str, int]) -> None:
        """The counts are said elsewhere."""


def known_tag(tag: str | None, translator: Translator) -> str | None:
    """The tag, if the model has it. One without it was trained on no such corpus: it translates as usual."""
    return tag if tag in translator.tokenizer.control_ids else None


def is_described(model: Path) -> bool:
    """True if a teacher is described by a YAML file, and is no folder of a run."""
    return model.suffix in (".yaml", ".yml")


def open_teacher(file: Path, languages: tuple[str | None, str | None]) -> Teacher | None:
    """The teacher that a YAML file describes, between these languages, which a command may have left out;
    None if the file has no `teacher`.
    """
    teachers = (open_described(file, languages) for open_described in hooks("open_teacher"))
    return next((teacher for teacher in teachers if teacher is not None), None)


def must_open(file: Path, languages: Languages) -> Teacher:
    """The same. InputError if there is none."""
    if teacher := open_teacher(file, languages):
        return teacher
    raise InputError(
        f"{file}: must be the folder of a run, or a YAML file with the key teacher, which an installed "
        "companion opens, but is neither"
    )
