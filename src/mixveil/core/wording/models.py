"""Sentences about trained models and what they show of the records behind them."""

from __future__ import annotations

WORDS: dict[str, str] = {
    "model-promises-nothing": "Nothing is promised: the model was trained on a release that promises nothing.",
    "model-mu": "An attacker who has the model, and all that was sent for it, learns of no {of} more than "
    "{mu:.4g}-GDP permits.",
    "model-record": "record",
    "model-unit": "unit (all rows of a person)",
    "model-record-of-one-party": "record of one party",
    "model-unit-of-one-party": "unit (all rows of a person) of one party",
    "model-mu-record-at-several": "A record that several of these {parties} parties have: up to {mu:.4g}-GDP.",
    "model-mu-unit-at-several": "A person whose records several of these {parties} parties have: up to {mu:.4g}-GDP.",
    "model-labels-shown": "Labels are not protected.",
    "model-labels-randomised": "Labels were randomised: the label of a {of} with ε = {epsilon:.4g} in all.",
    "model-labels-at-several": "The label of a record that several parties have: up to ε = {epsilon:.4g}.",
}
