"""Sentences about jobs between machines: what happens, why a party is out, why a job ended; and about simulations."""

from __future__ import annotations

REFUSED: dict[str, str] = {
    "no-reason-given": "It gave no reason that this version knows.",
    "not-made": "It could not be made. The party's own log says why.",
    "over-budget": "The party's budget does not allow it.",
    "owner-refused": "The data owner refused.",
    "other-name": "The server knows the party's key as {known_as!r}, but the party joined as {party!r}.",
    "method-not-allowed": "{party} does not take part in {method}.",
    "unknown-question": "The server asked something that this version does not answer.",
    "wrong-step": "{method} sends {kinds}, and something else was asked for.",
    "other-job": "The id belongs to another job.",
    "other-server": "The id belongs to a job of another server.",
    "settings-changed": "The party's settings differ from those that this job began with.",
    "too-many-waiting": "{count:n job waits|jobs wait} for the data owner already.",
    "projection-missing": "Class sums need a projection, and none was sent.",
    "projections-exhausted": "This job has all its projections already.",
    "projection-too-large": "The projection has {bytes:,} bytes; the party accepts {most:,}.",
    "projection-other": "The projection that was sent is not the one that was named.",
    "projection-unreadable": "What was sent is not a projection.",
    "no-statistics-sent": "The party sent no class sums for this job.",
    "directions-not-own": "The directions were not found from the party's class sums.",
    "plan-not-taken": "The plan of the rounds is not one that the party agrees to.",
    "other-plan": "The plan of the rounds is not the one that this job began with.",
    "beyond-plan": "The message is beyond the plan of the rounds.",
    "out-of-order": "A later message was made already.",
    "head-missing": "Residual sums need a head, and none was sent.",
    "head-too-early": "The first message has class sums, and a head was sent for it.",
    "head-not-taken": "The head is not one that the party can use.",
    "other-head": "This message was made with another head.",
    "message-used-up": "The message was begun and lost; it is not made twice.",
    "no-roster": "The party has no roster for secure sums.",
    "attempt-refused": "The attempt at a secure sum is not one that the party accepts.",
    "not-offered": "The party did not offer this.",
    "no-such-file": "The release has no such file.",
    "model-incomplete": "A model is a card and its tensors; something else was sent.",
    "model-unreadable": "What was sent is not a model.",
    "took-no-part": "The party took no part in this job.",
    "models-too-large": "The models of one job may have {most:,} bytes; the party holds {bytes:,} already.",
    "too-many-models": "The party holds {most:n model} of this job already.",
    "needs-mu": "The method is certified, and the party has no μ.",
    "images-too-large": "Features of images of {size} pixels were asked for; the party computes up to {most}.",
    "other-weights": "The party's weights of {extractor} are not those of the projection.",
    "other-width": "{extractor} has {features:,} features; the projection takes {inputs:,}.",
    "features-too-large": "{features:,} features of every image are more than the party computes for a server.",
    "other-app": "The server's app is not the installed one: install the same mixveil on both machines.",
    "not-a-query": "A party answers queries only.",
    "not-a-message": "What was sent is not a message.",
    "message-lost": "The link lost a message.",
    "message-refused": "The party did not accept the message.",
}
"""Why a party does not do what a server asks. A party may send these codes to the server, and no others."""

TOO_FEW: dict[str, str] = {
    "too-few-agreed": "{count:n party|parties} agreed to take part, {needed} needed: nothing was made.",
    "too-few-still-agree": "{count:n party still agrees|parties still agree} to take part, {needed} needed: nothing "
    "more was made.",
    "too-few-sent": "{count:n party|parties} sent {kind}, {needed} needed.",
    "too-few-agree-on-data": "{count:n party|parties} sent {kind} of the same classes, shapes and features, {needed} "
    "needed.",
    "too-few-in-round": "{count:n party|parties} answered in round {number}, {needed} needed.",
}
"""Why a job ended: fewer parties took part than it needs."""

ENDED: dict[str, str] = {
    **TOO_FEW,
    "no-majority": "{first} and {second} have different classes, shapes or features, and neither side is larger. "
    "Remove the {kind} of one side from the job's folder, and start the job again.",
    "set-too-small": "{count:n party is|parties are} left for a secure sum, {needed} needed: by their own rules the "
    "parties sum with no fewer.",
    "no-sum": "No attempt at the secure sum of message {number} succeeded.",
    "left-out": "The others went on without this party.",
    "nothing-learnt": "No model can be computed from what was sent ({error}).",
    "server-error": "The server could not go on ({error}).",
}
"""Why a job ended without a model. A server may send these codes to its parties, and no others."""

