"""First weights of networks, drawn from a stream, never globally."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import nn

from mixveil.core.device_random import DeviceStream

Net = TypeVar("Net", bound=nn.Module)


def started(net: Net, draws: DeviceStream, device: torch.device) -> Net:
    """The network with first weights uniform within ±1/√inputs, as torch's own are, on a device."""
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
                bound = 1 / math.sqrt(module.weight[0].numel())
                for tensor in (module.weight, module.bias):
                    if tensor is not None:
                        tensor.copy_(draws.uniform(*tensor.shape, device=torch.device("cpu")) * (2 * bound) - bound)
    found: Net = net.to(memory_format=torch.channels_last).to(device)  # type: ignore[call-overload]
    return found
