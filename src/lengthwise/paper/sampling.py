"""Three readings of "up to 5 digits" (§2.1): one length a problem, one an operand, or uniform over integers."""

from lengthwise.paper.artefact import Claim, Results, ScaleName, Setting, Table, artefact, every
from lengthwise.paper.scales import ENCODERS
from lengthwise.paper.table_addition import addition

READINGS = ("problem-length", "uniform-length", "uniform-integer")


def sampling_decides(encoder: str) -> Claim:
    def holds(results: Results) -> bool:
        def expected(reading: str) -> bool:
            run = f"{encoder} {reading}"
            return results.mean(run, 6) >= 0.2 if reading == "problem-length" else results.beyond(run, 6) <= 0.05

        return every(expected, ("problem-length", "uniform-integer"))

    return Claim(
        f"{encoder}s generalise to 6 digits if training problems are uniform over lengths (at least 20 %), and not if"
        " operands are uniform over integers (learnt at 5 digits, at most 5 % at 6)",
        holds,
    )


@artefact("sampling", "§2.1, three readings", "Addition: problems uniform over lengths or over integers")
class Sampling(Table):
    lengths = {"smoke": (5, 6, 7, 8, 8), "cpu": (5, 6, 7, 8, 10), "paper": (5, 6, 10, 15, 20)}
    published = {f"{encoder} {reading}": (None,) * 5 for encoder in ENCODERS for reading in READINGS}
    claims = tuple(sampling_decides(encoder) for encoder in ENCODERS)
    notes = (
        "The paper's Section 2.1 draws operands uniformly below 10^5, so that 90 % have five digits; Table 1's caption"
        " has examples with 1 to 5 digits, which can mean one length for the problem or one for each operand. It"
        " doesn't compare them, so nothing here is published. Table 1 is run with uniform-integer at paper scale and"
        " with problem-length at cpu scale.",
        "The claims are about small models: at paper scale, Table 1 generalises with whichever reading it was made.",
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {
            f"{encoder} {reading}": {**addition(scale, encoder, "RPE_k", "B"), "data.sampling": reading}
            for encoder in ENCODERS
            for reading in READINGS
        }
