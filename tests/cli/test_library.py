"""Whole jobs in Python, the doors that lead to them, and what quick commands leave unloaded."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch

import mixveil
from mixveil.cli.main import VERBS, _loaded
from mixveil.core.errors import ArgumentError, LabelError, MismatchError
from mixveil.core.wording.notes import Note
from mixveil.data.opening import DataOptions
from mixveil.releases.ledger_file import LedgerFile
from tests.command import Run


def tensors(rows: int = 40, seed: int = 0, **named: Any) -> Any:
    x = mixveil.SeededStream(seed).uniform(rows, 1, 4, 4).float()
    return mixveil.from_tensors(x, torch.arange(rows) % 2, **named)


def test_a_release_from_tensors_with_units_and_names(tmp_path: Path) -> None:
    data = tensors(classes=("well", "ill"), units=[f"p{i // 4}" for i in range(40)])
    told: list[Note] = []
    made = mixveil.encode(data, tmp_path / "r", mu=1.0, label_epsilon=2.0, party="north", warn=told.append)
    assert made.manifest.certified and made.manifest.classes == ("well", "ill") and made.trace.exists()
    assert [of.code for of in told] == [of.code for of in made.warnings] == ["classes-drowned"]
    assert made.standing.spent.unit == "unit" and made.standing.spent.most == pytest.approx(1)
    assert mixveil.verify(str(tmp_path / "r")).stated == made.manifest
    found = mixveil.audit([tmp_path / "r"], data, attacks=["labels", "prior"])
    page = mixveil.write_report(tmp_path / "a", found)
    assert page.exists() and {row.attack for row in found.audit.figures} == {"labels", "prior"}
    model = mixveil.train([tmp_path / "r"], tmp_path / "m", test=tensors(seed=1, classes=("well", "ill")))
    assert model is not None and model.tested is not None
    named = mixveil.predict(tmp_path / "m", tensors(seed=1, classes=("well", "ill")))
    assert named.accuracy == model.tested["accuracy"] and set(named.classes) <= {"well", "ill"}


@pytest.mark.parametrize("verb", ["audit", "calibrate", "encode", "prepare", "simulate", "statistics", "train"])
def test_the_options_of_a_verb_are_arguments_of_its_function(verb: str) -> None:
    options = inspect.signature(getattr(import_module(f"mixveil.cli.{VERBS[verb].module}"), verb)).parameters
    function = getattr(mixveil, verb)
    function = getattr(function, verb) if inspect.ismodule(function) else function  # `mixveil.audit` is a room, too
    arguments = inspect.signature(function).parameters
    own = options.keys() - {field.name for field in fields(DataOptions)} - {"as_json", "out_dir"}
    assert len(own) > 5 and own <= arguments.keys()
    texts = {"mu"} if verb == "simulate" else set()  # "2" and 2.0
    assert all(options[name].default == arguments[name].default for name in own - texts)


def test_data_are_checked_before_they_are_used() -> None:
    found, refused = mixveil.check_data(tensors(classes=("well", "ill")))
    assert found.rows == 40 and [item.rows for item in found.classes] == [20, 20] and refused is None
    assert found.faults == () and mixveil.Laplace().name == "laplace"


def test_a_path_may_be_a_text_and_a_target_must_be_one(tmp_path: Path) -> None:
    mixveil.encode(tensors(), tmp_path / "r", mu=1.0)
    release = mixveil.read_release(str(tmp_path / "r"))
    assert len(release) == 40 and release[0][0].shape == (1, 4, 4) and len(repr(release)) < 200
    mixveil.prepare(tensors(seed=2), tmp_path / "p", backbone="none")
    mixveil.statistics(tensors(classes=("a", "b")), tmp_path / "s", projection=tmp_path / "p", mu=1.0)
    with pytest.raises(MismatchError, match="sums, not records"):
        mixveil.read_release(tmp_path / "s")[0]
    alone = [mixveil.audit(given, tensors(), attacks=["labels"]) for given in (str(tmp_path / "r"), tmp_path / "r")]
    assert [found.audit.of for found in alone] == [40, 40]
    assert mixveil.train(tmp_path / "r", tmp_path / "m") is not None
    number: Any = 1.0
    with pytest.raises(ArgumentError, match=r"Mu\(…\) or Tau\(…\)"):
        mixveil.Singular().calibrate(number, mixveil.Facts({}))
    with pytest.raises(ArgumentError, match="data must be"):
        mixveil.calibrate(np.zeros((2, 1, 4, 4)), mu=1.0)  # type: ignore[arg-type]


def test_what_warns_can_stop_a_release_before_it_is_entered(tmp_path: Path) -> None:
    def stop(told: Note) -> None:
        raise ArgumentError(told.code)

    with pytest.raises(ArgumentError, match="classes-drowned"):
        mixveil.encode(tensors(), tmp_path / "r", mu=1.0, warn=stop)
    assert not mixveil.Ledger().entries() and not (tmp_path / "r").exists()


def test_the_ledger_is_opened_once_a_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    read: list[Path] = []
    new, key = LedgerFile.__init__, LedgerFile._read_key

    def opened(self: LedgerFile, folder: Path) -> None:
        made.append(folder)
        new(self, folder)

    def keyed(self: LedgerFile) -> bytes:
        read.append(self.folder)
        return key(self)

    monkeypatch.setattr(LedgerFile, "__init__", opened)
    monkeypatch.setattr(LedgerFile, "_read_key", keyed)
    mixveil.encode(tensors(), tmp_path / "r", mu=1.0, label_epsilon=2.0, options=DataOptions(classes="0,1"))
    assert len(made) == len(read) == 1


def test_a_room_and_its_function_share_a_name() -> None:
    import mixveil.attacks.records
    import mixveil.audit.auditing
    import mixveil.encoders.singular

    for _ in range(2):  # after its modules are imported too
        assert "lmmse" in mixveil.attacks() and "singular" in mixveil.encoders()
        assert callable(mixveil.audit) and mixveil.audit.auditing.audit is not mixveil.audit  # type: ignore[attr-defined]
        with pytest.raises(ArgumentError, match="releases"):
            mixveil.audit([], tensors())


def test_data_options_go_with_what_they_can_change(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 1, 2, 2), np.float32), y=np.arange(4) % 2, who=np.arange(4))
    (tmp_path / "names.txt").write_text("0\n1\n\n2\n")
    options = DataOptions(unit="who", classes=str(tmp_path / "names.txt"))
    data = options.open(tmp_path / "d.npz")
    assert data.classes == ("0", "1", "2") and data.declared and data.units == ("0", "1", "2", "3")
    assert options.for_others.open(str(tmp_path / "d.npz")).units is None
    assert DataOptions(classes=["1", "0"]).open(tensors()).classes == ("1", "0")
    with pytest.raises(ArgumentError, match="grey cannot"):
        DataOptions(grey=True).open(tensors())
    with pytest.raises(LabelError):
        DataOptions(classes="a,b").open(tensors())
    for wrong in ({"size": 0}, {"depth": 17}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            DataOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_is_where_the_list_says_and_helps_with_its_arguments(name: str, run: Run) -> None:
    verb = _loaded(name, VERBS[name])
    assert verb.name == name and verb.help
    shown = " ".join(run(name, "--help").out.split())
    for parameter in verb.params:
        if parameter.param_type_name == "argument":
            words = str(getattr(parameter, "help", "")).split()[:3]
            assert words and " ".join(words) in shown, parameter.name


@pytest.mark.parametrize("name", VERBS)
def test_help_is_wrapped_by_the_terminal_and_not_by_the_source(name: str) -> None:
    verb = _loaded(name, VERBS[name])
    verbs = [*verb.commands.values()] if isinstance(verb, click.Group) else [verb]
    assert verbs and not [own.name for own in verbs if "\n" in (own.help or "").replace("\n\n", "")]
    assert not isinstance(verb, click.Group) or not verb.params  # the root completes for all


@pytest.mark.parametrize("words", [["--help"], ["encode", "--help"], ["ledger"], ["--version"]], ids=" ".join)
def test_quick_commands_do_not_load_torch(words: list[str], tmp_path: Path) -> None:
    code = (
        "import sys; from mixveil.cli.main import main\n"
        f"sys.argv = ['mixveil', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit as stopped:\n    assert not stopped.code\n"
        "print(sorted({'torch', 'sklearn', 'PIL', 'flwr'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("wrong", [{"mu": True}, {"mu": "1"}, {"mu": 1.0, "label_epsilon": True}])
def test_what_is_no_number_costs_nothing(tmp_path: Path, wrong: dict[str, Any]) -> None:
    data = tensors(classes=("well", "ill"))
    with pytest.raises((ArgumentError, TypeError)):
        mixveil.encode(data, tmp_path / "r", **wrong)
    assert mixveil.Ledger().entries() == [] and not (tmp_path / "r").exists()


def test_numbers_of_other_libraries_are_numbers(tmp_path: Path) -> None:
    data = tensors(classes=("well", "ill"))
    given: dict[str, Any] = {"mu": np.float32(1), "label_epsilon": torch.tensor(2.0)}
    made = mixveil.encode(data, tmp_path / "r", **given)
    assert type(made.manifest.mu) is float and type(made.manifest.label_epsilon) is float
    assert mixveil.verify(tmp_path / "r").stated == made.manifest


def test_a_trace_lies_with_its_ledger(tmp_path: Path) -> None:
    """Else the ledger of the state folder would take itself for an older copy, and refuse all that follows."""
    made = mixveil.encode(tensors(), tmp_path / "r", mu=1.0, ledger=mixveil.Ledger(tmp_path / "other"))
    assert made.trace.is_relative_to(tmp_path / "other")
    assert mixveil.encode(tensors(), tmp_path / "s", mu=1.0).manifest.certified
    found = mixveil.audit([tmp_path / "r"], tensors(), attacks=["labels"], ledger=mixveil.Ledger(tmp_path / "other"))
    assert found.audit.view.traces is not None


def test_data_are_named_or_open(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="data"):
        mixveil.encode(tensors().take(torch.arange(3)), tmp_path / "r", mu=1.0)
    assert tensors(units=[row // 2 for row in range(40)]).units[:3] == ("0", "0", "1")
