"""A model that solves problems: an encoder with the task and the layout that it is trained for."""

from lengthwise.solver.solver import Solution, Solver

__all__ = ["Solution", "Solver"]
