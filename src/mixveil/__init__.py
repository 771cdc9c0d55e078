"""mixveil: train one model on images that no party may show.

Names are imported when they are first used, so that `import mixveil` is quick.

>>> import mixveil
>>> mixveil.Singular().sigma is None  # not calibrated yet
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixveil.attacks import attacks as attacks
    from mixveil.calibration import calibrate as calibrate
    from mixveil.data import from_tensors as from_tensors
    from mixveil.data import open_data as open_data
    from mixveil.encoders import encoders as encoders
    from mixveil.encoders.identity import Identity as Identity
    from mixveil.encoders.mixup import Mixup as Mixup
    from mixveil.encoders.singular import Singular as Singular
    from mixveil.errors import MixveilError as MixveilError
    from mixveil.keys import SecureStream as SecureStream
    from mixveil.keys import SeededStream as SeededStream
    from mixveil.release import read_release as read_release
    from mixveil.release import verify_release as verify_release
    from mixveil.release import write_release as write_release
    from mixveil.screen import Screen as Screen
    from mixveil.transforms import BatchTransform as BatchTransform
    from mixveil.types import Fact as Fact
    from mixveil.types import Facts as Facts
    from mixveil.types import Guarantee as Guarantee
    from mixveil.types import Mu as Mu
    from mixveil.types import Tau as Tau

_HOMES = {
    "attacks": "mixveil.attacks",
    "calibrate": "mixveil.calibration",
    "from_tensors": "mixveil.data",
    "open_data": "mixveil.data",
    "encoders": "mixveil.encoders",
    "Identity": "mixveil.encoders.identity",
    "Mixup": "mixveil.encoders.mixup",
    "Singular": "mixveil.encoders.singular",
    "MixveilError": "mixveil.errors",
    "SecureStream": "mixveil.keys",
    "SeededStream": "mixveil.keys",
    "read_release": "mixveil.release",
    "verify_release": "mixveil.release",
    "write_release": "mixveil.release",
    "Screen": "mixveil.screen",
    "BatchTransform": "mixveil.transforms",
    "Fact": "mixveil.types",
    "Facts": "mixveil.types",
    "Guarantee": "mixveil.types",
    "Mu": "mixveil.types",
    "Tau": "mixveil.types",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mixveil' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
