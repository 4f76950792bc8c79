"""Attention by a sigmoid of the dot product."""

from transformer_mt.model.variants.attention_scores import AttentionScore


class Sigmoid(AttentionScore):
    """log sigmoid(q · k): large scores saturate."""

    rotary = grouped_heads = True  # depends on q and k by their dot product, and has no weights

    def forward(self, q_BHTK, k_BHSK):
        return (q_BHTK @ k_BHSK.transpose(-2, -1)).sigmoid().log()
