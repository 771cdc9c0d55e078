"""`mixveil keys`, `serve`, `join`, `run`, `status` and `approve`, as they are typed: without a network."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mixveil.core import files
from mixveil.features import projection_file
from mixveil.federated import roster
from mixveil.federated.jobs.messages import Message
from mixveil.federated.jobs.party import Party
from mixveil.releases.ledger import Ledger
from tests.command import Run, refused
from tests.federated.here import a_party, a_projection

TASK = {"version": 1, "job": "ab" * 16, "name": "autumn", "method": "one-shot"}


def offered(party: Party, **more: Any) -> Any:
    about = {**TASK, "ask": "offer", "kind": "records", "projection": None, **more}
    return party.answer(Message(about)).about["state"]


def test_keys_of_a_server_and_of_a_party(run: Run, tmp_path: Path) -> None:
    made = run("keys", "server", "--host", "learn.example.org", "--out", "server", "--json")
    assert made.code == 0 and "learn.example.org" in made.json["hosts"]
    shown = run("keys", "server", "--host", "localhost", "--host", "127.0.0.1", "--out", "here").out
    assert "known as localhost, 127.0.0.1, ::1, until" in shown  # each once
    own = run("keys", "party", "north", "--out", "north")
    assert own.code == 0 and "give this to the coordinator" in own.out
    assert (tmp_path / "north" / "north.key").stat().st_mode & 0o777 == 0o600
    again = run("keys", "party", "north", "--out", "north")
    assert again.code == 2 and "exists already" in again.err
    for _ in range(2):  # a trial can be repeated in its folder
        made = run("keys", "trial", "a,b", "--out", "trial", "--json").json
        assert made["parties"] == ["a", "b"] and Path(made["folders"]["a"], "a.key").exists()
    other = run("keys", "trial", "a,c", "--out", "trial", "--json")
    assert other.code == 2 and other.json["error"]["type"] == "OutputExistsError"
    assert run("keys", "party", "../north", "--out", "x").code == 2 and not (tmp_path / "x").exists()


def test_a_roster_is_put_together_of_public_files(run: Run, tmp_path: Path) -> None:
    prints = {}
    for name in ("north", "south", "west"):
        made = run("keys", "roster-key", name, "--out", name, "--json").json
        prints[name] = made["fingerprint"]
        assert Path(made["private"]).stat().st_mode & 0o777 == 0o600 and made["public"] == f"{name}/{name}.roster"
    told = run("keys", "roster-key", "east", "--out", "north")  # beside other keys
    assert told.code == 0 and "north/east.roster.key stays here" in told.out
    public = [f"{name}/{name}.roster" for name in prints]
    made = run("keys", "roster", *public, "--out", "roster.json", "--json").json
    assert made["parties"] == prints and made["roster"] == "roster.json" and len(made["fingerprint"].split()) == 16
    told = run("keys", "roster", *public, "--out", "again.json")
    assert told.code == 0 and all(text in told.out for text in (*prints.values(), made["fingerprint"]))
    assert "never through the server" in told.out
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "roster.json").read_bytes()
    again = run("keys", "roster", *public, "--out", "roster.json")
    assert again.code == 2 and "exists already" in again.err
    few = run("keys", "roster", *public[:2], "--out", "few.json")
    assert few.code == 2 and "at least 3 parties" in few.err and not (tmp_path / "few.json").exists()
    assert run("keys", "roster", "north/north.roster.key", "--out", "few.json").code == 4
    for words in (("keys", "roster"), ("keys", "roster-key")):
        assert run(*words, "--help").code == 0
    assert "never from the server" in " ".join(run("keys", "roster", "--help").out.split())


# Approval


def test_nothing_waits(run: Run) -> None:
    assert "No job is waiting for your approval." in run("approve").out
    assert run("approve", "--json").json == {"waiting": []}
    assert run("approve", "autumn").code == 2


def test_a_certified_job_is_agreed_to_before_anything_is_made(run: Run, tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, approve=True, server="1A2B")
    assert offered(party) == "waiting" and not Ledger().entries()
    waits = run("approve", "--folder", "jobs-a", "--json")
    assert waits.json == {"waiting": [{"job": "autumn", "id": "ab" * 16, "question": "job"}]}
    assert "autumn (abababab) asks whether you take part" in run("approve", "--folder", "jobs-a").out
    shown = run("approve", "autumn", "--folder", "jobs-a", "--yes")
    text = " ".join(shown.out.split())
    assert shown.code == 0 and "Every record is 4-GDP" in text and "approved" in text and "for 1A2B" in text
    assert "cost μ = 0 so far, and 4 with this job, of a budget of 100" in text and not Ledger().entries()
    assert offered(party) == "ready" and len(Ledger().entries()) == 1
    (folder,) = tmp_path.glob("jobs-a/a/*/")
    assert not (folder / "audit").exists()  # no attack on the real data decided anything


def test_a_job_of_secure_sums_says_what_a_record_at_several_parties_costs(run: Run, tmp_path: Path) -> None:
    """Three figures: with honest parties, alone, and for a record that is in the sum several times."""
    keys = tmp_path / "keys"
    roster.write(tmp_path / "roster.json", roster.together([roster.make_key(keys, name) for name in "abc"]))
    own = {"roster": str(tmp_path / "roster.json"), "roster_key": str(keys / "a.roster.key"), "honest": 2}
    party = a_party(tmp_path, "a", 0, approve=True, **own)
    assert party.answer(Message({**TASK, "method": "rounds-secure", "ask": "hello", "you": "a"})).about
    text = " ".join(run("approve", "autumn", "--folder", "jobs-a", "--yes").out.split())
    assert "Every record is 4-GDP" in text and "Whatever the others do, it is 5.657-GDP." in text
    assert "with m such parties, yours among them, it is up to 4·m-GDP" in text


def test_what_is_not_certified_is_attacked_before_it_leaves(run: Run, tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, mu=None, tau=0.5, budget=None, allow="one-shot", approve=True)
    assert offered(party) == "waiting" and not Ledger().entries()
    first = run("approve", "ab", "--folder", "jobs-a", "--yes")
    assert first.code == 0 and "Nothing is certified" in first.out
    assert offered(party) == "waiting" and len(Ledger().entries()) == 1
    assert "asks whether its release may leave" in run("approve", "--folder", "jobs-a").out
    shown = run("approve", "ab", "--folder", "jobs-a", "--yes")
    assert shown.code == 0, shown.err
    (folder,) = tmp_path.glob("jobs-a/a/*/")
    assert (folder / "audit" / "report.html").exists() and "not certified" in shown.out and "lmmse" in shown.out
    assert json.loads((folder / "approved-records.json").read_text())["looked_at"] == "audit"
    assert offered(party) == "ready"


def test_who_says_no_lets_nothing_be_made(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    party = a_party(tmp_path, "a", 0, approve=True)
    offered(party)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    shown = run("approve", "autumn", "--folder", "jobs-a")
    assert shown.code == 0 and "not approved" in shown.out
    assert offered(party) == "waiting"
    no = run("approve", "autumn", "--folder", "jobs-a", "--refuse")
    assert no.code == 0 and "it cost nothing" in no.out and offered(party) == "refused"
    assert not Ledger().entries()


def test_a_job_that_is_under_way_can_be_refused(run: Run, tmp_path: Path) -> None:
    """So that its second step is not held back for ever."""
    path = a_projection(tmp_path)
    party = a_party(tmp_path, "a", 0, budget=5.0)
    digest = projection_file.read(path)[1]
    step = {**TASK, "method": "two-step", "ask": "offer", "kind": "statistics", "projection": digest}
    assert party.answer(Message(step, {"projection": path.read_bytes()})).about["state"] == "ready"
    other = {"job": "cd" * 16, "name": "winter", "ask": "hello"}
    assert offered(party, **other) == "refused"
    no = run("approve", "autumn", "--folder", "jobs-a", "--refuse")
    assert no.code == 0 and "stays in your ledger" in no.out
    assert offered(party, **other) == "ready"
    assert party.answer(Message({**step, "kind": "records"})).about["why"] == {"code": "owner-refused"}
    assert run("approve", "autumn", "--folder", "jobs-a", "--refuse").code == 2


def test_rounds_are_approved_as_what_they_are(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    party = a_party(tmp_path, "a", 0, allow="fedavg", budget=None, approve=True)
    extractor: dict[str, Any] = {"names": [], "stage": None, "mirror": False, "size": 224}
    asked = {"method": "fedavg", "kind": "updates", "extractor": extractor}
    assert offered(party, **asked) == "waiting" and not Ledger().entries()
    quick = run("approve", "autumn", "--folder", "jobs-a", "--yes")
    assert quick.code == 2 and "--yes" in quick.err and offered(party, **asked) == "waiting"
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    shown = run("approve", "autumn", "--folder", "jobs-a")
    assert "Nothing bounds what they show" in " ".join(shown.out.split())
    assert offered(party, **asked) == "ready"
    assert "updates" in run("ledger", "--json").out


def test_one_name_of_two_jobs_is_not_enough(run: Run, tmp_path: Path) -> None:
    party = a_party(tmp_path, "a", 0, approve=True)
    assert offered(party) == offered(party, job="cd" * 16) == "waiting"
    both = run("approve", "autumn", "--folder", "jobs-a", "--yes")
    assert both.code == 2 and "several jobs are called 'autumn'" in both.err
    assert run("approve", "cd", "--folder", "jobs-a", "--yes").code == 0
    assert offered(party) == "waiting" and offered(party, job="cd" * 16) == "ready"


# What is refused before anything is started


JOIN = ("join", "127.0.0.1:9", "--party", "a", "--insecure")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "mu (--mu"),
        (("--mu", 1), "say what they may cost a record in all (--budget)"),
        (("--mu", 3, "--budget", 2), "budget is 2"),
        (("--mu", 1, "--tau", 1), "mu (--mu"),
        (("--tau", 0.5), "releases for tau"),
        (("--mu", 1, "--budget", 5, "--allow", "all"), "allow must name"),
        (("--mu", 1, "--approve", "--allow", "fedavg", "--budget", 5), "no budget holds with fedavg"),
        (("--mu", 1, "--budget", 5, "--keys", "."), "--insecure"),
        (("--mu", 1, "--budget", 5), "127.0.0.1:9 does not answer"),
    ],
)
def test_a_party_that_cannot_join_is_told_why(run: Run, small: Path, words: tuple[object, ...], said: str) -> None:
    result = run(*JOIN, "--data", small, *words)
    assert result.code in (2, 5) and said in " ".join(result.err.split()), result.err


def test_a_party_without_data_is_told_now(run: Run) -> None:
    result = run(*JOIN, "--data", "nothing.npz", "--mu", 1, "--budget", 5)
    assert result.code == 2 and "nothing.npz" in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "server"), "--insecure"),
        (("serve", "server", "--insecure", "--host", "0.0.0.0"), "--insecure is for 127.0.0.1"),  # noqa: S104
        (("serve", "server", "--keys", "nowhere"), "has no ca.crt"),
        (("run", "one-shot", "server", "--job", "j"), "is not the folder of a server"),
        (("run", "one-shot", "server"), "--job"),
        (("status", "server"), "is not the folder of a server"),
    ],
)
def test_a_server_that_cannot_be_is_told_why(run: Run, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert result.code in (2, 5) and said in " ".join(result.err.split()), result.err
    assert not (tmp_path / "server" / "flower").exists()


def test_one_folder_has_one_server(run: Run, tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with files.alone(tmp_path / "server"):
        result = run("serve", "server", "--insecure")
        assert files.held_by(tmp_path / "server") == os.getpid()
    assert result.code == 5 and f"is in use, by the process {os.getpid()}" in result.err
    assert files.held_by(tmp_path / "server") is None


def test_a_number_that_a_dead_process_left_is_nobodys(run: Run, tmp_path: Path) -> None:
    """Another process may have it by now: it must not be told to end."""
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower.supernode import free_port

    link.prepared(tmp_path / "server", None, host="127.0.0.1", port=free_port(), insecure=True)
    folder = tmp_path / "server" / "jobs" / "autumn"
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps({**TASK, "projection": None}))
    (folder / "pid").write_text(f"{os.getpid()}\n")
    stopped = run("stop", "server", "autumn")
    assert stopped.code == 5 and "is not running" in stopped.err
    assert run("status", "server", "--json").json["jobs"][0]["state"] == "interrupted"


def test_a_party_joins_once(run: Run, small: Path, tmp_path: Path) -> None:
    own = tmp_path / "jobs" / "a"
    own.mkdir(parents=True)
    with files.alone(own):
        result = run(*JOIN, "--data", small, "--mu", 1, "--budget", 5, "--folder", "jobs")
    assert result.code == 5 and "is in use, by the process" in result.err


def test_labels_that_cannot_be_protected_are_said_now(run: Run, small: Path) -> None:
    words = ("--data", small, "--mu", 1, "--budget", 5, "--label-epsilon", 2)
    assert "--label-budget" in run(*JOIN, *words).err
    result = run(*JOIN, *words, "--label-budget", 4)
    assert result.code == 2 and "--classes" in result.err
    assert "does not answer" in run(*JOIN, *words, "--label-budget", 4, "--classes", "0,1,2").err


def test_what_is_no_certificate_is_said(run: Run, small: Path, tmp_path: Path) -> None:
    assert run("keys", "party", "a", "--out", "keys").code == 0
    (tmp_path / "keys" / "ca.crt").write_text("garbage")
    words = ("--party", "a", "--keys", "keys", "--data", small, "--mu", 1, "--budget", 5)
    result = run("join", "127.0.0.1:9", *words)
    assert result.code == 4 and "ca.crt is no certificate" in result.err
    address = run("join", "https://127.0.0.1:9", *words)
    assert address.code == 2 and "HOST:PORT" in address.err


def test_a_server_that_is_not_running_is_said(run: Run, tmp_path: Path) -> None:
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower.supernode import free_port

    link.prepared(tmp_path / "server", None, host="127.0.0.1", port=free_port(), insecure=True)
    asked = run("run", "one-shot", "server", "--job", "j")
    assert asked.code == 2 and "--parties" in asked.err
    words = ("run", "one-shot", "server", "--job", "j", "--parties", 2)
    result = run(*words, "--wait", 0.1)
    assert result.code == 5 and "waiting for the server" in result.err and "mixveil serve" in result.err
    default = run("run", "two-step", "server", "--job", "k", "--parties", 2, "--wait", 0.1)
    assert default.code == 5 and "photographs, which comes with mixveil" in default.err
    assert "photographs" not in result.err  # where a projection is not needed, none is taken
    unknown = run("run", "bogus", "server", "--job", "j", "--parties", 2)
    assert unknown.code == 2 and "method must be one of" in unknown.err
    missing = run(*words, "--projection", "nowhere.safetensors")
    assert missing.code == 2 and "nowhere.safetensors does not exist" in missing.err
    shown = run("status", "server")
    assert shown.code == 0 and "No job was started yet" in shown.out and "does not run" in shown.err
    assert run("stop", "server", "autumn").code == 2


def test_a_run_waits_for_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First there is no server; then it runs and does not listen yet; then it listens."""
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower import commands
    from mixveil.federated.transport.flower.supernode import free_port

    server, port, told = tmp_path / "server", free_port(), []
    link.prepared(server, None, host="127.0.0.1", port=port, insecure=True)
    with contextlib.ExitStack() as running:

        def come(seconds: float) -> None:
            if not commands.is_running(server):
                running.enter_context(files.alone(server))
            elif not commands._listens("127.0.0.1", port):
                running.enter_context(socket.create_server(("127.0.0.1", port)))

        monkeypatch.setattr("mixveil.federated.transport.flower.commands.time.sleep", come)
        commands.wait_for_server(server, 600.0, lambda: told.append("waiting"))
        assert told == ["waiting"] and commands.is_running(server)


