"""`pipeline("translation")`, which transformers had until version 5, with the models that are opened here."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from transformer_mt.config import DecodeConfig
from transformer_mt.config.error_sentences import sentences
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.run_folder import open_model
from transformer_mt.translation.engines.engine import EngineRequest
from transformer_mt.translation.result import Options
from transformer_mt.translator import Translator

_TASK = re.compile(r"translation(?:_(?P<source>[\w-]+?)_to_(?P<target>[\w-]+))?")
_DECODE = {
    "num_beams": "beam", "max_length": "max_length", "max_new_tokens": "max_length",
    "min_length": "min_length", "min_new_tokens": "min_length", "length_penalty": "length_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram", "temperature": "temperature", "top_k": "top_k",
    "top_p": "top_p",
}  # fmt: skip
"""Arguments of `generate` and the names of the same settings in `decode`."""
_WITHOUT_EFFECT = frozenset({
    "clean_up_tokenization_spaces", "framework", "model_kwargs", "num_workers", "return_text",
    "revision", "token", "truncation", "trust_remote_code", "use_auth_token", "use_cache", "use_fast",
})  # fmt: skip
"""Arguments that change no translation here: batches are made by length, and long texts are divided."""


class TranslationPipeline:
    """Translates texts as `transformers.TranslationPipeline` did."""

    def __init__(self, translator: Translator, source: str | None, target: str | None, **search: Any) -> None:
        """`search` holds arguments of each call."""
        self.translator, self._source, self._target, self._search = translator, source, target, search

    @property
    def task(self) -> str:
        """The name of the task, with the languages where they are given."""
        named = self._source and self._target
        return f"translation_{self._source}_to_{self._target}" if named else "translation"

    @property
    def model(self) -> Any:
        """The model: a torch module, or the engine that searches without torch."""
        return getattr(self.translator.engine, "model", self.translator.engine)

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary (data/vocabulary/tokenizer.py); its methods are not those of transformers."""
        return self.translator.tokenizer

    @property
    def device(self) -> Any:
        """The device of the model."""
        return getattr(self.translator.engine, "device", "cpu")

    def __call__(
        self,
        inputs: str | Iterable[str],
        *,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **search: Any,
    ) -> Any:
        """Translate a text, a list of texts, or the texts of a generator.

        For one text, returns a list of `num_return_sequences` (default 1) {"translation_text": ...}. For a
        list, returns one such dictionary per text, or one list of them per text if `num_return_sequences` is
        above 1. For a generator, returns an iterator over one list per text, which reads `batch_size`
        (default 1) texts at a time.

        Raises InputError for arguments that have no meaning here.
        """
        block = search.pop("batch_size", None) or self._search.get("batch_size") or 1
        translator, several = self.prepared(src_lang, tgt_lang, **search)
        if isinstance(inputs, str):
            return next(_translated(translator, [inputs], several))
        if isinstance(inputs, dict | bytes) or not isinstance(inputs, Iterable):
            raise InputError(f"a text must be a string, but is {inputs!r}")
        if not isinstance(inputs, list | tuple):
            return _stream(translator, iter(inputs), several, block)
        results = list(_translated(translator, list(inputs), several))
        return results if several > 1 else [result[0] for result in results]

    def prepared(
        self, source: str | None = None, target: str | None = None, **search: Any
    ) -> tuple[Translator, int]:
        """Returns (translator for these languages and arguments, number of results per text)."""
        given = {**self._search, **search}
        given |= given.pop("generate_kwargs", None) or {}
        given.pop("batch_size", None)  # a list is divided by length
        several = given.pop("num_return_sequences", None) or 1
        if not isinstance(several, int) or several < 1:
            raise InputError(f"num_return_sequences must be a whole number above 0, but is {several!r}")
        targets = list(dict.fromkeys(target for _, target in self.translator.directions))
        source, target = source or self._source, target or self._target
        if target is None and len(targets) > 1:
            raise InputError(f"tgt_lang must be one of {', '.join(targets)}, the model's target languages")
        translator = self.translator.towards(target, source) if source or target else self.translator
        translator = translator.with_settings(**_settings(translator.decode, several, given))
        translator.check(Options(several))
        return translator, several


