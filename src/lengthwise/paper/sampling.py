"""Two readings of "up to 5 digits": training operands uniform over lengths, or uniform over integers (§2.1)."""

from lengthwise.paper.artefact import Claim, Results, ScaleName, Setting, Table, artefact
from lengthwise.paper.scales import ENCODERS
from lengthwise.paper.table_addition import addition

READINGS = ("uniform-length", "uniform-integer")


def sampling_decides(encoder: str) -> Claim:
    by_length, by_integer = (f"{encoder} {reading}" for reading in READINGS)

    def holds(results: Results) -> bool:
        fails = results.mean(by_integer, 5) >= 0.5 and results.mean(by_integer, 6) <= 0.05
        return results.mean(by_length, 6) >= 0.2 and fails

    return Claim(
        f"{encoder}s generalise to 6 digits if training operands are uniform over lengths (at least 20 %), and not if"
        " they are uniform over integers (learnt at 5 digits, at most 5 % at 6)",
        holds,
    )


@artefact("sampling", "Section 2.1, two readings", "Addition: operands uniform over lengths or over integers")
class Sampling(Table):
    lengths = {"smoke": (5, 6, 7, 8, 8), "cpu": (5, 6, 7, 8, 10), "paper": (5, 6, 10, 15, 20)}
    published = {f"{encoder} {reading}": (None,) * 5 for encoder in ENCODERS for reading in READINGS}
    claims = tuple(sampling_decides(encoder) for encoder in ENCODERS)
    notes = (
        "The paper's Section 2.1 draws operands uniformly below 10^5, so that 90 % have five digits; Table 1's caption"
        " has examples with 1 to 5 digits. It doesn't compare the two, so nothing here is published. Table 1 is run"
        " with the first at paper scale and with the second at cpu scale.",
        "The claims are about small models: at paper scale, Table 1 generalises with whichever reading it was made.",
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {
            f"{encoder} {reading}": {**addition(scale, encoder, "RPE_k", "B"), "data.sampling": reading}
            for encoder in ENCODERS
            for reading in READINGS
        }
