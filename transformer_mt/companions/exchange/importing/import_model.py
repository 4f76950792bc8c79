"""Imports public models as runs: finds out what kind of model a folder holds, and imports each model into the
cache once.
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from transformer_mt.checkpoint import save_weights
from transformer_mt.companions.exchange.importing.ctranslate2_folder import link_model, read_ctranslate2
from transformer_mt.companions.exchange.importing.foreign_model import (
    NO_LANGUAGES,
    ForeignModel,
    Languages,
    is_ctranslate2,
    is_marian,
    is_public,
)
from transformer_mt.companions.exchange.importing.huggingface_folder import read_huggingface_folder
from transformer_mt.companions.exchange.importing.marian import read_marian
from transformer_mt.config import Config
from transformer_mt.config.error_sentences import sentences
from transformer_mt.config.load import dump_config
from transformer_mt.config.root import Halves, PublicModel
from transformer_mt.corpora.seen_sentences import SeenSentences
from transformer_mt.data.vocabulary.given_tokenizer import tokenizer_settings
from transformer_mt.errors import InputError, Setting
from transformer_mt.files import cache_root, check_is_new, wait_for_folder, write_text
from transformer_mt.messages import say
from transformer_mt.run_folder import RunFolder, UnknownLanguageError
from transformer_mt.version import __version__

# The files of a model: the key in the cache depends on them alone.
_READ = re.compile(r".*\.(json|spm|model|safetensors|npz|yml|bin)|.*vocabulary\.txt")


FORMAT = 3
"""Format of imported runs in the cache: raise it when importing writes, or reading accepts, other files."""


def open_model(
    model: str | PublicModel | Halves, languages: tuple[str | None, str | None], config: Config | None
) -> RunFolder | None:
    """The run of a public model, or of halves of runs that the training of `config` begins from; None for
    other models. `languages` are used where the model names none.
    """
    if isinstance(model, Halves):
        from transformer_mt.companions.exchange.importing.joined_halves import joined_halves  # imports torch

        assert config is not None
        return joined_halves(config, model)
    folder, name, revision = Path(str(model)), str(model), None
    if isinstance(model, PublicModel):
        from transformer_mt.companions.exchange.importing.foreign_model import fetched

        folder, revision = fetched(model.huggingface, model.revision)
        if not is_public(folder):
            return RunFolder(folder)
    elif not is_public(folder):
        return None
    return _imported(folder, name, Languages(*languages, is_fallback=True), revision)


def _imported(folder: Path, name: str, languages: Languages, revision: str | None = None) -> RunFolder:
    """The run in the cache; with these languages only where the model says none."""
    inside = folder if folder.is_dir() else folder.parent
    files = [
        path for path in sorted((*inside.iterdir(), *inside.glob("model/*"))) if _READ.fullmatch(path.name)
    ]
    stats = [(path.name, of.st_size, of.st_mtime_ns, of.st_ctime_ns) for path in files if (of := path.stat())]
    root = cache_root() / "imported"
    root.mkdir(parents=True, exist_ok=True)
    with wait_for_folder(root):
        outs = []
        for chosen in (Languages(), languages):
            facts = [__version__, FORMAT, str(folder.resolve()), stats, vars(chosen)]
            outs.append(root / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24])
        if existing := next((out for out in outs if out.exists()), None):
            return RunFolder(existing)
        for chosen, out in zip((Languages(), languages), outs):
            try:
                import_model(folder, out, name, chosen, revision, lambda: say(f"importing {name}, once"))
                return RunFolder(out)
            except UnknownLanguageError:
                if chosen == languages:
                    raise
    raise AssertionError("one of the two ends the loop")


def import_model(
    folder: Path,
    out: Path,
    name: str,
    languages: Languages = NO_LANGUAGES,
    revision: str | None = None,
    before_writing: Callable[[], None] = lambda: None,
) -> RunFolder:
    """Write the model in `folder`, known as `name`, as a run to `out`; on failure nothing is kept.

    InputError, with every reason, where it is not a model that can be held exactly.
    """
    check_is_new(out)
    foreign = _read(folder)
    config = _config(foreign, folder, name, languages)
    before_writing()
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        run = RunFolder(unfinished)
        write_text(run.config_file, dump_config(config, comments=True))
        foreign.tokenizer.save(unfinished)
        if foreign.weights:
            save_weights(run.weights_file, foreign.weights, {"imported": name})
        else:
            link_model(folder, unfinished, name)
        if foreign.papers:
            run.papers.mkdir()
        for paper in foreign.papers:
            shutil.copyfile(paper, run.papers / paper.name)
        facts = {
            "model": name,
            "revision": revision,
            "architecture": foreign.architecture,
            "license": _license(foreign.papers),
        }
        SeenSentences.inherited_from([RunFolder(folder).seen()]).write(run.seen_file)
        write_text(run.imported_file, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
        unfinished.chmod(0o755)
        unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return RunFolder(out)


def _read(folder: Path) -> ForeignModel:
    """The model. InputError where its files are not what its software writes."""
    try:
        if is_marian(folder):
            return read_marian(folder)
        return read_ctranslate2(folder) if is_ctranslate2(folder) else read_huggingface_folder(folder)
    except InputError as error:
        where = "" if str(error).startswith(str(folder)) else f"{folder}: "
        raise InputError(where, *error.parts) from None
    except KeyError as error:
        raise InputError(
            f"{folder}: must say {error.args[0]} in its files, but does not; is it whole?"
        ) from None
    except (TypeError, ValueError, AttributeError, IndexError, RuntimeError, yaml.YAMLError) as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise InputError(f"{folder}: must be the unchanged folder of a model: {reason}") from None


def _config(foreign: ForeignModel, folder: Path, name: str, languages: Languages) -> Config:
    source, target = _direction(foreign, folder, languages)
    data: dict[str, Any] = {"imported": name, "target_lang": target}
    if foreign.language_pieces == "both":  # each of its languages into each other one
        train: Any = {**data, "languages": foreign.target_langs}
    elif len(foreign.target_langs) > 1:
        train = [{"imported": name, "target_lang": one} for one in foreign.target_langs]
    else:
        train = data
    values: dict[str, Any] = {
        "name": re.sub(r"[^\w.+-]", "-", Path(name).name).strip("-.") or "imported",
        "data": {
            "source_lang": source,
            "target_lang": target,
            "train": train,
            "valid": data,
            "language_pieces": foreign.language_pieces,
            "max_length": foreign.max_length,
        },
        "tokenizer": _tokenizer_keys(foreign),
        "model": foreign.model,
        "decode": foreign.decode,
    }
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        parts = [part for line in sentences(error, {}, Config) for part in ["\n", *line]]
        raise InputError(f"{folder}: cannot be represented here:", *parts) from None


def _direction(foreign: ForeignModel, folder: Path, languages: Languages) -> tuple[str, str]:
    """The usual source and target language. InputError where the model does not have them, or nothing says
    them.
    """
    has_pieces = foreign.language_pieces != "auto"
    known = foreign.target_langs if has_pieces else []
    source, target = languages.source, languages.target
    if languages.is_fallback:
        source = foreign.source_lang or source
        target = target if target in known or not foreign.target_langs else None
        if known and source not in known and foreign.language_pieces == "both":  # it is to learn the language
            source = next((language for language in known if language != target), None)
    source = source or foreign.source_lang
    target = target or next((lang for lang in foreign.target_langs if lang != source), None)
    for key, language in (("from", source), ("to", target)):
        if language is None:
            raise UnknownLanguageError(f"{folder}: names no languages; give them with ", Setting(key))
        if known and language not in known and (key == "to" or foreign.language_pieces == "both"):
            raise InputError(
                Setting(key), f" must be a language of the model ({', '.join(known)}), but is {language}"
            )
    assert source is not None and target is not None
    if source == target:
        raise InputError(f"{folder}: source and target language must differ, but both are {source}")
    return source, target


def _tokenizer_keys(foreign: ForeignModel) -> dict[str, Any]:
    tokenizer = foreign.tokenizer
    facts = tokenizer_settings(tokenizer.models[0])
    return {
        **facts, "vocab_size": len(tokenizer.all_pieces_tgt), "shared": tokenizer.shared,
    }  # fmt: skip


def _license(papers: list[Path]) -> str | None:
    """The licence that the card's header names."""
    for paper in papers:
        if paper.name.lower().startswith("readme"):
            text = paper.read_text(encoding="utf-8", errors="replace")
            header = re.match(r"---\n(.*?)^---\s*$", text, re.DOTALL | re.MULTILINE)
            try:
                facts = yaml.safe_load(header[1]) if header else None
            except yaml.YAMLError:
                continue
            named = facts.get("license") if isinstance(facts, dict) else None
            if isinstance(named, list):
                named = ", ".join(map(str, named))
            if named:
                return str(named)
    say("note: the model names no licence; ask its authors before you share models made from it")
    return None
