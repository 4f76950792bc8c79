"""What the server of forks imports once (command.py). It runs no tensor operation: OpenMP's threads do not
survive a fork.
"""

import datasets
import pytest
import sacrebleu.metrics.bleu
import torch._dynamo

import transformer_mt.cli
import transformer_mt.training
from transformer_mt.data.vocabulary.tokenizer import normalizer_of

__all__ = ["datasets", "pytest", "sacrebleu", "torch", "transformer_mt"]

normalizer_of("auto")  # is kept: its rules take as long as a tiny training
