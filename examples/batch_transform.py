"""Mixed batches in your own training loop: an ordinary PyTorch loop, and one line more.

    python examples/batch_transform.py

In a loop that has torchvision's MixUp it takes its place, in the loop or in the loader's worker processes:

    mix = mixveil.BatchTransform(mixveil.Mixup(k=2), classes=10)  # v2.MixUp(num_classes=10)
    loader = DataLoader(..., collate_fn=lambda rows: mix(*default_collate(rows)))
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import mixveil


def accuracy(train: TensorDataset, test: tuple[Tensor, Tensor], transform: mixveil.BatchTransform | None) -> float:
    """Of a small network on the test images, after a few epochs."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(8):
        for x, y in DataLoader(train, batch_size=64, shuffle=True):
            if transform is not None:
                x, y = transform(x, y)
            optimizer.zero_grad()
            cross_entropy(net(x), y).backward()
            optimizer.step()
    with torch.no_grad():
        return float((net(test[0]).argmax(1) == test[1]).double().mean())


def main() -> None:
    digits = mixveil.open_data("digits")
    rows = digits.take(torch.randperm(len(digits), generator=torch.Generator().manual_seed(0)))
    x, y = rows.x, rows.y.argmax(1)
    train, test = TensorDataset(x[:1200], y[:1200]), (x[1200:], y[1200:])

    encoder = mixveil.Singular(alpha=0.7)
    transform = mixveil.BatchTransform(encoder, sigma=0.5, classes=10, stream=mixveil.SeededStream(0))
    print(f"clean batches: {accuracy(train, test, None):.1%} of the test images are right")
    print(f"mixed batches: {accuracy(train, test, transform):.1%}")
    print("promised: nothing. The loop holds the images; what it makes of them is not a release.")


if __name__ == "__main__":
    main()
