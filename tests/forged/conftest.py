"""Honest files to forge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mixveil.core.randomness import SecureStream
from mixveil.core.types import Encoder, Fact, Guarantee, Mu, Tau
from mixveil.encoders.gaussian import Gaussian
from mixveil.encoders.identity import Identity
from mixveil.encoders.laplace import Laplace
from mixveil.encoders.mixup import Mixup
from mixveil.encoders.singular import Singular
from mixveil.features import projection_file, projection_fit
from mixveil.features.projection import Projected
from mixveil.learn import rounds
from mixveil.learn.class_means import directions
from mixveil.learn.model import write_model
from mixveil.learn.training import opened, train
from mixveil.releases.reading import read_release
from mixveil.releases.records import write_release
from mixveil.releases.sums import write_residuals, write_statistics
from tests.forged.honest import WEIGHTS
from tests.made import blobs, features_of, images, range_facts, with_moments
from tests.sums import SETTINGS


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Releases of all kinds, statistics, a projection with and without means, and a model."""
    place = tmp_path_factory.mktemp("honest")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MIXVEIL_STATE", str(place / "state"))
        base = projection_fit.fit(features_of(blobs(60, 1)), WEIGHTS)
        digest = projection_file.write(place / "projection", base)
        rows = Projected(features_of(blobs(60, 2)), base)
        persons = replace(blobs(60, 2), units=tuple(str(i // 3) for i in range(60)))
        for name, own in (("statistics", rows), ("persons", Projected(features_of(persons), base))):
            write_statistics(place / name, own, digest, 1.0, party="north", stream=SecureStream())
        head = rounds.from_class_sums([read_release(place / "statistics")], SETTINGS).head
        asked = (head, rounds.head_digest(head), 0.1, 1.0)
        write_residuals(place / "residuals", rows, digest, *asked, party="north", stream=SecureStream())
        narrow = directions([read_release(place / "statistics")], base, digest)
        projection_file.write(place / "directions", narrow)
        data = images(20)
        facts = range_facts(data)
        known = with_moments(facts, energy=4.0, lambda_max=1.0).with_(size=Fact(0.2, "public"))
        kinds: list[tuple[Encoder, tuple[Guarantee, ...]]] = [
            Singular().calibrate(Mu(1.0), known),
            Singular().calibrate(Tau(0.5, "spectral"), known),
            Gaussian().calibrate(Mu(2.0), known),
            Laplace().calibrate(None, known),
            (Mixup(), ()),
            (Identity(), ()),
        ]
        for number, (made, stated) in enumerate(kinds):
            epsilon = 1.0 if number == 2 else None
            out = place / f"release-{number}"
            write_release(out, data, made, stated, party="north", stream=SecureStream(), label_epsilon=epsilon)
        write_model(place / "model", train(opened([place / "release-0"])), None, {})
        yield place
