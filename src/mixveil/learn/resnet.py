"""ResNet-18 for small images, as InstaHide's paper trains it: a 3×3 stem, no pooling before the blocks."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from mixveil.core import checks
from mixveil.features.split.layers import BatchNorm

WIDTH = 64
COLOURS = 3


class ResNet18(nn.Module):
    """(m, classes) scores of (m, 1 or 3, height, width) images; grey ones are read as three equal colours.

    width: the channels of the first of four stages, which double from stage to stage: 64 in the paper.
    """

    def __init__(self, classes: int, width: int = WIDTH) -> None:
        super().__init__()
        widths = [checks.at_least("width", width, 1) << stage for stage in range(4)]
        self.stem, self.stem_norm = _conv(COLOURS, width, 3, 1), BatchNorm(width)
        pairs = zip([width, *widths], widths, strict=False)
        stages = [(_Block(a, b, 1 if a == b else 2), _Block(b, b, 1)) for a, b in pairs]
        self.blocks = nn.Sequential(*(block for stage in stages for block in stage))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] == 1:
            x = x.expand(-1, COLOURS, -1, -1)
        x = self.blocks(relu(self.stem_norm(self.stem(x))))
        scores: Tensor = self.head(x.mean((2, 3)))
        return scores


class _Block(nn.Module):
    """Two 3×3 convolutions and a way past them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.first_norm = _conv(inputs, outputs, 3, stride), BatchNorm(outputs)
        self.second, self.second_norm = _conv(outputs, outputs, 3, 1), BatchNorm(outputs)
        self.past = None if inputs == outputs else nn.Sequential(_conv(inputs, outputs, 1, stride), BatchNorm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        past = x if self.past is None else self.past(x)
        x = relu(self.first_norm(self.first(x)), inplace=True)
        return relu(self.second_norm(self.second(x)) + past, inplace=True)


def _conv(inputs: int, outputs: int, side: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)
