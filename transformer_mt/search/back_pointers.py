"""The memory of a beam search: where each hypothesis came from."""

import torch
from torch import Tensor

from transformer_mt.search.hypothesis import Hypothesis


class BackPointers:
    """Origins of hypotheses, and those that have ended, for every sentence of the search, on its device."""

    def __init__(self, longest: int, sentences: int, beam: int, device: torch.device | None) -> None:
        self.parents = torch.zeros(longest, sentences, beam, dtype=torch.int32, device=device)
        self.tokens = torch.zeros(longest, sentences, beam, dtype=torch.int32, device=device)
        self.beam = beam
        self.count = torch.zeros(sentences, dtype=torch.int64, device=device)  # finished hypotheses
        # (score, log_prob, length, parent) of the `beam` best finished hypotheses, best first. In float32, as
        # some devices lack float64; it holds lengths and rows up to 2^24 exactly.
        self.numbers = torch.zeros(4, sentences, beam, device=device)
        self.numbers[0] = -torch.inf

    @property
    def best(self) -> Tensor:
        """(B,) the best score of those that have ended, -inf where none has."""
        return self.numbers[0, :, 0]

    def finish(
        self, sentences: Tensor, ended: Tensor, score: Tensor, log_prob: Tensor, length: int, parent: Tensor
    ) -> None:
        """Note those hypotheses (B, beam) that have `ended`, now `length` tokens long, if they are among the
        best.
        """
        if ended.device.type == "cpu" and not ended.any():
            return
        score = score.masked_fill(~ended, -torch.inf)
        new = torch.stack([score, log_prob, torch.full_like(score, length), parent.to(score.dtype)])
        both = torch.cat([self.numbers[:, sentences], new], dim=2)
        rank = both[0].sort(dim=1, descending=True, stable=True).indices[:, : self.beam]
        self.numbers[:, sentences] = both.gather(2, rank.expand(4, -1, -1))
        self.count[sentences] += ended.sum(1)

    def extend(self, sentences: Tensor, length: int, parent: Tensor, token: Tensor) -> None:
        self.parents[length - 1, sentences] = parent.int()
        self.tokens[length - 1, sentences] = token.int()

    def hypotheses(self, eos: int, most: int | None = None) -> list[list[Hypothesis]]:
        """The finished ones of each sentence, best first, at most `most` of each; read from the device at
        once.
        """
        numbers = self.numbers[:, :, :most]
        counts = self.count.clamp(max=numbers.size(2)).to(numbers.dtype)[:, None].expand_as(numbers[0])
        facts = torch.cat([numbers, counts[None]]).permute(1, 2, 0).cpu()
        longest = int(facts[:, :, 2].max()) if facts.numel() else 0
        lengths, row = numbers[2].long(), numbers[3].long()  # (B, W)
        # (B, W, L): follow all paths back at once, from the last token to the first
        paths = lengths.new_full((*lengths.shape, longest), eos, dtype=torch.int32)
        for t in range(longest - 2, -1, -1):
            inside = lengths > t + 1
            paths[:, :, t] = torch.where(inside, self.tokens[t].gather(1, row), eos)
            row = torch.where(inside, self.parents[t].gather(1, row).long(), row)
        tokens = paths.tolist()
        return [
            [
                Hypothesis(tokens[sentence][rank][: int(length)], log_prob, score)
                for rank, (score, log_prob, length, _, count) in enumerate(of_sentence)
                if rank < count
            ]
            for sentence, of_sentence in enumerate(facts.tolist())
        ]
