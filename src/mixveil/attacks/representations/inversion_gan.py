"""MixCon's second attack (Li et al., 2020, App. D.2): a decoder from representations to images, trained as a GAN.

On public images x and z = h(x), with ξ = 10 and means for the norms,

    discriminator:  −[log D(x) + log(1 − D(G(z)))]
    generator:      −log D(G(z)) + ξ‖x − G(z)‖₁ + ξ‖z − h(G(z))‖₁

in 50 epochs by Adam at the rate 0.002, batches of 128. The printed minus sign covers the ξ terms; they are penalties.
The generator's first term is the usual one, which has the same fixed point as log(1 − D(G(z))) and does not vanish
where the discriminator is sure. The discriminator takes the first step on each batch, by an Adam of its own; both have
a DCGAN's moments (0.5, 0.999), which the paper does not state: with 0.9 the training did not settle. G is given each
value of z with mean 0 and deviation 1 over the public images: else it sees nothing of small values beside large ones.
The finished networks are kept in the cache; a training that was stopped begins again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import softplus
from torch.utils.checkpoint import checkpoint

from mixveil.attacks.shared import nets, training
from mixveil.attacks.shared.inverting import Standard, Target, TaughtAttack, public_pairs, told
from mixveil.attacks.shared.kept_networks import KeptNetworks
from mixveil.attacks.shared.training import NO_CACHE, Schedule, TrainingCache
from mixveil.core.device_random import DeviceStream
from mixveil.core.errors import TrainingError
from mixveil.core.randomness import Stream
from mixveil.core.types import Guess, View

_SCHEDULE = Schedule(epochs=50, batch=128, rate=0.002)
_MOMENTS = (0.5, 0.999)
_REPORTED = 20  # steps between two reports of progress


class Rivals(nn.Module):
    """A generator of images from representations, and a discriminator. Images are in [low, high]."""

    def __init__(self, target: Target, base: int) -> None:
        super().__init__()
        self.low, self.high = target.client.low, target.client.high
        self.generator = nets.MapDecoder(target.output, target.shape, base, normalised=True)
        self.discriminator = nets.Discriminator(target.shape, base)

    def forward(self, z: Tensor) -> Tensor:
        """(m, c, h, w) images from (m, values), standardised."""
        with training.low_precision(z.device):
            found: Tensor = self.generator(z)
        return self.low + (self.high - self.low) * torch.sigmoid(found.float())

    def real(self, images: Tensor, *, learning: bool) -> Tensor:
        """(m,) log-odds that images are real. learning: whether the discriminator learns from them, or is fixed."""
        weights = self.discriminator.named_parameters()
        used = {name: weight if learning else weight.detach() for name, weight in weights}
        with training.low_precision(images.device):
            found: Tensor = functional_call(self.discriminator, used, (images,))
        return found.float()


@dataclass(frozen=True)
class InversionGan(TaughtAttack):
    """Images from representations by a generator that was trained on public images. xi: the weight of the penalties."""

    name: ClassVar[str] = "inversion-gan"
    base: int = 32
    xi: float = 10.0
    schedule: Schedule = _SCHEDULE
    cache: TrainingCache = NO_CACHE

    def __call__(self, view: View, *, stream: Stream) -> Guess:
        target = self.target(view)
        images, sent = public_pairs(view, target)
        rivals = nets.started(Rivals(target, self.base), DeviceStream(stream.fork("first weights")), target.device)
        batch = min(self.schedule.batch, len(images))
        steps = self.schedule.epochs * (len(images) // batch)
        steps = min(steps, self.cache.max_steps or steps)
        about = {"attack": self.name, "base": self.base, "xi": self.xi, "seed": int(stream.fork("seed").words(1))}
        about |= {**told(target, images, sent), "schedule": asdict(self.schedule), "steps": steps}
        kept, draws = KeptNetworks.of(about, self.cache), DeviceStream(stream.fork("draws"))
        standard = Standard.of(sent)
        if not kept.taken(rivals):
            self._train(rivals, target, standard, images, sent, steps, draws)
            kept.keep(rivals)
        rivals.eval()
        with torch.no_grad():
            found = torch.cat([rivals(standard(part).float()) for part in torch.split(target.z, 64)])
        return Guess(images=target.inside(found).cpu().double())

    def _train(
        self,
        rivals: Rivals,
        target: Target,
        standard: Standard,
        images: Tensor,
        sent: Tensor,
        steps: int,
        draws: DeviceStream,
    ) -> None:
        """Train both in place, on images and what the client part makes of them."""
        telling, making = (
            torch.optim.Adam(net.parameters(), self.schedule.rate, betas=_MOMENTS)
            for net in (rivals.discriminator, rivals.generator)
        )
        batch = min(self.schedule.batch, len(images))
        rivals.train()
        for step in range(steps):
            epoch, first = divmod(step, len(images) // batch)
            draws.restart(epoch)
            rows = draws.permutation(len(images))[first * batch : (first + 1) * batch].to(target.device)
            x, z = images[rows], sent[rows]
            made: Tensor = rivals(standard(z).float())
            _stepped(telling, told_loss(rivals, x, made.detach()))
            found = _stepped(making, self.made_loss(rivals, target, x, z, made))
            if step % _REPORTED == 0 or step == steps - 1:
                if not bool(found.isfinite()):
                    raise TrainingError(f"the loss is {float(found)} at step {step:,}: give other public images")
                self.cache.watch(f"{self.name}, training step {step:,} of {steps:,}")

    def made_loss(self, rivals: Rivals, target: Target, x: Tensor, z: Tensor, made: Tensor) -> Tensor:
        """The generator's, for images x, their representations z, and what it made of those."""
        penalties = (x - made).abs().mean() + (z - _represented(target, made)).abs().mean()
        found: Tensor = softplus(-rivals.real(made, learning=False)).mean() + self.xi * penalties
        return found


def _represented(target: Target, made: Tensor) -> Tensor:
    """(m, values) of a batch (m, c, h, w), with gradients. A client part that makes much of an image goes over a few at
    a time, and again for the gradients: a smaller batch would be another training."""
    if len(made) <= target.together:
        return target.h(made)
    parts = torch.split(made, target.together)
    return torch.cat([checkpoint(target.h, part, use_reentrant=False, preserve_rng_state=False) for part in parts])


def told_loss(rivals: Rivals, x: Tensor, made: Tensor) -> Tensor:
    """The discriminator's, for real images x and made ones."""
    found: Tensor = softplus(-rivals.real(x, learning=True)) + softplus(rivals.real(made, learning=True))
    return found.mean()


def _stepped(optimiser: torch.optim.Optimizer, loss: Tensor) -> Tensor:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return loss.detach()
