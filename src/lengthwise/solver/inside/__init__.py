"""What a model computes inside: traces by name, pictures of them, and interventions."""

from lengthwise.solver.inside.interventions import intervene, mean, patch, zero
from lengthwise.solver.inside.trace import Trace

__all__ = ["Trace", "intervene", "mean", "patch", "zero"]
