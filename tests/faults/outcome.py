"""What a harness counts."""

from dataclasses import dataclass, field

MOST_EXAMPLES = 10


@dataclass
class Outcome:
    """How many faults were tried, and how many were not answered as they should."""

    name: str
    tried: int = 0
    failed: int = 0
    examples: list[str] = field(default_factory=list)  # of failures

    def add(self, failure: str | None) -> None:
        self.tried += 1
        if failure:
            self.failed += 1
            if len(self.examples) < MOST_EXAMPLES:
                self.examples.append(failure)

    def __add__(self, other: "Outcome") -> "Outcome":
        examples = (self.examples + other.examples)[:MOST_EXAMPLES]
        tried, failed = self.tried + other.tried, self.failed + other.failed
        return Outcome(self.name, tried, failed, examples)