@pytest.mark.parametrize("ended", [KeyboardInterrupt(), SystemExit(143)])
def test_who_ends_a_run_is_told_that_the_job_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: BaseException
) -> None:
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower import commands
    from mixveil.federated.transport.flower.supernode import free_port

    def end(seconds: float) -> None:
        raise ended

    server = tmp_path / "the server"
    link.prepared(server, None, host="127.0.0.1", port=free_port(), insecure=True)
    monkeypatch.setattr(commands, "wait_for_server", lambda *_: None)
    monkeypatch.setattr(commands, "start", lambda *_: "1")
    monkeypatch.setattr("mixveil.cli.run.time.sleep", end)
    result = run("run", "one-shot", server, "--job", "autumn", "--parties", 2, "--json")
    assert result.code in (130, 143)
    assert f"the job goes on: `mixveil stop '{server}' autumn` ends it" in result.err
    assert "does not end it" in " ".join(run("run", "--help").out.split())


@pytest.mark.parametrize("there", [False, True])
def test_who_has_no_key_is_told_a_command_that_makes_one(run: Run, small: Path, tmp_path: Path, there: bool) -> None:
    """A folder that exists is refused by `keys party`."""
    keys = tmp_path / "my keys"
    if there:
        keys.mkdir()
    words = ("--party", "north", "--keys", keys, "--data", small, "--mu", 1, "--budget", 5)
    told = " ".join(run("join", "127.0.0.1:9", *words).err.split())
    assert "north.key is not there" in told
    command = shlex.split(told.split("`")[1])
    assert command[0] == "mixveil" and run(*command[1:]).code == 0
    assert (tmp_path / "NEW" if there else keys).joinpath("north.key").is_file()