REJECTED: dict[str, str] = {
    "check-failed": "{detail} ({error})",
    "server-failed": "The server failed: {detail} ({error})",
    "signed-as-another": "The release names {named!r} as its party, and came from {party}.",
    "seeded-noise": "Its noise came from a seeded stream, which is for experiments only.",
    "too-many-classes": "It has {classes:n class|classes}; a job takes at most {most:,}.",
    "too-many-bytes": "It has {bytes:,} bytes; this server takes {most:,}.",
    "file-too-large": "{file} has {bytes:,} bytes; a file of a release has at most {most:,}.",
    "taken-before": "Release {release}, or a file of it, was taken before, in job {job} from {party}.",
    "unknown-file": "Its manifest names no file {file!r}.",
    "not-these-sums": "Its sums are not those of message {number}: other classes, units, head, noise or step.",
    "files-missing": "{files} did not come.",
    "other-projection": "Its projection is {sent}; the projection of this job is {needed}.",
    "not-of-projection": "It has rows of {shape} clipped to {clip:g}; the projection has ({dimension},) clipped to "
    "{projection_clip:g}.",
    "other-classes": "It does not have the classes of the class sums, in the same order.",
    "directions-without-it": "The directions were found without its class sums.",
    "no-bound-or-noise": "Its rows have no bound or no noise. A job takes what `mixveil join` makes.",
    "clip-out-of-range": "A clip norm of {clip:g} does not fit rows of {values:n value}.",
    "figure-out-of-range": "Its {figure} is {value:g}, beside a clip norm of {clip:g}: no data have that.",
    "says-another-name": "It says that it is {named}, and its key is that of {party}.",
    "same-name-twice": "It says that it is {named}, and so does another node.",
    "unexpected-answer": "Its answer is {answer}.",
    "other-files": "{file} was asked for, and {sent} came.",
    "too-much-sent": "It sent more than the {most:,} bytes that the message may have.",
    "too-much-sent-folded": "It sent more than the {most:,} bytes that the message may have, folded.",
    "too-many-pieces": "The message has {count:,} pieces: too many for {most:,} bytes.",
    "unknown-run": "The run was not checked before.",
    "differs-from-most": "It has other classes, shapes or features than most parties.",
    "not-in-time": "It did not finish within {seconds:g} s.",
    "no-answer": "It did not answer: {why}",
    "restarted": "The party started again.",
    "answer-lost": "Its answer did not arrive whole.",
    "transport-failed": "Flower reports error {number}.",
    "job-over": "The job is over.",
    "blocks-learning": "With its {kind} no model can be computed ({error}).",
    "weights-unreadable": "Its weights are not tensors.",
    "weights-of-another-model": "Its weights are not those of this model.",
    "weights-not-finite": "Its weights are not finite.",
    "negative-variance": "Its weights hold a negative variance.",
    "weights-too-far": "Its weights are {distance:.3g} from those that it was sent; {most:g} is the limit.",
    "moved-too-far": "It moved the weights {times:.3g} times as far as most parties.",
}
"""Why a server does not take what a party sent."""

STATES: dict[str, str] = {
    "expected": "has not come",
    "waiting": "waits for its owner",
    "willing": "agreed",
    "sending": "is sending",
    "arrived": "sent everything",
    "rejected": "rejected",
    "refused": "refused",
    "failed": "failed",
}
"""What a party is doing in a job."""

EVENTS: dict[str, str] = {
    "job-begun": "{method} {job} has begun; {parties:n party is|parties are} expected.",
    "party-out": "{state}: {why}",
    "party-unknown": "{node} is not a party of this job: {why}",
    "party-waits": "waits for its owner.",
    "party-sent": "its {kind} arrived ({kilobytes:,} kB) and passed every check.",
    "party-sent-before": "The {kind} of {names} arrived before, and are still here.",
    "party-kept-no-model": "did not take the model: {why}",
    "time-over": "{seconds:g} s are over. The job goes on without {parties}.",
    "waiting-for": "Waiting for {parties}; {seconds:.0f} s left.",
    "parties-named": "{names}",
    "parties-absent": "{absent:n party that has|parties that have} not come",
    "parties-named-and-absent": "{names} and {absent:n party that has|parties that have} not come",
    "link-silent": "The link does not say which nodes are there ({error}).",
    "directions-found": "{directions:n direction was|directions were} found from the class sums of "
    "{parties:n party|parties}.",
    "training-begun": "Training on {rows:n record} of {parties:n party|parties}.",
    "training-continues": "The training continues where it was stopped.",
    "learning-failed": "No model could be computed ({error}). Looking for the party that causes it.",
    "plan-made": "The plan: class sums and {rounds:n round} in {directions:n direction}, with "
    "{parties:n party|parties}.",
    "sum-failed": "No secure sum of message {number}: {parties:n party is|parties are} still there.",
    "rounds-kept": "{rounds:n round was|rounds were} done before; the job goes on from there.",
    "round-done": "Round {number} of {rounds}: {answered} of {parties:n party|parties} answered.",
    "model-made": "The model is in {path}.",
    "model-returned": "The model went back to {names}.",
    "model-returned-to-none": "The model went back to no party.",
    "job-ended": "The job ended without a model: {why}",
    "messages-sent": "sent {sent:,} of {messages:n message}",
    "job-running": "running",
    "job-done": "done, {ended}",
    "job-failed": "ended without a model, {ended}: {why}",
    "job-interrupted": "stopped before it was done: the same `mixveil run` command continues it",
}
"""What happens in a job, at the server's."""

