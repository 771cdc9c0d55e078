"""The loss of Fed-AugMix (Li et al., 2024): a classifier should say the same of an image and of its augmented views.

    L = L_c(p_orig, y) + λ · JS(p_orig; p_1; …),   JS = mean over views of KL(p_view ‖ q), q the mean of all views

(Eq. 5 and 6), and λ in phases (IV-E): LargeVal while L_c > Scale · JS, else its base.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import log_softmax


def jensen_shannon(scores: Tensor) -> Tensor:
    """(…, m) of (v, …, m, classes) scores of v views of the same images: 0 where all views agree, at most log v."""
    logs = log_softmax(scores, -1)
    mean = logs.logsumexp(0, keepdim=True) - math.log(len(logs))
    return (logs.exp() * (logs - mean)).sum(-1).mean(0)


def phased(classification: Tensor, divergence: Tensor, *, base: float, scale: float, large: float) -> Tensor:
    """λ for losses of one shape, in which it has no slope: `large` while the classification's loss is more than `scale`
    times the divergence, else `base`."""
    alike = classification.detach() > scale * divergence.detach()
    return torch.full_like(classification, base).masked_fill(alike, large)