def pipeline(
    task: str | None = None,
    model: Any = None,
    tokenizer: Any = None,
    *,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    device: Any = None,
    device_map: Any = None,
    dtype: Any = None,
    torch_dtype: Any = None,
    **arguments: Any,
) -> TranslationPipeline:
    """The pipeline of a public model (its name on the hub, or its folder), of a run's folder or an export.

    `task` is "translation" or "translation_en_to_de". A model or tokenizer object of transformers stands for
    the folder or name it was loaded from. `device` is as there: a number of a GPU, -1 for the CPU, or a name.
    """
    match = _TASK.fullmatch(str(task or "translation"))
    if match is None:
        raise InputError(f"task must be translation, or such as translation_en_to_de, but is {task}")
    name = _name_of(model)
    if name is None:
        raise InputError(
            "model must be the name of a public model, a run's folder or an export, but is left out; "
            f"Helsinki-NLP/opus-mt-{match['source'] or 'en'}-{match['target'] or 'de'} is such a name"
        )
    if tokenizer is not None and Path(str(_name_of(tokenizer))) != Path(name):
        raise InputError(f"tokenizer must be that of the model ({name}), but is {_name_of(tokenizer)}")
    source, target = src_lang or match["source"], tgt_lang or match["target"]
    run = open_model(name, source, target)
    if isinstance(device_map, dict):  # such as {"": 0}
        device_map = next(iter(device_map.values()), None)
    maps = ("auto", "balanced", "balanced_low_0", "sequential")  # over several GPUs; one is enough here
    device_map = "auto" if device_map in maps else device_map
    device = next((value for value in (device, device_map) if value is not None), "auto")
    # Use torch for runs: their exports for CTranslate2 cannot sample and treat length limits differently.
    engine = "auto" if run.is_export else "torch"
    request = EngineRequest(engine, _device(device), _dtype(torch_dtype if dtype is None else dtype))
    built = TranslationPipeline(Translator.of_run(run, request), source, target, **arguments)
    if target is not None or len(built.translator.directions) == 1:
        built.prepared()  # raises InputError now, not at the first text
    return built


def _settings(usual: DecodeConfig, several: int, given: dict[str, Any]) -> dict[str, Any]:
    """Search settings from arguments of `generate`. Raises InputError for arguments without an equivalent."""
    given = {key: value for key, value in given.items() if value is not None and key not in _WITHOUT_EFFECT}
    for new, old in (("max_new_tokens", "max_length"), ("min_new_tokens", "min_length")):
        if new in given:  # the new name wins, as in transformers
            given.pop(old, None)
    if given.pop("return_tensors", False):
        raise InputError("return_tensors must be left out: a translation is a text")
    if given.pop("repetition_penalty", 1.0) != 1.0:
        raise InputError("repetition_penalty must be left out; no_repeat_ngram_size avoids repetitions")
    settings: dict[str, Any] = {"stop_early": given.pop("early_stopping", usual.stop_early) is True}
    is_sampled = bool(given.pop("do_sample", False))
    if unknown := [key for key in given if key not in _DECODE]:
        raise InputError(f"{unknown[0]} must be one of {', '.join(_DECODE)} or left out")
    if is_sampled:
        given.pop("num_beams", None)
        settings |= {"search": "sample", "samples": several}
    else:  # without do_sample, transformers ignores what belongs to sampling
        given = {key: value for key, value in given.items() if key not in ("temperature", "top_k", "top_p")}
        settings["beam"] = given.pop("num_beams", max(several, usual.beam))
    settings |= {_DECODE[key]: value for key, value in given.items()}
    try:
        checked = DecodeConfig.model_validate({**usual.model_dump(), **settings})
    except ValidationError as error:
        parts = [part for line in sentences(error, {}, DecodeConfig) for part in ["\n", *line]]
        raise InputError(*parts[1:]) from None
    return {key: getattr(checked, key) for key in settings}


def _translated(translator: Translator, texts: list[str], several: int) -> Iterator[list[dict[str, str]]]:
    """The translations of each text. Each line is translated separately and keeps its line ending."""
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise InputError(f"a text must be a string, but is {wrong[0]!r}")
    ends = [[*re.findall(r"\r?\n", text), ""] for text in texts]
    lines = [re.split(r"\r?\n", text) for text in texts]
    results = iter(translator.translate([line for of_text in lines for line in of_text], n_best=several))
    for ends_of in ends:
        texts_of = [[one.translation for one in next(results).n_best] for _ in ends_of]
        # Equal hypotheses are left out of a result, so the ones it has are repeated to fill the number.
        joined = [
            "".join(of[rank % len(of)] + end for of, end in zip(texts_of, ends_of)) for rank in range(several)
        ]
        yield [{"translation_text": text} for text in joined]


def _stream(
    translator: Translator, texts: Iterator[Any], several: int, size: int
) -> Iterator[list[dict[str, str]]]:
    """The translations of each text of a generator or data set, in order. Reads only `size` texts ahead,
    because a generator may wait for the translation of one text before it gives the next.
    """
    while block := list(islice(texts, size)):
        yield from _translated(translator, block, several)


def _name_of(model: Any) -> str | None:
    """The folder or name of a model or tokenizer, or where an object of transformers was loaded from."""
    loaded_from = getattr(model, "name_or_path", None)
    return None if model is None else str(loaded_from or model)


def _device(device: Any) -> str:
    """The name of a device that is given as a GPU's number, -1 for the CPU, a name or a torch.device."""
    if isinstance(device, int):
        return "cpu" if device < 0 else f"cuda:{device}"
    return str(device)


def _dtype(dtype: Any) -> str | None:
    """The name of a dtype that is given as a name or a torch.dtype; None for `auto`, the default."""
    name = str(dtype).removeprefix("torch.")
    return None if dtype is None or name == "auto" else name