OWNER: dict[str, str] = {
    "refused-job": "{job}: refused. {why}",
    "failed-job": "{job}: failed. {detail} ({error})",
    "owner-warning": "warning: {text}",
    "beyond-budget": "{job} would cost μ = {mu:.4g} in all; the budget is {budget:g}, and {spent:.4g} is spent.",
    "beyond-budget-unbounded": "{job} cannot be within the budget of {budget:g}: the ledger holds releases that "
    "promise nothing.",
    "beyond-label-budget": "{job} would cost a label ε = {epsilon:.4g} in all; the label budget is {budget:g}.",
    "asks-to-take-part": "{job} asks whether you take part: mixveil approve {job}",
    "asks-to-release": "{job} has a release for you to look at: mixveil approve {job}",
    "step-made": "The {kind} for {job} are made: {path}",
    "step-sending": "{job}: sending {kind}.",
    "sending-weights": "{job}: sending weights after epoch {epoch} of {epochs}.",
    "model-here": "The model of {job} is here: {path}",
    "job-ended-there": "{job} ended here without a model: {why}",
    "projection-holds-images": "warning: {images:n image of yours was|images of yours were} used to fit the "
    "projection. It is not public for them, and what is certified does not hold.",
    "outlook-unbounded": "Your ledger holds {releases:n release that promises|releases that promise} nothing to a "
    "{whom}, so no budget holds, and every job will be refused. Keep experiments in a state folder of their own "
    "(MIXVEIL_STATE).",
    "outlook-spent": "Everything in your ledger together cost μ = {spent:.4g} of {budget:g}: a job of {mu:g} will be "
    "refused. Between machines every release counts; otherwise a refusal would tell whose records are in it.",
    "classes-not-named": "The list of classes was read off your data, and would show which occur: jobs by {methods} "
    "will be refused. Name all classes that there can be with --classes.",
    "labels-spent": "Everything in your ledger together cost labels ε = {spent:.4g} of {budget:g}: every job will be "
    "refused.",
    "server-connected": "Connected to {address}; waiting for jobs.",
    "waiting-for-server": "Waiting for {address}: {text}",
    "waiting-for-old-node": "Waiting for {address}: it holds an earlier connection of this party open.",
    "not-answered": "A message could not be answered: {detail} ({error})",
    "server-not-told": "The server could not be told ({error}).",
    "app-refused": "Refused: the server's app is {theirs}, the installed one {ours}. Nothing of it was fetched or run.",
    "message-not-taken": "Refused: {why}",
    "node-failed": "The party's process failed: {detail} ({error})",
}
"""What a party's owner reads while it takes part."""

GUARANTEES: dict[str, str] = {
    "nothing-sent": "nothing is sent",
    "every-record-sent": "no guarantee: the server has every record",
    "weights-unbounded": "no guarantee: what a party's weights show of its records has no bound",
    "released-every-epoch": "no guarantee: {epochs} encodings of every record, each a release",
    "nominal-tau": "no guarantee of a record: nominal τ = {tau:g} is of the average one, and where rows vary as the "
    "public ones do the directional SNR of what is released is {snr:.3g}; labels are shown",
    "mu-labels-by-row": "μ = {mu:g} for a record replaced by another of its label (ε = {epsilon:.3g} at δ = 1e-05); "
    "labels are shown, row by row",
    "mu-labels-covered": "μ = {mu:g} for a record and its label replaced by any other (ε = {epsilon:.3g} at "
    "δ = 1e-05); the number of a party's rows is public",
    "mu-labels-covered-shared": "μ = {mu:g} for a record of one party and its label replaced by any other "
    "(ε = {epsilon:.3g} at δ = 1e-05), if {parties:n party shares|parties share} the noise honestly and the server "
    "sees the sum alone; μ = {alone:.3g} whatever the others do; the number of a party's rows is public",
    "epsilon-record-taken-out": "ε = {epsilon:.3g} at δ = {delta:g} for a record taken out, its label with it: what "
    "rounds of sums at μ = {mu:g} promise of the same (μ = {mu_out:.3g}); for a record and its label replaced it is at "
    "most ε = {epsilon_replaced:.3g} at δ = {delta_replaced:.2g}; the number of a party's rows is public",
    # of files that earlier versions wrote
    "mu-labels-as-counts": "μ = {mu:g} for a record replaced by another of its label (ε = {epsilon:.3g} at δ = 1e-05); "
    "labels are shown, as counts of the classes",
    "epsilon-record-removed": "ε = {epsilon:.3g} at δ = {delta:g} for a record taken out, its label with it (replaced "
    "by another: up to 2ε); how many rows a party has is public",
}
"""What a method of learning together promises of a record, in a simulation."""

WORDS: dict[str, str] = {**REFUSED, **ENDED, **REJECTED, **EVENTS, **OWNER, **GUARANTEES}
