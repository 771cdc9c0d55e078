"""The party's half of the Flower app: its settings are the node's configuration."""

from __future__ import annotations

import sys
from datetime import datetime

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from mixveil.errors import MixveilError
from mixveil.federated.flower.wire import packed, unpacked
from mixveil.federated.parcel import Parcel
from mixveil.federated.party import FAILED, Party
from mixveil.federated.settings import Settings

app = ClientApp()
_parties: dict[Settings, Party] = {}


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
    """To the party's owner, who reads this process's log."""
    sys.stderr.write(f"{datetime.now().astimezone():%H:%M:%S} {text}\n")
    sys.stderr.flush()
