"""Models with random weights in the layouts of public ones, written by transformers."""

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from transformer_mt.corpora import toy

SIZES = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip

LEARNS = {
    "max_updates": 400, "validate_every": 400, "save_every": 400, "warmup": 30, "batch_tokens": 1200,
    "optimizer": "muon", "learning_rate": 0.02,
}  # fmt: skip
"""Keys of `train` with which a tiny model learns in seconds to write sentences that end."""


def sentencepiece_model(lines: list[str], kind: str = "unigram", size: int = 200, **options: Any) -> bytes:
    """A model as OPUS-MT trains them: without byte pieces, <unk> 0, <s> 1, </s> 2."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=kind, vocab_size=size,
        hard_vocab_limit=False, minloglevel=2, **options,
    )  # fmt: skip
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.vocab_size())]


def toy_lines(size: int = 400) -> tuple[list[str], list[str]]:
    sides = tuple(map(list, zip(*toy.generate("train", size))))
    return sides[0], sides[1]


def write_marian(
    folder: Path,
    separate: bool = False,
    codes: tuple[str, ...] = (),
    bias: bool = True,
    kind: str = "unigram",
    scale: float = 3.0,
    text: tuple[list[str], list[str]] | None = None,
    pieces: int = 200,
    **changes: Any,
) -> Any:
    """A Marian model in a folder as OPUS-MT's stand on the hub; returns it as MarianMTModel. Each side has
    about so many `pieces`, of the `text`.

    Some pieces of the source's SentencePiece model are not in the vocabulary, as there.
    """
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True)
    # A target with unknown characters would teach the model to write <unk>.
    models = [
        sentencepiece_model(lines, kind, pieces, character_coverage=coverage)
        for lines, coverage in zip(text or toy_lines(), (0.9995, 1.0))
    ]
    for name, model in zip(("source", "target"), models):
        (folder / f"{name}.spm").write_bytes(model)
    sides = [pieces_of(model)[3:] for model in models]
    for piece in [piece for piece in sides[0] if len(piece) > 4][-2:]:
        sides[0].remove(piece)
    lists = [*sides] if separate else [sorted({*sides[0], *sides[1]})]
    # With two vocabularies transformers takes the id of <pad> in one for that in the other.
    most = max(map(len, lists))
    lists = [[*side, *(f"▁filler{i}" for i in range(most - len(side)))] for side in lists]
    lists[0] = [*lists[0], *(f">>{code}<<" for code in codes)]
    vocabularies = [
        {piece: i for i, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])} for pieces in lists
    ]
    for name, vocabulary in zip(("vocab.json", "target_vocab.json"), vocabularies):
        (folder / name).write_text(json.dumps(vocabulary))
    facts = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    (folder / "README.md").write_text("---\nlanguage: [en, de]\nlicense: cc-by-4.0\n---\n# A model\n")
    size = len(vocabularies[0])
    values = {
        **SIZES,
        "vocab_size": size,
        "decoder_vocab_size": len(vocabularies[-1]),
        "share_encoder_decoder_embeddings": not separate,
        "pad_token_id": size - 1,
        "decoder_start_token_id": len(vocabularies[-1]) - 1,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "bos_token_id": 0,
        "activation_function": "swish",
        "scale_embedding": True,
        "max_position_embeddings": 128,
        **changes,
    }
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**values)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.mul_(scale).add_(0.02 * torch.randn_like(parameter))
        for embedding in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens):
            embedding.weight[-1] = 0.0  # the row of <pad>
        if bias:
            model.final_logits_bias.normal_()
            model.final_logits_bias[0, -1] = 0.0
            model.final_logits_bias[0, 0] = 3.0  # its translations end
    generation = model.generation_config
    generation.num_beams, generation.max_length, generation.renormalize_logits = 4, 128, True
    generation.bad_words_ids = [[size - 1]]
    model.half().save_pretrained(folder)  # as they are stored
    return MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()


def write_npz(folder: Path, public: Path, vocabulary: str = "yml", **changes: Any) -> None:
    """The model of a folder in the hub's layout as Marian writes it."""
    import numpy as np
    import yaml
    from safetensors.torch import load_file

    folder.mkdir(parents=True)
    tensors = {
        name: tensor.float().numpy() for name, tensor in load_file(public / "model.safetensors").items()
    }
    arrays = {"decoder_ff_logit_out_b": tensors["final_logits_bias"][:, :-1]}
    if "model.shared.weight" in tensors:
        arrays["Wemb"] = tensors["model.shared.weight"][:-1]
    else:
        for side in ("encoder", "decoder"):
            arrays[f"{side}_Wemb"] = tensors[f"model.{side}.embed_tokens.weight"][:-1]
    attentions = {"self_attn": "self", "encoder_attn": "context"}
    for name, tensor in tensors.items():
        if ".layers." not in name:
            continue
        _, side, _, number, *rest = name.split(".")
        begin = f"{side}_l{int(number) + 1}"
        kind = {"weight": "W", "bias": "b"}[rest[-1]]
        value = tensor.T if tensor.ndim == 2 else tensor[None]
        if rest[0].endswith("layer_norm"):
            where = {"final_layer_norm": "ffn_ffn"}.get(rest[0]) or (
                attentions[rest[0].removesuffix("_layer_norm")] + "_Wo"
            )
            arrays[f"{begin}_{where}_ln_{'scale' if kind == 'W' else 'bias'}"] = value
        elif rest[0] in attentions:
            arrays[f"{begin}_{attentions[rest[0]]}_{kind}{rest[1][0].replace('out', 'o')}"] = value
        else:
            arrays[f"{begin}_ffn_{kind}{rest[0][-1]}"] = value
    options = {
        "type": "transformer", "dim-emb": 32, "transformer-dim-ffn": 64, "transformer-heads": 4,
        "enc-depth": 2, "dec-depth": 2, "transformer-decoder-autoreg": "self-attention",
        "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-emb": "d",
        "transformer-no-projection": False, "transformer-ffn-activation": "swish",
        "transformer-ffn-depth": 2, **changes,
    }  # fmt: skip
    said = np.frombuffer(yaml.safe_dump(options).encode() + b"\0\0", dtype=np.int8)  # Marian pads it
    np.savez(folder / "model.npz", **{"special:model.yml": said}, **arrays)
    names = {"vocab.json": "vocab.src.yml", "target_vocab.json": "vocab.tgt.yml"}
    written = []
    for name, new in names.items():
        if (public / name).exists():
            pieces = json.loads((public / name).read_text())
            del pieces["<pad>"]
            # Long keys stand in a form of their own, and most have quotes.
            lines = [f"? {json.dumps(piece)}\n: {i}" if len(piece) > 6 else f"{json.dumps(piece)}: {i}"
                     for piece, i in pieces.items()]  # fmt: skip
            (folder / new).write_text("\n".join(lines) + "\n", encoding="utf-8")
            written.append(new)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes((public / name).read_bytes())
    decoder = {"models": ["model.npz"], "vocabs": [written[0], written[-1]], "beam-size": 6, "normalize": 1}
    (folder / "decoder.yml").write_text(yaml.safe_dump(decoder))


