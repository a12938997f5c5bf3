"""Table 3: multiplication by numbers of 1, 2 and 3 digits, by position embedding."""

from lengthwise.paper.artefact import MARGIN, Claim, ScaleName, Setting, Table, artefact, every
from lengthwise.paper.scales import EMBEDDINGS, RELATIVE, budget, model, setting

DIGITS: dict[ScaleName, int] = {"smoke": 8, "cpu": 10, "paper": 35}  # of the layout
SECOND = {1: "1-digit", 2: "2-digits", 3: "3-digits"}
CPU_STEPS = 5000


@artefact("table-multiplication", "§5, Table 3", "Multiplication by 1, 2 and 3 digits")
class TableMultiplication(Table):
    lengths = {"smoke": (5, 6, 7), "cpu": (5, 6, 7), "paper": (5, 6, 7)}
    published = {
        "1-digit APE": (100, 1.5, 0),
        "1-digit RPE_k": (100, 12.2, 0),
        "1-digit RPE_k,q": (100, 9.2, 0),
        "2-digits APE": (100, 0, 0),
        "2-digits RPE_k": (100, 16.9, 0),
        "2-digits RPE_k,q": (100, 15.5, 0),
        "3-digits APE": (100, 0, 0),
        "3-digits RPE_k": (98.9, 0, 0),
        "3-digits RPE_k,q": (100, 0, 0),
    }
    claims = (
        Claim(
            "all models achieve close to 100 % in domain (at least 95 %)",
            lambda results: every(lambda by, pe: results.mean(f"{by} {pe}", 5) >= 0.95, SECOND.values(), EMBEDDINGS),
        ),
        Claim(
            "multiplication by 3 digits doesn't generalise with any embedding (learnt at 5 digits, at most 5 % at 6)",
            lambda results: every(lambda pe: results.beyond(f"3-digits {pe}", 6) <= 0.05, EMBEDDINGS),
        ),
        Claim(
            "by 1 and 2 digits, relative-key embeddings generalise a little to 6 digits: they beat absolute ones",
            lambda results: every(
                lambda n: results.beyond(f"{SECOND[n]} RPE_k", 6) > results.beyond(f"{SECOND[n]} APE", 6) + MARGIN,
                (1, 2),
            ),
        ),
        Claim(
            "by 1 and 2 digits, relative embeddings fail beyond 6 digits (learnt at 5, at most 5 % at 7)",
            lambda results: every(lambda n, pe: results.beyond(f"{SECOND[n]} {pe}", 7) <= 0.05, (1, 2), RELATIVE),
        ),
    )
    notes = (
        "At smoke and cpu scale the second operand is written no wider than it needs, and the layout has room for"
        " 8 and 10 digits; at paper scale both operands are 35 wide, as the text has it.",
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {f"{by} {pe}": multiplication(scale, n, pe) for n, by in SECOND.items() for pe in EMBEDDINGS}


def multiplication(scale: ScaleName, second_digits: int, embedding: str) -> Setting:
    """A run of multiplication by so many digits, tested at 5 and at the longest while it is trained."""
    task = {
        "task.kind": "multiplication",
        "task.second_digits": second_digits,
        "data.test_digits": DIGITS[scale],
        "layout.compact": scale != "paper",
        "evaluation.lengths": [5, DIGITS[scale]],
    }
    cpu: Setting = {"evaluation.every": 100}  # for learning curves
    if second_digits == 1:  # what priming is shown with: it learns the long length better so (docs/cpu-scale.md)
        cpu |= {"model.heads": 8} | ({"training.learning_rate": 3e-3} if embedding in RELATIVE else {})
    own = cpu if scale == "cpu" else {}
    return setting(scale, task, model(scale, "UTransformer", "S", embedding), budget(scale, CPU_STEPS), own)