OLD = Path(__file__).parents[1] / "federated" / "jobs" / "stored"


def test_jobs_of_an_earlier_version_are_shown(run: Run, tmp_path: Path) -> None:
    """Their outcome has texts where there are notes now."""
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower.supernode import free_port

    link.prepared(tmp_path / "server", None, host="127.0.0.1", port=free_port(), insecure=True)
    shutil.copytree(OLD / "server-jobs", tmp_path / "server" / "jobs", dirs_exist_ok=True)
    jobs = {job["job"]: job for job in run("status", "server", "--json").json["jobs"]}
    assert jobs["done"]["state"] == "done" and jobs["failed"]["state"] == "failed"
    shown = run("status", "server")
    text = " ".join(shown.out.split())
    assert shown.code == 0 and jobs["failed"]["why"] in text and jobs["failed"]["parties"]["c"]["why"] in text


def test_coordinators_need_no_torch(tmp_path: Path) -> None:
    """`status`, and what `run` checks before it starts a job, a projection included."""
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower.supernode import free_port

    link.prepared(tmp_path / "server", None, host="127.0.0.1", port=free_port(), insecure=True)
    public = str(a_projection(tmp_path))
    words = ["run", "two-step", "server", "--job", "j", "--parties", "2", "--wait", "0.1", "--projection", public]
    for command in (["status", "server"], words, ["serve", "server", "--insecure", "--host", "0.0.0.0"]):  # noqa: S104
        script = f"import sys; sys.argv = {['mixveil', *command]!r}\nfrom mixveil.cli.main import main\n"
        script += "try: main()\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == "False", (command, done.stdout, done.stderr)


