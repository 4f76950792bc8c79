"""The record that `translate --resume` compares: a file next to the output while it is incomplete."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.cli.translating.request import TranslateRequest
from transformer_mt.errors import InputError
from transformer_mt.files import digest, write_text

if TYPE_CHECKING:
    from transformer_mt.translator import Translator


def record_file(output: Path) -> Path:
    return output.with_name(f".{output.name}.resume.json")


def record_of(
    request: TranslateRequest,
    translator: "Translator",
    names: Sequence[str] = (),
    files: Mapping[str, str | None] | None = None,
) -> dict[str, str]:
    """The settings and files that the output of `translate` depends on; `names` are options that only lines
    of text have, `files` those it reads besides the input.
    """
    model = replace(request.model, source_lang=translator.source_lang, target_lang=translator.target_lang)
    decode = translator.decode.model_dump(exclude={"batch_tokens"})
    settings = {f"decode.{key}": value for key, value in decode.items()}
    settings["languages"] = f"{translator.source_lang} to {translator.target_lang}"
    settings |= {"--engine": model.engine.engine, "--dtype": model.engine.dtype}
    for name in (*names, "protect", "tag", "text", "retry"):
        settings[f"--{name.replace('_', '-')}"] = getattr(request, name)
    models = [run.path for run in (model.run(), *model.other_runs())]
    read = {"the input": request.input, **(files or {})}
    read |= {f"the {name}": file for name, file in model.resources.items()}
    return facts(models, settings, read)


def facts(models: list[Path], settings: dict[str, Any], files: dict[str, str | None]) -> dict[str, str]:
    """The facts that a translation depends on, as texts by name: the models, the settings, and the contents
    of input files.

    Standard input is not among them: it cannot be read twice.
    """
    from transformer_mt.run_folder import RunFolder

    facts_by_name = {
        f"the setting {name}": json.dumps(value, ensure_ascii=False) for name, value in settings.items()
    }
    for number, folder in enumerate(models):
        files_of_model = RunFolder(folder).translation_files
        facts_by_name["the model" if number == 0 else f"model {number + 1}"] = digest(*files_of_model)
    for name, path in files.items():
        facts_by_name[name] = digest(Path(path)) if path and os.path.isfile(path) else "none"
    return facts_by_name


def begin(output: Path, now: dict[str, str]) -> None:
    """Record what begins to be written to `output`."""
    write_text(record_file(output), json.dumps(now, ensure_ascii=False, indent=1) + "\n")


def check(output: Path, now: dict[str, str]) -> None:
    """InputError unless what is in `output` was written from the same models, settings and files."""
    again = "translate it again without --resume"
    try:
        before = json.loads(record_file(output).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(
            f"{output}: must have its record ({record_file(output).name}) to be resumed, but "
            f"has none; {again}"
        ) from None
    changed = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
    if changed:
        name = min(changed)
        values = f" ({before.get(name)} then, {now.get(name)} now)" if name.startswith("the setting") else ""
        raise InputError(
            f"{output}: was begun with another value of {name}{values}, so it cannot be resumed; {again}"
        )


def end(output: Path) -> None:
    """The output is complete: there is nothing to resume."""
    record_file(output).unlink(missing_ok=True)
