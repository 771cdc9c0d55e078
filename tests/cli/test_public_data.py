"""Public data that hold private images are refused, whatever they look like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mixveil.releases.ledger import Ledger
from tests.command import Run, refused
from tests.data.made_dicom import write_dicom
from tests.notes import shows

ALONE = np.random.default_rng(5)


def folder(path: str, pixels: np.ndarray, colour: bool) -> None:
    """A folder of two classes with one PNG an image."""
    for number, image in enumerate(pixels):
        place = Path(path) / str(number % 2)
        place.mkdir(parents=True, exist_ok=True)
        shown = Image.fromarray(image)
        (shown.convert("RGB") if colour else shown).save(place / f"{number}.png")


@pytest.fixture
def pixels() -> np.ndarray:
    return ALONE.integers(0, 256, (24, 12, 12), dtype=np.uint8)


def refused_for(run: Run, count: int, *words: object) -> None:
    told = run(*words, "--json")
    assert refused(told, "PrivateFactError"), told
    message = told.json["error"]["message"]
    fitted = shows(message, "projection-fitted-on-these", shared=count, rows=24)
    assert fitted or f" {count} of these 24 images" in f" {message}", told
    assert not Path("x").exists() and not Ledger().entries()


def test_copies_are_found_in_other_files_and_by_other_options(run: Run, pixels: np.ndarray) -> None:
    strange = ALONE.integers(0, 256, (10, 12, 12), dtype=np.uint8)
    folder("mine", pixels, colour=False)
    folder("copies", np.concatenate([pixels[:7], strange]), colour=True)
    folder("apart", strange, colour=True)
    encode = ("encode", "mine", "--mu", 1, "--out", "x")
    for options in ((), ("--grey",), ("--size", 6), ("--size", 6, "--grey")):
        refused_for(run, 7, *encode, *options, "--public", "copies")
        refused_for(run, 7, "calibrate", "mine", *options, "--mu", "1,2", "--public", "copies")
        for target in (("--tau", 0.1), ("--encoder", "laplace")):  # their manifests would call the figures public
            refused_for(run, 7, "encode", "mine", *target, "--out", "x", *options, "--public", "copies")
        refused_for(run, 7, "calibrate", "mine", *options, "--tau", 0.1, "--public", "copies")
        assert run("calibrate", "mine", *options, "--mu", 1, "--public", "apart").code == 0
    told = run("encode", "mine", "--mu", 1, "--public", "apart", "--out", "x", "--json")
    assert told.json["certified"]


def test_dicom_and_its_copies_as_png_are_the_same_images(run: Run) -> None:
    """Twelve bits, which one file scales to twelve and the other to sixteen."""
    stored = ALONE.integers(0, 4096, (24, 12, 12), dtype=np.uint16)
    for number, image in enumerate(stored):
        for kind in ("dcm", "png"):
            (Path(kind) / str(number % 2)).mkdir(parents=True, exist_ok=True)
        write_dicom(Path("dcm") / str(number % 2) / f"{number}.dcm", image, BitsStored=12)
        Image.fromarray(image).save(Path("png") / str(number % 2) / f"{number}.png")
    how = ("--grey", "--depth", 12)
    refused_for(run, 24, "encode", "dcm", *how, "--public", "png", "--mu", 1, "--out", "x")
    refused_for(run, 24, "encode", "png", *how, "--public", "dcm", "--mu", 1, "--out", "x")
    assert run("encode", "dcm", "--grey", "--mu", 1, "--budget", 1, "--out", "x").code == 0
    again = run("encode", "png", *how, "--mu", 1, "--budget", 1, "--out", "y", "--json")
    assert refused(again, "BudgetError")


def test_channels_last_are_the_same_images(run: Run) -> None:
    stored = ALONE.integers(0, 256, (24, 3, 12, 12), dtype=np.uint8)
    labels = np.arange(24) % 2
    np.savez("first.npz", x=stored, y=labels)
    np.savez("last.npz", x=stored.transpose(0, 2, 3, 1), y=labels)
    assert run("encode", "first.npz", "--mu", 1, "--budget", 1, "--out", "x").code == 0
    again = run("encode", "last.npz", "--mu", 1, "--budget", 1, "--out", "y", "--json")
    assert refused(again, "BudgetError")
    assert run("prepare", "last.npz", "--backbone", "none", "--directions", 3, "--out", "last.projection").code == 0
    refused_by = run("encode", "first.npz", "--projection", "last.projection", "--mu", 1, "--out", "z", "--json")
    assert refused(refused_by, "PrivateFactError")


def test_a_copy_that_was_resized_cannot_be_known(run: Run, pixels: np.ndarray) -> None:
    folder("mine", pixels, colour=False)
    folder("small", np.stack([np.asarray(Image.fromarray(image).resize((6, 6))) for image in pixels]), colour=False)
    assert run("encode", "mine", "--mu", 1, "--size", 6, "--public", "small", "--out", "x").code == 0


def test_a_projection_that_was_fitted_on_private_images_certifies_nothing(run: Run, pixels: np.ndarray) -> None:
    strange = ALONE.integers(0, 256, (40, 12, 12), dtype=np.uint8)
    folder("mine", pixels, colour=False)
    folder("mixed", np.concatenate([pixels[:2], strange]), colour=False)
    bare = ("--backbone", "none", "--size", 4, "--out")
    assert run("prepare", "mixed", *bare, "mixed.projection").code == 0
    assert run("prepare", "mine", *bare, "all.projection").code == 0
    job = ("--mu", 1, "--size", 4, "--out", "x")
    refused_for(run, 2, "statistics", "mine", "--projection", "mixed.projection", *job)
    refused_for(run, 24, "statistics", "mine", "--projection", "all.projection", *job)
    refused_for(run, 2, "encode", "mine", "--projection", "mixed.projection", *job)
    labels = ("--tau", 0.1, "--label-epsilon", 1, "--classes", "0,1")  # labels are promised something too
    refused_for(run, 2, "encode", "mine", "--projection", "mixed.projection", *labels, *job[2:])
    # Directions that others' statistics found in it rest on the same images.
    folder("theirs", ALONE.integers(0, 256, (24, 12, 12), dtype=np.uint8), colour=False)
    theirs = ("--projection", "mixed.projection", "--mu", 1, "--size", 4, "--seed", 1, "--out", "sums")
    assert run("statistics", "theirs", *theirs).code == 0
    assert run("directions", "sums", "--projection", "mixed.projection", "--out", "task").code == 0
    made = len(Ledger().entries())
    told = run("encode", "mine", "--projection", "task", *job, "--json")
    assert refused(told, "PrivateFactError") and len(Ledger().entries()) == made
    # Nothing is certified by a seed. For τ the manifest would call the projection's clip norm public.
    seeded = run("statistics", "mine", "--projection", "mixed.projection", *job[:-1], "seeded", "--seed", 1)
    assert seeded.code == 0 and shows(seeded.err, "projection-fitted-on-these", shared=2, rows=24)
    made = len(Ledger().entries())
    tau = ("--tau", 0.1, "--size", 4, "--out", "loose", "--json")
    loose = run("encode", "mine", "--projection", "mixed.projection", *tau)
    assert refused(loose, "PrivateFactError") and len(Ledger().entries()) == made and not Path("loose").exists()


def test_a_projection_that_is_called_private_has_private_figures(run: Run, pixels: np.ndarray) -> None:
    folder("mine", pixels, colour=False)
    assert run("prepare", "mine", "--backbone", "none", "--size", 4, "--private", "--out", "own").code == 0
    made = run("encode", "mine", "--projection", "own", "--tau", 0.1, "--size", 4, "--out", "r", "--json")
    assert made.code == 0, made.err
    (stated,) = made.json["guarantees"]
    assert stated["assumes"]["clip"] == "private"
    assert "private-facts" in made.json["not_promised"] and run("verify", "r").code == 0


def test_whoever_prepares_is_told_of_images_that_were_released(run: Run, pixels: np.ndarray) -> None:
    folder("mine", pixels, colour=False)
    bare = ("--backbone", "none", "--size", 4, "--out")
    assert run("prepare", "mine", *bare, "first", "--json").json["warnings"] == [] and not Ledger().exists()
    assert run("encode", "mine", "--mu", 1, "--out", "r").code == 0
    told = run("prepare", "mine", *bare, "second")
    assert told.code == 0 and shows(told.err, "public-was-released", known=24, rows=24)
