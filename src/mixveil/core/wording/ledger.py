"""Sentences about the ledger: what was spent, and what an owner should know before anything is released."""

from __future__ import annotations

WORDS: dict[str, str] = {
    # What some records have spent.
    "ledger-no-release": "Your ledger has no release of {whose}.",
    "ledger-unbounded": "Your ledger has {releases:n release} of {whose}, and some promise nothing ({names}): no μ "
    "bounds what a recipient of all of them learns.",
    "ledger-spent": "Your ledger has {releases:n release} of {whose}: together a {unit} is {mu:.4g}-GDP{left}; "
    "{labels}.",
    "with-one-more": "{spent} With one more at this μ it would be {mu:.4g}.",
    "resting-on-others": "{spent} Secure sums are counted as covered by the noise of as many honest parties as was "
    "agreed: if fewer are honest, it is more.",
    "these-records": "these records",
    "all-records": "all its records",
    "with-reserved": ", with μ = {mu:.4g} that is reserved{left}",
    "no-budget": "",
    "budget-left": "; of a budget of {budget:g} there is room for one more release of up to μ = {left:.4g}",
    "budget-left-for-several": "; of a budget of {budget:g} there is room for one more release of up to μ = "
    "{left:.4g}, or for {more:n release} of μ = 1",
    "budget-used-up": "; the budget of {budget:g} is used up",
    "budget-exceeded": ", beyond the budget of {budget:g}",
    "labels-shown-before": "labels are shown",
    "labels-covered-before": "μ covers labels too",
    "labels-partly-covered": "{labels} beside what μ covers",
    "ledger-labels-of-unit": "the labels of a {unit} together are {epsilon:.4g}-DP",
    "label-of-record": "a record's label is {epsilon:.4g}-DP",
    # What all releases cost together.
    "total-unbounded": "Where a server asks, everything counts, and something promises nothing: no budget holds there.",
    "total-spent": "Where a server asks, everything counts: μ = {mu:.4g} of {releases:n release}; {labels}.",
    "total-spent-with-refused": "Where a server asks, everything counts: μ = {mu:.4g} of {releases:n release}, and of "
    "releases that were refused because a record had spent its budget; {labels}.",
    "ledger-reserved": "Reserved: μ = {mu:.4g} for {plan}. It counts as spent in all these figures.",
    # What an owner should know before something is released.
    "copies-in-data": "{rows:n row holds|rows hold} an image that another row holds too (see `mixveil data check`): "
    "the guarantee covers one row, or the rows that you named as one person's; it does not cover copies under other "
    "names",
    "public-was-released": "of {rows:n image}, {known:n is a record of a release|are records of releases} in your "
    "ledger: are these data public? A projection is sent to all parties, and shows what it was fitted on without any "
    "noise",
    "labels-were-shown": "an earlier release shows the labels of these records as they are: randomising them now "
    "protects nothing from a recipient of that release",
    "statistics-not-in-ledger": "none of the statistics that found these directions are in your ledger: if you sent "
    "any, their cost adds up",
    "projection-fitted-on-these": "{path} was fitted on images that are among these ({shared:,} of {rows:,}), and is "
    "not public for them",
    "private-projection": "the projection holds the mean and the covariance of private images: send it only if you "
    "may show those. Your ledger counts it as a release of them that promises nothing",
}
