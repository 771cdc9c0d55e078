"""DP-SGD beside InstaHide (Table 2): MNIST, a small convolutional network, Opacus.

The network has tanh (Papernot et al. 2020) and no normalisation over a batch, which would mix records. Clip norm,
batches, rate and epochs were fixed beforehand: nothing was chosen on the test data. ε is what Opacus's accountant of
privacy-loss variables says. The noise is torch's, of a seed: an experiment, whose weights must not be given away for
a private set.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from reproduce.instahide.runs import Sets, right

EPSILON, DELTA, CLIP, BATCH, RATE, MOMENTUM = 3.0, 1e-5, 0.1, 512, 0.5, 0.9
EPOCHS = 15
Row = dict[str, Any]


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def dpsgd(sets: Sets, epochs: int, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    """One training at ε = 3, and the same without noise and clipping."""
    for private in (True, False):
        yield _trained(sets, epochs, seed, private, say)


def _trained(sets: Sets, epochs: int, seed: int, private: bool, say: Callable[[str], None]) -> Row:
    torch.manual_seed(seed)
    x, test_x = (part.float().div(255).sub(0.5).div(0.5) for part in (sets.x, sets.test_x))
    model: nn.Module = network().to(x.device)
    optimiser: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), RATE if private else 0.05, momentum=MOMENTUM)
    batches: Any = DataLoader(TensorDataset(x, sets.labels), min(BATCH, len(x)), shuffle=True)
    engine = None
    if private:
        from opacus import PrivacyEngine

        engine = PrivacyEngine(accountant="prv")
        model, optimiser, batches = engine.make_private_with_epsilon(
            module=model,
            optimizer=optimiser,
            data_loader=batches,
            target_epsilon=EPSILON,
            target_delta=DELTA,
            epochs=epochs,
            max_grad_norm=CLIP,
        )
    begun, curve = time.monotonic(), []
    for epoch in range(1, epochs + 1):
        model.train()
        for images, labels in batches:
            if len(images):  # a batch that was drawn by chance may be empty
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        curve.append({"epoch": epoch, "plain %": _accuracy(model, test_x, sets.test_labels)})
        say(f"dpsgd {'private' if private else 'in the clear'}: {curve[-1]}")
    spent = None if engine is None else float(engine.get_epsilon(DELTA))
    settings = {"what": "dpsgd", "data": "mnist", "rows": len(x), "epochs": epochs, "seed": seed, "private": private}
    settings |= {"clip": CLIP, "batch": BATCH, "delta": DELTA} if private else {"batch": BATCH}
    told = {"plain %": curve[-1]["plain %"], "epsilon": spent, "seconds": time.monotonic() - begun}
    told |= {"noise over clip": float(optimiser.noise_multiplier)} if private else {}  # type: ignore[attr-defined]
    return {"settings": settings, "figures": told, "curve": curve}


@torch.no_grad()
def _accuracy(model: nn.Module, x: Tensor, labels: Tensor) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.eval()
        return right(torch.cat([model(part) for part in torch.split(x, 2000)]), labels)
