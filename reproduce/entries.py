"""Everything that can be made again: the tables of the papers, and what goes beyond them."""

from __future__ import annotations

from reproduce.entry import Beyond, Command, Entry

_GPU = "a GPU, data sets and weights of public networks"
_DIGITS = "scikit-learn's digits"
_LEARNT: tuple[Command, ...] = tuple(
    ("accuracy", "--data", data, "--out", "{out}", "--radii", "{beside}-radius.json", *network)
    for data, network in (
        *((data, ("--backbone", "resnet18", "--stage", "layer4", "--seeds", "3")) for data in ("mnist", "cifar10")),
        *((data, ()) for data in ("mnist", "cifar10", "cifar100", "tiny-imagenet")),
    )
)
_THREE_LAYERS = ("--head", "mlp", "--beta", "0.5", "--methods", "fedprox", "one-shot", "remixed", "centralised")
_SYNTHETIC: Command = ("synthetic", "--seeds", "10", "--out", "{out}", "--figure", "{beside}-figure2.svg")
_KEPT: Command = ("--data-dir", "{data}", "--work", "{beside}-work")
_MADE = "the paper's made data themselves; one reading, one seed"
_INSTAHIDE: Command = ("--what", "table2", "mnist", "dpsgd")
_VGG: Command = ("--cases", "cifar10-vgg", "--epochs", "100", "--seeds", "1")
_VGG = (*_VGG, "--attacks", "inversion-gan,inversion-adaptive")
_MIXCON: tuple[Command, ...] = (
    ("images", "run", "--cases", "mnist,fashion-mnist", "--attacks", "inversion,inversion-adaptive", *_KEPT),
    ("images", "tables", "--out", "{out}", *_KEPT),
)


def _attack(data: str) -> tuple[Command, ...]:
    """Fed-AugMix's Table II of a data set: the convergent network, then both stages."""
    weights, shared = f"{{beside}}-{data}.safetensors", ("--data", "{data}", "--dataset", data, "--out", "{out}")
    stages = tuple(("attack", "table2", *shared, "--stage", stage) for stage in ("untrained", weights))
    return (("attack", "weights", *shared, "--stage", weights), *stages)


def _trained(data: str) -> Command:
    return ("accuracy", "--data", "{data}", "--dataset", data, "--seeds", "1", "--out", "{out}")


_SINGULAR = (
    ("1", "rows that LPIPS would screen out", (("tables", "1", "--out", "{out}"),), _GPU, "table1.json"),
    ("2", "the paper's linear attack", (("tables", "2", "--out", "{out}"),), _GPU, "table2.json"),
    ("3", "networks against CIFAR-10", (("tables", "3", "--out", "{out}"),), _GPU, "table3.json"),
    ("4", "accuracy at the nominal τ = 1e-6", _LEARNT, _GPU, "accuracy.json"),
    *(
        (
            table,
            title,
            tuple(
                ("collaborative", "--table", table, "--out", "{out}", "--beside", "{beside}-beside.json", *head)
                for head in heads
            ),
            "data sets and weights of two public networks",
            "collaborative.json",
        )
        for table, title, heads in (
            ("5", "learning together, by parties and skew", ((), _THREE_LAYERS)),
            ("6", "learning together, one small party", ((),)),
        )
    ),
)
_SINGULAR_QUICK = {
    "1": f"{_DIGITS} at 32 × 32, 256 images; SSIM in place of LPIPS, which needs weights of a network",
    "2": f"{_DIGITS} at 32 × 32, 64 images; without LPIPS, which needs weights of a network",
    "3": f"{_DIGITS} at 32 × 32; a U-Net of width 8 that learns for 5 epochs from 1,000 digits",
    "4": f"{_DIGITS}: the paper's classifier on pixels in place of features, 5 epochs, τ = 1 by `energy`",
    "5": f"{_DIGITS}: pixels, 3 parties and a linear head",
    "6": f"{_DIGITS}: pixels, 3 parties and a linear head",
}

