"""From images to a certified release in Python: calibrate, encode, check, read.

    python examples/encode_a_folder.py OUT [DATA]

DATA is a folder with one subfolder a class, an .npz file, or a named set; by default scikit-learn's digits.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import mixveil


def main(out: Path, data: str = "digits") -> None:
    images = mixveil.open_data(data)

    # For μ no record is looked at: the noise follows from the pixel range and the number of pixels.
    stream = mixveil.SecureStream()
    encoder, guarantees, warnings = mixveil.calibrate(mixveil.Singular(), mixveil.Mu(1.0), images, stream=stream)
    for warning in warnings:
        print("warning:", warning)

    mixveil.write_release(out, images, encoder, guarantees, party="example", stream=stream)

    release = mixveil.read_release(out)  # sizes, hashes, dtypes, labels and claims are checked here
    batch = release.payload.take(torch.arange(4))
    print(f"{len(release.payload)} rows, certified: {release.certified}, a batch of {tuple(batch.x.shape)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
