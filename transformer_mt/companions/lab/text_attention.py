"""The attention weights of an encoder or a decoder alone, for pictures."""

import torch

from transformer_mt.companions.lab.attention_maps import AttentionMaps
from transformer_mt.companions.language_models.loaded_model import TextModel
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS
from transformer_mt.errors import InputError
from transformer_mt.model.attention import AttentionRecorder


def look_at_text(loaded: TextModel, text: str) -> AttentionMaps:
    """The attentions of reading a text. InputError if it is empty or too long."""
    tokenizer, most = loaded.tokenizer, loaded.config.data.max_length - 1
    ids = tokenizer.encode_src([text], num_threads=1)[0]
    if not 1 <= len(ids) <= most:
        raise InputError(f"the text must have 1 to {most} tokens, but has {len(ids)}")
    is_encoder = loaded.config.model.kind == "encoder"
    read = torch.tensor([[BOS, *ids, *([EOS] if is_encoder else [])]], device=loaded.device)
    attentions = loaded.model.attentions
    recorder = AttentionRecorder(*(attention for layers in attentions.values() for attention in layers))
    with torch.inference_mode():
        loaded.model.hidden(read, torch.ones_like(read, dtype=torch.bool), read, recorder)
    weights = {
        kind: [torch.cat(recorder.of(attention), dim=2)[0].float().cpu() for attention in layers]
        for kind, layers in attentions.items()
    }
    pieces = tokenizer.pieces_src(ids)
    return AttentionMaps(["<s>", *pieces, "</s>"], [*pieces, "</s>"], text, text, weights)
