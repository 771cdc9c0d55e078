"""The party's half of the Flower app: its settings are the node's configuration."""

from __future__ import annotations

import logging
import sys
from datetime import datetime

from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp

from mixveil.core.wording.notes import Note, note
from mixveil.federated.jobs.messages import Message, printable, reason
from mixveil.federated.jobs.party import Party
from mixveil.federated.jobs.party_config import PartyConfig
from mixveil.federated.transport.flower.serialization import packed, unpacked

app = ClientApp()
_parties: dict[PartyConfig, Party] = {}
_LINE = 1000  # characters of a line in the log


@app.query()
def answer(message: FlowerMessage, context: Context) -> FlowerMessage:
    """Answer a message. Flower tells the server the text of an error that is raised here: none is."""
    return FlowerMessage(packed(_answered(message, context)), reply_to=message)


def _answered(message: FlowerMessage, context: Context) -> Message:
    try:
        config = PartyConfig.read(context.node_config)
        config.check_bounded()
        party = _parties.setdefault(config, Party(config, log))
        return party.answer(unpacked(message.content))
    except Exception as error:
        log(reason(error, "not-answered"))
    return Message({"state": "failed", "party": "", "why": note("not-made").plain()})


def log(event: Note) -> None:
    """Tell the party's owner, in this process's log: one line, whatever a server put into it."""
    sys.stderr.write(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} {printable(str(event)[:_LINE])}\n")
    sys.stderr.flush()


class OneLine(logging.Filter):
    """The same for what Flower says: it repeats what a server answered."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(" ".join(record.getMessage().split())[:_LINE]), ()
        record.exc_info = record.exc_text = record.stack_info = None
        return True
