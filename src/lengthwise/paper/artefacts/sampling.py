"""Three readings of "up to 5 digits" (§2.1), which decide whether addition generalises."""

from itertools import product

from lengthwise.paper.artefact import Claim, Table, artefact
from lengthwise.paper.experiments import addition
from lengthwise.paper.results import Results
from lengthwise.paper.scales import ENCODERS, Overrides, ScaleName
from lengthwise.paper.verdicts import Judgement, all_of, at_least, at_most

READINGS = ("problem-length", "uniform-length", "uniform-integer")


def sampling_decides(encoder: str) -> Claim:
    def judge(results: Results) -> Judgement:
        even, integers = (results.accuracy(f"{encoder} {r}", 6) for r in (READINGS[0], READINGS[2]))
        return all_of([at_least(even, 0.5), at_most(integers, 0.1)])

    return Claim(
        f"{encoder}s generalise to 6 digits if training problems are uniform over lengths (at least"
        " half right), and not if operands are uniform over integers (at most 10 %)",
        judge,
    )


@artefact("sampling", "§2.1, three readings", "Addition: problems uniform over lengths or integers")
class Sampling(Table):
    lengths = (5, 6, 10, 15, 20)
    claims = tuple(map(sampling_decides, ENCODERS))
    notes = (
        "Section 2.1 draws operands uniformly below 10^5, so that 90 % have five digits. Table 1's"
        " caption has examples with 1 to 5 digits, which can mean one length for the problem or"
        " one for each operand. The paper doesn't compare them, so nothing here is published."
        " Table 1 is run with uniform-integer at paper scale and with problem-length at cpu scale.",
        "The claims are ours, about small models. At paper scale, Table 1 generalises with"
        " whichever reading it was made.",
        "First operands are sampled with replacement: with seed 0, of 5000 operands 4871 are"
        " distinct if uniform over integers, and 2659 if uniform over lengths.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {
            f"{encoder} {reading}": {
                **addition(scale, "RPE_k", encoder, "B"),
                "data.sampling": reading,
            }
            for encoder, reading in product(ENCODERS, READINGS)
        }
