"""mixveil: train one model on images that no party may show.

Names are imported when they are first used, so that `import mixveil` is quick.

>>> import mixveil
>>> mixveil.Singular().alpha is None  # the target decides
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mixveil.core.door import open_door

if TYPE_CHECKING:
    from mixveil.attacks.catalogue import attacks as attacks
    from mixveil.core.errors import MixveilError as MixveilError
    from mixveil.core.randomness import SecureStream as SecureStream
    from mixveil.core.randomness import SeededStream as SeededStream
    from mixveil.core.types import Fact as Fact
    from mixveil.core.types import Facts as Facts
    from mixveil.core.types import Guarantee as Guarantee
    from mixveil.core.types import Mu as Mu
    from mixveil.core.types import Tau as Tau
    from mixveil.data.images import from_tensors as from_tensors
    from mixveil.data.opening import open_data as open_data
    from mixveil.encoders.batch_transform import BatchTransform as BatchTransform
    from mixveil.encoders.calibration import calibrate as calibrate
    from mixveil.encoders.catalogue import encoders as encoders
    from mixveil.encoders.identity import Identity as Identity
    from mixveil.encoders.mixup import Mixup as Mixup
    from mixveil.encoders.singular import Singular as Singular
    from mixveil.releases.reading import read_release as read_release
    from mixveil.releases.reading import verify_release as verify_release
    from mixveil.releases.records import write_release as write_release
    from mixveil.releases.screening import Screen as Screen

__all__ = open_door(
    __name__,
    {
        "attacks": "mixveil.attacks.catalogue",
        "calibrate": "mixveil.encoders.calibration",
        "from_tensors": "mixveil.data.images",
        "open_data": "mixveil.data.opening",
        "encoders": "mixveil.encoders.catalogue",
        "Identity": "mixveil.encoders.identity",
        "Mixup": "mixveil.encoders.mixup",
        "Singular": "mixveil.encoders.singular",
        "MixveilError": "mixveil.core.errors",
        "SecureStream": "mixveil.core.randomness",
        "SeededStream": "mixveil.core.randomness",
        "read_release": "mixveil.releases.reading",
        "verify_release": "mixveil.releases.reading",
        "write_release": "mixveil.releases.records",
        "Screen": "mixveil.releases.screening",
        "BatchTransform": "mixveil.encoders.batch_transform",
        "Fact": "mixveil.core.types",
        "Facts": "mixveil.core.types",
        "Guarantee": "mixveil.core.types",
        "Mu": "mixveil.core.types",
        "Tau": "mixveil.core.types",
    },
)
