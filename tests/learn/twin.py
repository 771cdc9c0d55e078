"""The paper's classifier, from torch's own modules."""

from __future__ import annotations

from torch import nn

from mixveil.learn.mlp import Classifier


def twin(model: Classifier) -> nn.Sequential:
    """App. E as printed, from torch's own modules, but for dropout."""
    parts: list[nn.Module] = [nn.Flatten()]
    for dense, norm in zip(model._dense, [*model._norms, None], strict=True):
        linear = nn.Linear(dense.weight.shape[1], dense.weight.shape[0])
        linear.load_state_dict(dense.state_dict())
        parts.append(linear)
        if norm is not None:
            normal = nn.BatchNorm1d(len(norm.weight))
            normal.load_state_dict({**normal.state_dict(), **norm.state_dict()})
            parts += [normal, nn.GELU()]
    return nn.Sequential(*parts)
