"""The data check as a whole job: what is in data, and all that is wrong with them, at once."""

from __future__ import annotations

from dataclasses import replace

from mixveil.core.errors import DataError, DataFormatError, MixveilError, PixelError, UnreadableImageError
from mixveil.core.watching import Watch, unwatched
from mixveil.core.wording.notes import Note
from mixveil.data.check import Check, check
from mixveil.data.images import Images
from mixveil.data.opening import DataOptions, DataSpec


def check_data(
    data: DataSpec, options: DataOptions | None = None, watch: Watch = unwatched
) -> tuple[Check, MixveilError | None]:
    """Check data as their owner names them. Where a job would refuse them, also the error by which it would: the check
    is then of the rows that can be used, and names all faults of the others at once."""
    options = options or DataOptions()

    def checked(images: Images) -> Check:
        with watch("reading", len(images)) as step:
            return check(images, step, options.depth)

    try:
        return checked(options.open(data)), None
    except (UnreadableImageError, DataFormatError, PixelError) as error:
        faults: list[Note] = []
        try:
            images = options.open(data, faults)
        except DataError:
            raise error from None
        if not faults:
            raise
        return replace(checked(images), faults=tuple(faults)), error