def test_a_method_and_a_server_that_are_given_the_wrong_way_round(run: Run) -> None:
    told = run("run", "server", "one-shot", "--job", "a", "--json")
    assert refused(told, "ArgumentError") and "mixveil run one-shot server" in told.json["error"]["message"]


def test_a_coordinator_is_asked_before_parties_pay_for_pixels(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower.supernode import free_port

    link.prepared(tmp_path / "server", None, host="127.0.0.1", port=free_port(), insecure=True)
    words = ("run", "one-shot", "server", "--job", "j", "--parties", 2, "--wait", 0.1)
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda text, err: asked.append(text))  # no
    assert run(*words).code == 5 and not asked  # in a script no one can answer
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    told = run(*words)
    assert told.code == 130 and len(asked) == 1 and "waiting for the server" not in told.err
    assert run(*words, "--projection", "photographs").code == 5 and len(asked) == 1


def test_a_server_says_when_it_listens(tmp_path: Path) -> None:
    from mixveil.federated.transport import link
    from mixveil.federated.transport.flower import commands
    from mixveil.federated.transport.flower.supernode import free_port

    port, told = free_port(), threading.Event()
    link.prepared(tmp_path / "server", None, host="127.0.0.1", port=port, insecure=True)
    waiting = commands.when_it_listens(tmp_path / "server", told.set)
    assert waiting.daemon and not told.wait(0.7)  # nothing listens yet
    with socket.create_server(("127.0.0.1", port)):
        assert told.wait(60)
    waiting.join(60)
    assert not waiting.is_alive()
