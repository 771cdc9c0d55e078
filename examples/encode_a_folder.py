"""From images to a certified release in Python: encode, check, read.

    python examples/encode_a_folder.py OUT [DATA]

DATA is a folder with one subfolder a class, an .npz file, or a named set; by default scikit-learn's digits.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import mixveil


def main(out: Path, data: str = "digits") -> None:
    # For μ no record is looked at: the noise follows from the pixel range and the number of pixels. The release is
    # entered in the ledger of the state folder (MIXVEIL_STATE) before it is made.
    made = mixveil.encode(data, out, mu=1.0, party="example")
    for warning in made.warnings:
        print("warning:", warning)

    release = mixveil.read_release(out)  # sizes, hashes, dtypes, labels and claims are checked here
    batch = release.payload.take(torch.arange(4))
    print(f"{len(release.payload)} rows, certified: {release.certified}, a batch of {tuple(batch.x.shape)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
