"""DLG (Zhu et al., 2019, Deep Leakage from Gradients): images and labels together, by L-BFGS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mixveil.attacks.shared.deep_leakage import DeepLeakage
from mixveil.core.randomness import Stream
from mixveil.core.types import Guess, View


@dataclass(frozen=True)
class DLG(DeepLeakage):
    """Descent on dummy images and soft labels, as `attacks.shared.deep_leakage` has it. Images are sorted by the
    classes that it finds; where the view has labels, they only say in which order images are returned."""

    name: ClassVar[str] = "dlg"

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        target = self.target(view)
        images, labels = self.closest(target, None, stream)
        images = images[labels.argmax(1).argsort(stable=True)]
        if target.labels is not None:  # the first of the lowest class goes where that class is first
            images = images[target.labels[0].argsort(stable=True).argsort()]
        return Guess(images=target.inside(images).cpu())
