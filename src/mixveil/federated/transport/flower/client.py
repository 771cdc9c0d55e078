"""The party's half of the Flower app: its settings are the node's configuration."""

from __future__ import annotations

import logging
import sys
from datetime import datetime

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from mixveil.core.errors import MixveilError
from mixveil.federated.jobs.messages import Parcel, printable
from mixveil.federated.jobs.party import FAILED, Party
from mixveil.federated.jobs.settings import Settings
from mixveil.federated.transport.flower.serialization import packed, unpacked

app = ClientApp()
_parties: dict[Settings, Party] = {}
_LINE = 1000  # characters of a line in the log


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Answer a parcel. Flower tells the server the text of an error that is raised here: none is."""
    return Message(packed(_answered(message, context)), reply_to=message)


def _answered(message: Message, context: Context) -> Parcel:
    try:
        settings = Settings.read(context.node_config)
        settings.check_bounded()
        party = _parties.setdefault(settings, Party(settings, say))
        return party.answer(unpacked(message.content))
    except MixveilError as error:
        say(f"failed: {error}")
    except Exception as error:
        say(f"failed: {error} ({type(error).__name__})")
    return Parcel({"state": "failed", "party": "", "reason": FAILED})


def say(text: str) -> None:
    """To the party's owner, who reads this process's log: one line, whatever a server put into it."""
    sys.stderr.write(f"{datetime.now().astimezone():%H:%M:%S} {printable(text[:_LINE])}\n")
    sys.stderr.flush()


class OneLine(logging.Filter):
    """The same for what Flower says: it repeats what a server answered."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(" ".join(record.getMessage().split())[:_LINE]), ()
        record.exc_info = record.exc_text = record.stack_info = None
        return True
