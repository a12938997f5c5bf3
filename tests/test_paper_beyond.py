"""The claims of what isn't in the paper, on hand-made results."""

import pytest

from lengthwise import paper
from lengthwise.paper import beyond_operands
from lengthwise.paper.artefact import Artefact, Results

LENGTHS = (3, 4, 5, 6, 7, 8, 9, 10)


def results(shares: dict[str, float], measures: dict[str, dict[str, float]] | None = None) -> Results:
    """Two seeds of each setting, with one accuracy at every length."""
    records = {
        label: [
            {
                "evaluation": [{"length": n, "exact_match": share} for n in LENGTHS],
                "measures": {"beyond-operands": (measures or {}).get(label)},
            }
        ]
        * 2
        for label, share in shares.items()
    }
    return Results("cpu", records)


def made(name: str, good: bool) -> Results:
    """Results on which every claim holds, or none."""
    artefact = paper.ARTEFACTS[name]
    labels = artefact.settings("cpu")
    if name == "beyond-operands":
        primed = {label: beyond_operands.PRIMED_TOO in label for label in labels}
        fours = {label: (0.9 if on else 0.6) if good else 0.2 for label, on in primed.items()}
        return results(dict.fromkeys(labels, 0.0), {label: {"4": share} for label, share in fours.items()})
    better = "primed with" if name == "beyond-priming" else "over significance"
    return results({label: 0.8 if (better in label) is good else 0.1 for label in labels})


BEYOND = [artefact for name, artefact in paper.ARTEFACTS.items() if name.startswith("beyond-")]
every_one = pytest.mark.parametrize("artefact", BEYOND, ids=lambda artefact: artefact.name)


@every_one
def test_claims_hold_on_results_that_bear_them_out_and_not_on_others(artefact: Artefact):
    assert {claim.verdict(made(artefact.name, True)) for claim in artefact.claims} == {"holds"}
    assert {claim.verdict(made(artefact.name, False)) for claim in artefact.claims} == {"does not hold"}


@every_one
def test_every_claim_needs_each_setting_that_it_rests_on(artefact: Artefact):
    whole = made(artefact.name, True)
    for claim in artefact.claims:
        read = claim.seeds(whole)
        assert read
        assert set(read.values()) == {2}
        for label in read:
            part = Results("cpu", {other: records for other, records in whole.records.items() if other != label})
            assert claim.verdict(part) == "not enough runs"
