"""The page itself: its files, and what it knows of a model besides the search.

The rules that `translate` applies before and after the search are data here: the patterns of the stages
themselves (translation/stages), rewritten for JavaScript.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from transformer_mt.companions.exchange.export.format import TrainedRun
from transformer_mt.companions.exchange.verify import write_sums
from transformer_mt.config import DecodeConfig
from transformer_mt.files import write_text
from transformer_mt.text.languages import (
    base_code,
    has_no_spaces,
    has_no_word_spaces,
    is_natural,
    language_name,
    letter_case,
)
from transformer_mt.text.lines import CONTROL, INVISIBLE
from transformer_mt.text.sentences import OWN_STOPS, USUAL, before_words, end_pattern
from transformer_mt.translation.stages.text_stages import MIN_LETTERS, MIN_WORDS, WORD

FACTS = "model.json"
"""What the page knows of its model."""
_PAGE = ("index.html", "page.js", "worker.js", "translator.js", "offline.js")
"""The files of every page, besides its engine.js, which loads the model."""


def web_file(name: str) -> str:
    """A text of `web/`."""
    return (files(__package__) / "web" / name).read_text(encoding="utf-8")


def write_page(folder: Path, engine: str, licences: Sequence[str]) -> None:
    """Write the page into the folder of a model; `engine` is the file of `web/` that loads it."""
    for name in _PAGE:
        write_text(folder / name, web_file(name))
    write_text(folder / "engine.js", web_file(engine))
    write_text(folder / "package.json", '{"type": "module"}\n')  # for Node
    ours = "The page and its search: transformer_mt, Apache-2.0. The model: see README.md."
    write_text(folder / "LICENSES.txt", "\n\n".join([ours, *licences]))


def seal_page(folder: Path, loaded: Sequence[str]) -> None:
    """Write down sizes and checksums of the files that the page has `loaded` when it is ready, and of all
    that it keeps to work without a network.
    """
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    facts["files"] = {name: (folder / name).stat().st_size for name in loaded}
    facts["checksums"] = {name: _checksum(folder / name) for name in loaded}
    # A file that is missing on a host would keep all others from working without a network.
    runtime = sorted(f"runtime/{file.name}" for file in (folder / "runtime").iterdir())
    offline = list(dict.fromkeys([FACTS, *loaded, *_PAGE, "engine.js", "LICENSES.txt", *runtime]))
    version = hashlib.sha256(b"".join((folder / name).read_bytes() for name in offline)).hexdigest()[:16]
    write_text(folder / FACTS, json.dumps({**facts, "version": version}, ensure_ascii=False, indent=1) + "\n")
    for name in ("index.html", "offline.js"):
        text = (folder / name).read_text(encoding="utf-8")
        write_text(folder / name, text.replace("{version}", version))
    sealed = [["./" if name == "index.html" else name, _checksum(folder / name)] for name in offline]
    worker = folder / "offline.js"
    text = worker.read_text(encoding="utf-8")
    listed = json.dumps(json.dumps([file for file in sealed if file[0] != "offline.js"]))
    write_text(worker, text.replace("'{files}'", listed))
    write_text(folder / ".nojekyll", "")  # GitHub Pages serves the files as they are
    write_sums(folder)  # of the files as they are now


def _checksum(file: Path) -> int:
    return zlib.crc32(file.read_bytes())


def page_facts(run: TrainedRun) -> dict[str, Any]:
    """What a page needs to know besides the search: languages, tags, rules, and whether it divides texts."""
    config, tokenizer = run.config, run.tokenizer
    data, decode = config.data, config.decode

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
        "split_sentences": bool(decode.split_sentences),
    }


def rules_of(source: str, target: str, decode: DecodeConfig) -> dict[str, Any]:
    """The text rules for one direction, as far as the settings turn them on and they suit its languages."""
    rules: dict[str, Any] = {"control": CONTROL.pattern, "invisible": INVISIBLE.pattern}
    if is_natural(source) and is_natural(target):
        rules |= {"before": before_words(source).pattern, "kept": USUAL.pattern}
        if decode.lowercase_capitals and source != target:
            rules["capitals"] = {
                "word": WORD.pattern,
                "min_words": MIN_WORDS,
                "min_letters": MIN_LETTERS,
                "source": letter_case(source),
                "target": letter_case(target),
                "keeps_i": base_code(source) == "en",
            }
    if decode.match_ends:
        rules["ends"] = {
            "source": end_pattern("").pattern,
            "target": end_pattern(target).pattern,
            "stops": OWN_STOPS.get(base_code(target), ""),
        }
    return {
        key: in_javascript(value) if isinstance(value, str) else _patterns_in_javascript(value)
        for key, value in rules.items()
    }


def _patterns_in_javascript(values: dict[str, Any]) -> dict[str, Any]:
    patterns = {"word", "source", "target"}
    return {
        key: in_javascript(value) if key in patterns and isinstance(value, str) else value
        for key, value in values.items()
    }


# Group 1: an escape or a character class, to be kept. Group 2: a quantifier, without the + after it.
_POSSESSIVE = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|([*+?]|\{\d+(?:,\d*)?\})\+")
_IGNORING_CASE = re.compile(r"\(\?i:([^()]*)\)")


def in_javascript(pattern: str) -> str:
    """Rewrite a Python pattern for JavaScript with the flags `gu`. Possessive quantifiers, which only save
    time, become ordinary ones; where case is ignored, each letter is written in both cases.
    """
    pattern = _IGNORING_CASE.sub(lambda found: f"(?:{_both_cases(found[1])})", pattern)
    pattern = _POSSESSIVE.sub(lambda found: found[1] or found[2], pattern)
    pattern = re.sub(r"\\U([0-9A-Fa-f]{8})", lambda found: f"\\u{{{int(found[1], 16):x}}}", pattern)
    pattern = re.sub(r"\\([\"'%@&<>#:;,!~`=])", r"\1", pattern)
    return "".join(f"\\u{ord(letter):04x}" if ord(letter) < 32 else letter for letter in pattern)


def _both_cases(text: str) -> str:
    return re.sub(r"[A-Za-z]", lambda found: f"[{found[0].lower()}{found[0].upper()}]", text)
