"""Beyond the paper: sums modulo 128 and 101, which its models hardly learn, by significance."""

from lengthwise.paper.artefact import MARGIN, Claim, Results, ScaleName, Setting, Table, artefact
from lengthwise.paper.scales import budget, setting
from lengthwise.paper.table_modular_addition import modular

MODULI = (100, 128, 101)
COORDINATES = ("index", "significance")


def label(modulus: int, coordinate: str) -> str:
    return f"c = {modulus}, over {coordinate}"


def better_by_significance(modulus: int) -> Claim:
    def holds(results: Results) -> bool:
        index, significance = (results.mean(label(modulus, coordinate), 5) for coordinate in COORDINATES)
        return significance > index + MARGIN

    return Claim(f"sums modulo {modulus} of 5 digits, as long as in training, are better by significance", holds)


@artefact("beyond-modular", "Beyond the paper", "Modular addition by index and by significance")
class BeyondModular(Table):
    lengths = {"smoke": (5, 6, 7, 8, 8), "cpu": (3, 4, 5, 6, 10), "paper": (3, 4, 5, 6, 10)}
    published = {label(modulus, over): (None,) * 5 for modulus in MODULI for over in COORDINATES}
    claims = tuple(better_by_significance(modulus) for modulus in MODULI if modulus != 100)
    notes = (
        "The paper's models learn c = 100 and 1000, and hardly 128 and 101, even at the lengths of training, where all"
        " digits matter. Here digits are written least significant first, with relative-key over either coordinate.",
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        def run(modulus: int, coordinate: str) -> Setting:
            usual = modular(scale, "addition", modulus, "RPE_k", "B", self.lengths[scale][-1])
            written: Setting = {
                "layout.order": "least-significant-first",
                "model.position": {"kind": "relative-key", "coordinate": coordinate},
                "evaluation.final_lengths": list(self.lengths[scale]),
            }
            return setting(scale, usual, written, budget(scale, 4000))

        return {label(modulus, over): run(modulus, over) for modulus in MODULI for over in COORDINATES}
