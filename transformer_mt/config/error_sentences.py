"""Every key of the YAML by its dotted path, and a sentence for each mistake in one."""

import difflib
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from transformer_mt.corpora.corpus_kinds import CORPUS_TAGS, keys_of_kinds
from transformer_mt.errors import Setting
from transformer_mt.parts import load_part
from transformer_mt.settings.part import PartName, PartOf, part_of, part_title
from transformer_mt.settings.section import PATTERNS, Conflicts, Mark, Searched, members

CORPORA = ("data.train", "data.valid")
"""Keys whose value is replaced, not merged: the keys of two corpora together are no valid corpus."""


def keys(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """(dotted path, meaning, default) of every key below `section`, in order."""
    for name, field in section.model_fields.items():
        yield prefix + name, " ".join((field.description or "").split()), field.default
        if prefix + name not in CORPORA:  # corpora are read as a whole
            for below in _sections(field):
                yield from keys(below, f"{prefix}{name}.")


def marks(section: type[BaseModel], dotted: str) -> set[Mark]:
    """The marks of a key, and of the sections that it is in. The path may lead into a corpus."""
    name, _, rest = dotted.partition(".")
    field = section.model_fields[name]
    marked = {mark for mark in field.metadata if isinstance(mark, Mark)}
    if rest and (part := part_of(field)) is not None and not _sections(field):
        return marked | {Mark.CHANGEABLE} | _marks_of_setting(part, rest)
    below = [kind for kind in _sections(field) if rest.split(".")[0] in kind.model_fields]
    return marked | marks(below[0], rest) if rest and below else marked


def _marks_of_setting(part: PartOf, dotted: str) -> set[Mark]:
    """The marks of a setting of a part: `focal.gamma`, or `0.terms.file` in a list of parts."""
    first, _, rest = dotted.partition(".")
    name, _, setting = (rest if first.isdigit() else dotted).partition(".")
    section = getattr(load_part(part.kind, name), "Settings", None) if name in part.names else None
    return marks(section, setting) if section and setting in section.model_fields else set()


def searched_keys(section: type[BaseModel], prefix: str = "") -> dict[str, Searched]:
    """The dotted paths of the keys that `transformer-mt tune` may search."""
    found: dict[str, Searched] = {}
    for name, field in section.model_fields.items():
        if marked := [mark for mark in field.metadata if isinstance(mark, Searched)]:
            found[prefix + name] = marked[0]
        for below in _sections(field) if prefix + name not in CORPORA else []:
            found |= searched_keys(below, f"{prefix}{name}.")
    return found


def part_keys(section: type[BaseModel], prefix: str = "") -> set[str]:
    """The dotted paths of the keys that name one part."""
    paths: set[str] = set()
    for name, field in section.model_fields.items():
        if part_of(field) and not any(typing.get_origin(kind) is list for kind in members(field.annotation)):
            paths.add(prefix + name)
        for below in _sections(field) if prefix + name not in CORPORA else []:
            paths |= part_keys(below, f"{prefix}{name}.")
    return paths


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their dotted paths, as an override names them. The value of a part is its name; its
    settings follow under KEY.NAME.
    """
    dotted: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            dotted |= flat(value, f"{prefix}{key}.")
            continue
        parts = {prefix + key: value} if isinstance(value, PartName) else {}
        if isinstance(value, list):
            parts = {f"{prefix}{key}.{i}": one for i, one in enumerate(value) if isinstance(one, PartName)}
            value = [str(one) if isinstance(one, PartName) else one for one in value]
        dotted[prefix + key] = str(value) if isinstance(value, PartName) else value
        for place, part in parts.items():
            dotted |= flat(dict(part.settings), f"{place}.{part}.")
    return dotted


def _sections(field: FieldInfo) -> list[type[BaseModel]]:
    """The section classes in a key's type, alone or as items of a list. Some keys accept a word or a section
    (model.attention.score).
    """
    kinds = members(field.annotation)
    kinds += [
        kind for item in kinds if typing.get_origin(item) is list for kind in members(*typing.get_args(item))
    ]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]


_TAGS = ("a score", "ScoresConfig", "a run's folder", "PublicModel", "Halves")
"""Names of the kinds of a value, which pydantic puts into the path of a mistake."""

OTHER_NAMES = {
    name: f"it is called {right} here"
    for right, names in {
        "`train.learning_rate`": ("lr", "learn_rate", "max_lr", "peak_lr"),
        "`train.batch_tokens` (padded tokens)": (
            "batch_size", "max_tokens", "token_batch", "tokens_per_batch",
        ),
        "`train.max_epochs`": ("epochs", "num_epochs", "num_train_epochs"),
        "`train.loss` (such as r_drop, or {r_drop: {weight: 5}})": (
            "rdrop", "r_drop", "reg_alpha", "simcut", "criterion",
        ),
        "`train.average: ema` with `train.ema_decay`": ("ema", "use_ema", "moving_average"),
        "`train.schedule`": ("scheduler", "lr_scheduler", "lr_schedule", "decay_method"),
        "`train.optimizer`": ("optim",),
        "`train.validate_every` (updates)": ("eval_every", "eval_steps", "valid_steps", "valid_freq"),
        "`train.activation_checkpointing`": ("gradient_checkpointing", "checkpoint_activations"),
        "`train.lora.rank`": ("lora_rank", "lora_r"),
        "`train.max_updates`": (
            "max_steps", "train_steps", "num_steps",
        ),
        "`train.warmup` (updates)": ("warmup_steps", "warmup_updates", "num_warmup_steps"),
        "`train.accumulate`": ("grad_accum", "update_freq", "accum_count", "gradient_accumulation_steps"),
        "`train.max_grad_norm`": ("clip_norm", "clip_grad_norm", "grad_clip"),
        "`train.betas`": ("adam_betas", "beta1", "beta2"),
        "`train.patience`": ("early_stopping", "early_stop"),
        "`train.precision`": ("fp16", "bf16", "amp", "mixed_precision"),
        "`model.num_encoder_layers` and `model.num_decoder_layers`": (
            "layers", "num_layers", "enc_layers", "dec_layers", "encoder_layers", "decoder_layers",
        ),
        "`model.num_heads`": ("heads", "nhead", "attention_heads", "n_heads"),
        "`model.d_model`": ("hidden_size", "embedding_dim", "embed_dim", "dim", "rnn_size"),
        "`model.d_ff`": ("ffn_dim", "ff_size", "dim_feedforward", "transformer_ff", "ffn_embed_dim"),
        "`model.feed_forward`": ("activation", "activation_function", "ffn_activation", "hidden_act"),
        "`model.position: {relative: {distance: N}}`": ("relative_distance", "max_relative_positions"),
        "`train.loss: {NAME: {...}}`": ("loss_settings", "loss_weight"),
        "`model.position`": ("positional_encoding", "position_encoding", "pos_enc"),
        "`model.position: rotary`": ("rope", "use_rope", "rotary"),
        "`model.norm_kind: rms`": ("rmsnorm", "rms_norm", "use_rmsnorm"),
        "`model.num_kv_heads`": ("gqa", "num_key_value_heads", "n_kv_heads"),
        "`tokenizer.kind`": ("type", "model_type", "tokenizer_type"),
        "`tokenizer.vocab_size`": ("vocabulary_size", "num_merges", "bpe_size", "symbols"),
        "`decode.beam`": ("beam_size", "num_beams", "beam_width"),
        "`decode.length_penalty`": ("lenpen", "len_penalty"),
        "`--gpus N` on the command line": ("gpus", "num_gpus", "world_size", "devices"),
        "`--out DIR` on the command line": ("output_dir", "save_dir", "model_dir", "out"),
    }.items()
    for name in names
} | {
    name: right
    for right, names in {
        "there are no mixtures of experts; `model.d_ff` makes the layers wider": (
            "moe", "experts", "num_experts", "num_local_experts", "n_experts",
        ),
        "the fastest attention of the device is chosen without a key": (
            "flash_attention", "use_flash_attention", "flash", "attn_implementation",
        ),
        "a file or a pattern of files is `file`, two parallel files are `source` and `target`": (
            "files", "path", "data_files",
        ),
    }.items()
    for name in names
}  # fmt: skip
"""For keys of other toolkits: our name of the key, or what to do if we have no such key."""

OTHER_VALUES = {
    name: right
    for right, names in {
        "scaled_dot": ("scaled_dot_product", "sdpa"),
        "general": ("multiplicative", "bilinear"),
        "additive": ("bahdanau", "mlp"),
        "rotary": ("rope", "rotary_embedding"),
        "sinusoidal": ("sine", "sinusoid", "fixed"),
        "learned": ("learnable", "trainable"),
        "relative": ("shaw", "relative_position"),
        "pre": ("prenorm", "pre_norm", "pre_ln"),
        "post": ("postnorm", "post_norm", "post_ln"),
        "silu": ("swish",),
        "recurrent with `model.recurrent.cell`": ("rnn", "lstm", "gru"),
        "encoder": ("bert", "encoder_only"),
        "decoder": ("gpt", "decoder_only"),
        "inverse_sqrt": ("noam", "rsqrt", "inverse_square_root"),
        "fp16": ("float16", "half"),
        "fp32": ("float32", "float", "single"),
        "sample": ("sampling",),
        "sample with `decode.top_p`": ("nucleus", "top_p"),
        "sample with `decode.top_k`": ("top_k",),
        "beam with `decode.beam: 1`": ("greedy",),
    }.items()
    for name in names
}  # fmt: skip
"""Our names of values that are commonly called otherwise; a name applies to keys that accept it."""

OVERRIDDEN = "command line"
"""The location of a value that is in no file."""


def sentences(
    error: ValidationError, where: dict[str, str], section: type[BaseModel], origins: Mapping[str, str] = {}
) -> list[list[str | Setting]]:
    """A line for each mistake: where the value was set, what it must be, what it is, and the closest valid
    name. `origins` says where third-party parts come from (`Config.parts`).
    """
    lines = [
        line for problem in _without_branches(error) for line in _lines(problem, where, section, origins)
    ]
    return list({"".join(map(str, line)): line for line in lines}.values())


_BRANCH = re.compile(r"bool|int|float|str|none|(literal|list|dict|constrained-\w+|function-[\w-]+)(\[.*)?")
"""Names of types, which pydantic puts into the path of a mistake if a key accepts several types."""


def _without_branches(error: ValidationError) -> list[Any]:
    """The mistakes, with only one for each value that may have several types: the mistake for the type that
    the value nearly has, or else one that lists all the types.
    """
    problems: dict[Any, Any] = {}
    for problem in error.errors():
        *key, last = problem["loc"] or ("",)
        if not (isinstance(last, str) and _BRANCH.fullmatch(last)):
            problems[problem["loc"], problem["type"]] = problem
            continue
        mistake = (tuple(key), "branches")
        if mistake not in problems or not problem["type"].endswith("_type"):
            problems[mistake] = {**problem, "loc": tuple(key)}
        elif problems[mistake]["type"].endswith(("_type", "must_be")):
            kinds = [*problems[mistake].get("kinds", [problems[mistake]["type"]]), problem["type"]]
            must = [_MUST_BE.get(kind.partition("_")[0], kind) for kind in kinds]
            text = f"must be {', '.join(must[:-1])} or {must[-1]}"
            problems[mistake] |= {"type": "must_be", "msg": text, "kinds": kinds}
    return list(problems.values())


def _lines(
    error: Any, where: dict[str, str], section: type[BaseModel], origins: Mapping[str, str]
) -> list[list[str | Setting]]:
    """The lines of one error of pydantic: a section has one for all its conflicts."""
    # pydantic puts union tags (here corpus kinds and union members) into the path: remove them.
    loc = [str(part) for part in error["loc"]]
    if loc[:2] in (["data", "train"], ["data", "valid"]) and loc[2:3] in (["one"], ["list"]):
        del loc[2]
    loc = [part for i, part in enumerate(loc) if not (i >= 2 and part in CORPUS_TAGS and _is_corpus(loc[:i]))]
    loc = [part for part in loc if part not in _TAGS]
    dotted = ".".join(loc)
    location = next(
        (where[".".join(loc[:n])] for n in range(len(loc), 0, -1) if ".".join(loc[:n]) in where), None
    )
    kind = error["type"]
    if kind == "value_error" and any(
        said == OVERRIDDEN and key.startswith(f"{dotted}.") for key, said in where.items()
    ):
        location = OVERRIDDEN  # two keys conflict and one is an override: name the command line
    start = f"{location}: " if location else ""
    if kind == "value_error":  # raised by a validator of ours
        raised = error["ctx"]["error"]
        lines = raised.lines if isinstance(raised, Conflicts) else [[str(raised)]]
        return [[start, *line] for line in lines]
    if kind == "unknown_part" and (origin := origins.get(part_title(**error["ctx"]))):
        name, word = error["ctx"]["name"], error["ctx"]["kind"].replace("_", " ")
        return [[start, Setting(dotted), f" needs the {word} {name}, which is not here: {origin}"]]
    return [[start, Setting(dotted), _problem(error, loc, section)]]


def _problem(error: Any, loc: list[str], section: type[BaseModel]) -> str:
    """The end of the sentence that begins with the key at `loc`: what is wrong with it."""
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        return f" is not a key{_nearest(loc, section)}"
    if kind == "invalid_key":
        return " is not a key; a comma ends a value, so write decimals with a point: 0.001"
    if kind == "missing":
        return " must be given"
    if kind == "corpus_kind":
        word = str(next(iter(value), "")) if isinstance(value, dict) else ""
        match = difflib.get_close_matches(word, keys_of_kinds(), n=1)
        hint = OTHER_NAMES.get(word) or (f"did you mean `{match[0]}`?" if match else "")
        return f" {error['msg']}, but is {value!r}{f'; {hint}' if hint else ''}"
    if kind in ("must_be", "bool_type", "bool_parsing"):
        hint = f"; did you mean {str(value).lower()}?" if str(value).lower() in ("true", "false") else ""
        return f" {error['msg'] if kind == 'must_be' else 'must be true or false'}, but is {value!r}{hint}"
    if kind == "model_type":
        return f" must be a section of keys, but is {'empty' if value is None else repr(value)}"
    if kind == "string_pattern_mismatch":
        return f" must be {PATTERNS[error['ctx']['pattern']]}, but is {value!r}"
    if kind in ("too_short", "too_long"):
        least, most = error["ctx"].get("min_length"), error["ctx"].get("max_length")
        limit = f"at least {least}" if kind == "too_short" else f"at most {most}"
        return f" must have {limit} values, but has {len(value)}: {value!r}"
    must = _MUST.get(kind.partition("_")[0], error["msg"].replace("Input should be", "must be"))
    if value is None:
        return f" {must}, but is empty; leave the key out for its default"
    hint = ""
    if isinstance(value, str) and re.fullmatch(r"\d+,\d+", value) and must in _MUST.values():
        hint = f"; write {value.replace(',', '.')}"
    if kind in ("literal_error", "unknown_part"):
        expected = error["ctx"].get("expected") or must.removeprefix("must be ")
        value = error["ctx"].get("name", value)
        options = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
        word = str(value).lower().replace("-", "_")
        right = word if word in options else OTHER_VALUES.get(word, "")
        if right.split(" ")[0] in options:
            return f" {must}, but is {value!r}; this project calls it {right}"
        match = difflib.get_close_matches(str(value), options, n=1)
        hint = f"; did you mean {match[0]!r}?" if match else ""
    return f" {must}, but is {value!r}{hint}"


_MUST_BE = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "list": "a list",
    "dict": "a mapping of keys to values",
}
"""The kind of value that a key must have, by the first word of pydantic's error."""
_MUST = {kind: f"must be {what}" for kind, what in _MUST_BE.items() if kind != "bool"}


def _is_corpus(loc: list[str]) -> bool:
    lists = (["data", "train"], ["data", "valid"], ["data", "test"])
    is_item = loc[:2] in lists and len(loc) == 3 and loc[2].isdigit()
    return ".".join(loc) in CORPORA or is_item


def as_override(name: str, value: str, section: type[BaseModel]) -> str | None:
    """`train.learning_rate=0.1` for the key that is called lr, here or in another toolkit; None if no key is.
    A value in another unit is left to the user.
    """
    if called := re.search(r"`([a-z_]+\.[a-z_.]+)`( \(.+?\))?", OTHER_NAMES.get(name, "")):
        return f"{called[1]}=...{called[2]}" if called[2] else f"{called[1]}={value}"
    every = [dotted for dotted, _, _ in keys(section)]
    found = [name] if name in every else [key for key in every if key.rpartition(".")[2] == name]
    return f"{found[0]}={value}" if len(found) == 1 else None


def _nearest(loc: list[str], section: type[BaseModel]) -> str:
    """The hint `; did you mean ...?` for an unknown key, or an empty text. Tries in order: a key written with
    dots, a key of another toolkit, the same name in another section, a similar name in its section, a
    similar name anywhere.
    """
    every = [dotted for dotted, _, _ in keys(section)]
    if ".".join(loc) in every:  # written with its dots
        above, _, last = loc[-1].rpartition(".")
        return f"; sections are nested: {above.replace('.', ': {')}: {{{last}: ...}}{'}' * above.count('.')}"
    if loc[-1] in OTHER_NAMES:
        return f"; {OTHER_NAMES[loc[-1]]}"
    parent = ".".join(loc[:-1])
    neighbours = [k.rpartition(".")[2] for k in every if k.rpartition(".")[0] == parent]
    match = difflib.get_close_matches(loc[-1], neighbours, n=1, cutoff=0.75)
    elsewhere = [k for k in every if k.rpartition(".")[2] == loc[-1]]
    if match and not elsewhere:
        return f"; did you mean `{'.'.join([*loc[:-1], match[0]])}`?"
    elsewhere = [key for key in elsewhere if key != ".".join(loc)]
    if not elsewhere:
        by_last = {k.rpartition(".")[2]: k for k in reversed(every)}
        elsewhere = [by_last[near] for near in difflib.get_close_matches(loc[-1], by_last, 1, 0.8)]
    return f"; did you mean `{elsewhere[0]}`?" if elsewhere else ""
