"""Beyond the paper: sums modulo 128 and 101, which its models hardly learn, by significance."""

from itertools import product

from lengthwise.paper.artefact import Claim, Table, artefact
from lengthwise.paper.experiments import modular_addition
from lengthwise.paper.scales import Overrides, ScaleName
from lengthwise.paper.verdicts import greater

MODULI = (100, 128, 101)
COORDINATES = ("significance", "index")


def label(modulus: int, coordinate: str) -> str:
    return f"c = {modulus}, over {coordinate}"


def better_by_significance(modulus: int) -> Claim:
    return Claim(
        f"sums modulo {modulus} of 5 digits, as long as in training, are better by significance",
        lambda results: greater(*(results.in_domain(label(modulus, c)) for c in COORDINATES)),
    )


@artefact("beyond-modular", "Beyond the paper", "Modular addition by index and by significance")
class BeyondModular(Table):
    lengths = (3, 4, 5, 6, 10)
    claims = tuple(better_by_significance(modulus) for modulus in MODULI if modulus != 100)
    notes = (
        "The paper's models learn c = 100 and 1000, and hardly 128 and 101, even at the lengths of"
        " training, where all digits matter. Here digits are written least significant first, with"
        " relative-key over either coordinate.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        def run(modulus: int, coordinate: str) -> Overrides:
            return {
                **modular_addition(scale, modulus, "RPE_k", "B", "least significant first"),
                "model.position": {"kind": "relative-key", "coordinate": coordinate},
                "evaluation.final_lengths": list(self.columns(scale)),
            }

        return {
            label(c, coordinate): run(c, coordinate)
            for c, coordinate in product(MODULI, COORDINATES)
        }