ENTRIES = (
    *(
        Entry("singular", table, title, full, needs, _SINGULAR_QUICK[table], (file,), f"table{table}.csv")
        for table, title, full, needs, file in _SINGULAR
    ),
    Entry(
        "singular",
        "figure1",
        "pictures of the linear attack",
        (("figures", "1", "--out", "{out}"),),
        "CIFAR-10; a GPU is quicker",
        f"{_DIGITS} at 32 × 32",
    ),
    Entry(
        "singular",
        "figure2",
        "pictures of the U-Net's attack",
        (("figures", "2", "--out", "{out}"),),
        "CIFAR-10, Tiny-ImageNet and a GPU",
        f"{_DIGITS} at 32 × 32; a U-Net of width 8 that learns for 5 epochs from 1,000 digits",
    ),
    Entry(
        "instahide",
        "1",
        "what Mixup alone does not hide",
        (("searches", "--what", "grouping", "averages", "covers", "--out", "{out}"),),
        "CIFAR-10 and Tiny-ImageNet; a quarter of an hour on two cores",
        f"200 of {_DIGITS}; 100 others play the public images",
        ("searches.json",),
    ),
    Entry(
        "instahide",
        "2",
        "accuracy of training on encodings",
        (
            (
                "accuracy",
                "--what",
                "table2",
                "mnist",
                "dpsgd",
                "--out",
                "{beside}-runs.json",
                "--state",
                "{beside}-state",
            ),
            ("gather", "{beside}-runs.json", "--out", "{out}"),
        ),
        "MNIST, CIFAR-10 and a GPU",
        f"{_DIGITS}; a ResNet-18 of width 8, 10 epochs; digits play the public images; no DP-SGD",
        ("accuracy.json",),
        "table2.csv",
    ),
    Entry(
        "instahide",
        "4",
        "Kolmogorov–Smirnov tests of encodings",
        (("searches", "--what", "table4", "--out", "{out}"),),
        "CIFAR-10 and Tiny-ImageNet",
        f"10 of {_DIGITS}, 100 encodings each; mixed with digits, without public patches",
        ("table4.json",),
        "table4.csv",
    ),
    *(
        Entry(
            "mixcon",
            table,
            title,
            (_SYNTHETIC,),
            "one core",
            quick,
            ("synthetic.json",),
            f"table{table}.csv",
        )
        for table, title, quick in (
            ("1", "accuracy on made data", "the made data themselves, one reading, one seed"),
            ("2", "inversion on made data", "the made data themselves, one reading, one seed"),
        )
    ),
    *(
        Entry(
            "mixcon",
            table,
            title,
            _MIXCON,
            "MNIST, FashionMNIST, LPIPS's networks and a GPU",
            f"{_DIGITS} at 28 × 28; LeNet-5, 15 epochs, 8 images attacked; without PSIM, which needs weights",
            ("images.json",),
            "table3-4.csv",
        )
        for table, title in (("3", "accuracy and inversion: MixCon"), ("4", "accuracy and inversion: UniCon"))
    ),
    Entry(
        "mixcon",
        "5",
        "accuracy and inversion: VGG-16 on CIFAR-10",
        (
            ("images", "run", *_VGG, *_KEPT),
            ("images", "tables", "--out", "{out}", *_KEPT),
        ),
        "CIFAR-10, LPIPS's networks and a GPU",
        f"{_DIGITS} at 28 × 28; LeNet-5 in place of VGG-16, the attack's decoder learns for 100 steps",
        ("images.json",),
        "table5.csv",
    ),
    Entry(
        "fedaugmix",
        "2",
        "gradient inversion",
        tuple(command for data in ("mnist", "cifar10", "cifar100") for command in _attack(data)),
        "MNIST, CIFAR-10, CIFAR-100 and a GPU",
        f"{_DIGITS} at 28 × 28; 2 clients of 10, untrained LeNet-5, 300 steps of the attack",
        ("attack.json",),
        "table2.csv",
    ),
    Entry(
        "fedaugmix",
        "3",
        "accuracy with and without Fed-AugMix",
        tuple(_trained(data) for data in ("mnist", "cifar10", "cifar100")),
        "MNIST, CIFAR-10 and CIFAR-100; a GPU is quicker",
        f"{_DIGITS} at 28 × 28; 20 clients, 100 rounds",
        ("accuracy.json",),
        "table3.csv",
    ),
)

BEYOND = (
    Beyond("across", "every way to learn together, on MNIST", "python -m reproduce.across", "across.json"),
    Beyond("certified", "certified accuracy on CIFAR-10", "python -m reproduce.certified.accuracy", "accuracy.json"),
    *(
        Beyond(
            "certified",
            f"rounds of sums: {name}",
            f"python -m reproduce.certified.rounds {name}",
            f"rounds-{name}.json",
        )
        for name in ("cifar10", "skew", "dp-sgd", "networks", "mnist", "cifar100", "patients")
    ),
    Beyond("labels", "randomised labels", "python -m reproduce.labels.accuracy", "accuracy.json"),
    Beyond("singular", "our attacks on CIFAR-10", "python -m reproduce.singular.attacks", "attacks.json"),
    Beyond("singular", "further releases", "python -m reproduce.singular.repeated", "repeated.json"),
    Beyond("singular", "pictures out of features", "python -m reproduce.singular.decoder", "decoder.json"),
    Beyond("instahide", "attacks that demask", "python -m reproduce.instahide.attacks", "attacks.json"),
    Beyond("instahide", "breaks by Carlini and Luo et al.", "python -m reproduce.instahide.breaks", "breaks.json"),
    Beyond("instahide", "the break by Chen et al.", "python -m reproduce.instahide.chen", "chen.json"),
    Beyond("instahide", "seconds of an epoch", "python -m reproduce.instahide.accuracy --what overhead", "speed.json"),
    Beyond("mixcon", "sweeps over λ and β", "python -m reproduce.mixcon.sweep", "sweep.json"),
)