M2M_CODES = {"eng_Latn": "en", "deu_Latn": "de", "fra_Latn": "fr"}


def write_nllb(folder: Path, is_m2m: bool = False, scale: float = 3.0, **changes: Any) -> Any:
    """A model of NLLB, or of M2M-100, in a folder as they stand on the hub; returns it as transformers has
    it.
    """
    from transformers import AutoTokenizer, M2M100Config, M2M100ForConditionalGeneration
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    folder.mkdir(parents=True)
    lines = [line for side in toy_lines() for line in side]
    model = sentencepiece_model(lines, "bpe", 300, character_coverage=1.0)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    names = [f"__{code}__" for code in M2M_CODES.values()] if is_m2m else list(M2M_CODES)
    facts = {"additional_special_tokens": names, "src_lang": "en" if is_m2m else "eng_Latn",
             "tgt_lang": "de" if is_m2m else "deu_Latn"}  # fmt: skip
    if is_m2m:
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(model)[3:]]
        (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
        facts |= {"tokenizer_class": "M2M100Tokenizer"}
        codes = FAIRSEQ_LANGUAGE_CODES["m2m100"]
        facts["additional_special_tokens"] = [f"__{code}__" for code in codes]
    else:
        facts |= {"tokenizer_class": "NllbTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    (folder / "config.json").write_text(json.dumps({"model_type": "m2m_100"}))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    size = len(tokenizer.get_vocab()) + 5  # the last rows belong to no piece
    values = {**SIZES, "vocab_size": size, "max_position_embeddings": 128, "dropout": 0.1, **changes}
    torch.manual_seed(0)
    network = M2M100ForConditionalGeneration(M2M100Config(**values)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(scale).add_(0.02 * torch.randn_like(parameter))
    network.generation_config.num_beams, network.generation_config.max_length = 4, 128
    network.half().save_pretrained(folder)
    return M2M100ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
