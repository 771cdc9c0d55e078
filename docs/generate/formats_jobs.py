"""The folders of the data owner and of the coordinator, with names of files as the code has them."""

from __future__ import annotations

from pathlib import Path

from docs.generate.markdown import span, table

from mixveil.federated.jobs import approval, inbox, job, job_folder, last_update, sums_folder, sums_state
from mixveil.federated.jobs.sums_plan import name_of
from mixveil.learn.model import CARD, TENSORS
from mixveil.releases.ledger_file import LedgerFile

_HEAD = ["file", "what it holds"]


def state_folder() -> str:
    """The files of the state folder."""
    ledger = LedgerFile(Path("state"))
    rows = {
        ledger.path.name: "The ledger: SQLite, every row authenticated. It holds no image.",
        ledger.key_path.name: "The secret key by which the ledger knows images and authenticates rows.",
        ledger.mark.name: "The mark by which an older copy of the ledger is noticed.",
        "traces/ID.safetensors": "What was drawn for each row of a release, except the noise: partners and weights.",
        "rounds/PLAN-PARTY.json": "Rounds by files: the party's part in a plan, and which messages were begun.",
        "jobs/": "Jobs of servers: see below.",
    }
    about = (
        "`MIXVEIL_STATE` names the folder; else it is `mixveil/` in `XDG_STATE_HOME`, else `~/.local/state/mixveil`. "
        "Only its owner can read it. Never send any of it. Back it up whole, at one time."
    )
    return "\n\n".join(["### State folder", about, _table(rows)])


def kept_by_parties() -> str:
    """The files of a party's folder of one job."""
    rows = {
        "job.json": "Which job it is, and the party's settings for it.",
        "projection-DIGEST.safetensors": "The projection that the server named.",
        "statistics/, records/": "What was made, as releases.",
        f"{sums_folder.PLAN}": "Rounds of sums: the plan that the party agreed to.",
        f"{name_of(0)}/, {name_of(1)}/ …": "Rounds of sums: the messages, as releases.",
        f"{name_of(0)}.json …": "A mark for each message that was begun. It is written before the ledger's entry.",
        sums_folder.ALL_MADE: "A mark: the last message is made.",
        job_folder.UPDATES: "Weights in rounds: which records the rounds were entered with.",
        f"{last_update.FOLDER}/": "The last update that was sent, as a release, for the party's own audit.",
        "waiting-QUESTION, approved-QUESTION.json": "What the owner is asked, and what they agreed to. QUESTION is "
        + " or ".join(approval.QUESTIONS)
        + ".",
        f"{approval.REFUSED}, {approval.ENDED}, {approval.ENTERED}": "Marks: the owner said no; the server ended the "
        "job; something of it is in the ledger.",
        "audit/": "The audit that the owner was shown.",
        f"model/{TENSORS}, model/{CARD}": "The model that came back. Further ones are model-2/, model-3/ …",
    }
    about = "`jobs/PARTY/JOB-ID/` in the state folder, or in the folder that `mixveil join --folder` names."
    return "\n\n".join(["### Folder of a job, at a party", about, _table(rows)])


def kept_by_servers() -> str:
    """The files of a server's folder of one job."""
    rows = {
        "job.json": "The job's id and all that the coordinator asked for.",
        "projection.safetensors": "The projection of the job.",
        "directions.safetensors": "The projection after the first of two steps.",
        "incoming/": "What is still arriving.",
        ", ".join(f"{kind}/PARTY/" for kind in inbox.PAYLOADS if kind != "sums"): "Releases that arrived and passed "
        "every check.",
        f"{name_of(0)}/PARTY/ …": "Rounds of sums: the messages that arrived.",
        sums_state.FILE: "Rounds of sums: what was learnt so far.",
        "rounds.safetensors": "Weights in rounds: the mean weights.",
        "set-aside/": "Releases that do not belong there. Their parties may send others.",
        job.EVENTS: "A line of JSON an event: `time`, `party`, `code`, `figures`.",
        job.PROGRESS: "What each party is doing.",
        job.OUTCOME: "How it ended: `ok`, `why`, `model`, and each party's state.",
        f"model/{TENSORS}, model/{CARD}": "The model. Further ones are model-2/, model-3/ …",
    }
    return "\n\n".join(["### Folder of a job, at the server", "`SERVER/jobs/JOB/`.", _table(rows)])


def _table(rows: dict[str, str]) -> str:
    return table(_HEAD, [[", ".join(span(name) for name in names.split(", ")), words] for names, words in rows.items()])
