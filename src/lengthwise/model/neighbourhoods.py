"""Rewriting on sequences of any length, with each distinct neighbourhood computed once.

In a round, what is written at a token depends only on its neighbourhood: the tokens of its column
and the next lower one, and the symbols written there (`columns.visibility`). Long problems have
millions of tokens but few distinct neighbourhoods. No token sees what depends on what is written at
itself, so there is one state that no round changes, and tokens may be visited in any order until it
is reached. The best order visits each token after all that it depends on.
"""

from collections.abc import Callable
from functools import cached_property
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.model.columns import visibility
from lengthwise.model.pairs import Pairs
from lengthwise.problems.layouts import SUM, Coordinates, writes_rows

Ints = NDArray[np.int64]
Ask = Callable[[Tensor, Tensor], Tensor]  # vectors (b, j, width), symbols (b, j) -> (b, i, words)
# Coordinates (j,) and i -> Ask, where the first i tokens are those of the query's column
Prepare = Callable[[Coordinates[Tensor], int], Ask]

NOTHING = -1  # the symbol where nothing is written yet
NO_KEY = -1
AT_ONCE = 4096  # neighbourhoods that the model is asked about in one batch
FEW = 48  # tokens that are faster to visit one by one than as arrays
MOST_ROUNDS = 32  # before the rest is visited token by token
WIDE = 4096  # tokens that are best visited at once
SHORTEST_SEGMENT = 32  # levels
BITS = 6  # of a symbol in a key
ROW, COLUMN = 1, 1  # of the query, in the short sequence that stands for a neighbourhood
FAR = -100  # the significance of tokens that are not there: out of every window


class Slot(NamedTuple):
    """A place in a neighbourhood, as seen from its query."""

    operand: int
    shared: bool
    rows_below: int
    columns_below: int


class Reach(NamedTuple):
    """What a query of one operand sees, over the slots of its neighbourhood."""

    vectors: NDArray[np.bool_]  # (slots,): whose vectors decide what it writes
    symbols: NDArray[np.bool_]  # (slots,): whose written symbols do
    order: Ints  # of slots: the query, the rest of its column, all others
    column: int  # how many slots its column has


class Neighbourhoods:
    """The tokens of a batch with their neighbourhoods, for coordinates (j,)."""

    def __init__(
        self,
        start: Tensor,
        coordinates: Coordinates[Tensor],
        writes: Tensor,
        n_out: int,
        prepare: Prepare,
    ):
        self.prepare, self.n_out = prepare, n_out
        self.prepared: dict[bytes, Ask] = {}  # by the query's slot and the slots without a token
        self.kinds, self.vectors = distinct_vectors(start)
        self.at = coordinates.map(lambda values: values.cpu().numpy())
        # The answer's tokens are asked about, and all that write.
        asked = writes.cpu().numpy() | (np.arange(start.shape[1]) < n_out)
        self.queries = np.flatnonzero(asked)
        self.slots = list_slots(self.at)
        self.reached = {int(o): self.reach(int(o)) for o in np.unique(self.at.operand[asked])}
        tokens = self.find_tokens()
        self.static, self.examples = self.number_static_parts(tokens)
        self.sees_symbols, self.sources = self.find_sources(tokens, writes.cpu().numpy())
        self.keys, self.entry_of_key = np.empty(0, np.int64), np.empty(0, np.int64)  # sorted
        self.symbols = np.empty(0, np.int64)  # of each entry
        self.logits: list[Tensor] = []

    @property
    def count(self) -> int:
        """How many distinct neighbourhoods the model was asked about."""
        return len(self.symbols)

    def rewrite(self, rounds: int | None = None) -> Tensor:
        """Logits (b, n_out, vocabulary) when no symbol changes any more, or after some rounds."""
        state, entries, active = self.start()
        if rounds is None:
            active = self.visit_segments(state, entries)
            active = self.repeat_rounds(state, entries, active, MOST_ROUNDS, FEW)
            self.finish_in_order(state, entries, active)
        else:
            self.repeat_rounds(state, entries, active, rounds)
        return self.read(entries)

    def start(self) -> tuple[Ints, Ints, Ints]:
        """What is written at each token, its entry, and the tokens that the first round visits."""
        size = self.static.size
        return np.full(size, NOTHING), np.zeros(size, np.int64), np.arange(size)

    def read(self, entries: Ints) -> Tensor:
        """Logits (b, n_out, vocabulary) where the answer is read."""
        read = np.searchsorted(self.queries, np.arange(self.n_out))
        chosen = torch.from_numpy(entries.reshape(self.static.shape)[:, read])
        return torch.cat(self.logits)[chosen.to(self.vectors.device)]

    def visit_segments(self, state: Ints, entries: Ints) -> Ints:
        """Visit every token once, level by level; returns those that have to be visited again.

        Where levels have few tokens, they are cut into segments that are visited side by side. The
        lowest tokens of a segment are visited before what they depend on.
        """
        levels, count = self.levels(), len(self.queries)
        height = int(levels.max()) + 1
        segments = 1
        if not self.at.row.any():
            segments = max(1, min(height // SHORTEST_SEGMENT, WIDE * height // state.size))
        segment, level = np.divmod(levels, -(-height // segments))
        order = level.argsort(kind="stable")
        examples = count * np.arange(len(self.static))[:, None]
        for queries in np.split(order, np.bincount(level).cumsum()[:-1]):
            self.visit(state, entries, (examples + queries).ravel())
        crosses = (segment[self.sources] != segment[:, None]) & (self.sources >= 0)
        return (examples + np.flatnonzero(crosses.any(1))).ravel()

    def repeat_rounds(
        self, state: Ints, entries: Ints, active: Ints, most: int, few: int = 0
    ) -> Ints:
        """Visit active tokens, then those that see a change, …; returns those that are left."""
        for _ in range(most):
            if len(active) <= few:
                break
            active = self.advance(state, entries, active)
        return active

    def advance(self, state: Ints, entries: Ints, active: Ints) -> Ints:
        """Write a round at the active tokens; returns those that the next round visits."""
        before = state[active]
        self.visit(state, entries, active)
        return self.affected(active[state[active] != before])

    def visit(self, state: Ints, entries: Ints, tokens: Ints) -> None:
        """Write at these tokens what the model says, each time with what is written now."""
        entries[tokens] = self.look_up(self.make_keys(state, tokens))
        state[tokens] = self.symbols[entries[tokens]]

    def levels(self) -> Ints:
        """(queries,): a number for each that is higher than those of all that it depends on.

        A column comes after the next lower one. A sum comes after its product, and after the sum
        below, which is one row down and one place up.
        """
        at, queries = self.at, self.queries
        place = at.significance[queries] - at.row[queries]
        is_sum = (at.operand[queries] == SUM) & writes_rows(at)
        return place - place.min() + np.where(is_sum, 1 + 2 * at.row[queries], 0)

    def logits_of(self, keys: Ints) -> Tensor:
        """The logits (keys, vocabulary) in the neighbourhoods of these keys."""
        entries = torch.from_numpy(self.look_up(keys))
        return torch.cat(self.logits)[entries.to(self.vectors.device)]

    def finish_in_order(self, state: Ints, entries: Ints, active: Ints) -> None:
        """Visit active tokens one by one, lowest levels first, and those that they affect."""
        if not len(active):
            return
        count, static = len(self.queries), self.static.ravel()
        order = self.levels().argsort(kind="stable")
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count)
        written, ranks = state.tolist(), rank.tolist()
        known = dict(zip(self.keys.tolist(), self.entry_of_key.tolist(), strict=True))
        symbols: list[int] = self.symbols.tolist()
        for example in range(len(self.static)):
            first = example * count
            own = active[(active >= first) & (active < first + count)] - first
            waiting = sorted(rank[own].tolist())  # a sorted list is a heap
            last = -1
            while waiting:
                place = heappop(waiting)
                if place == last:
                    continue
                last, query = place, int(order[place])
                token, key = first + query, int(static[first + query])
                for source in self.sources[query].tolist():
                    symbol = written[first + source] if source >= 0 else NOTHING
                    key = key << BITS | symbol + 1
                if (entry := known.get(key)) is None:
                    entry = known[key] = int(self.look_up(np.array([key]))[0])
                    symbols = self.symbols.tolist()
                entries[token] = entry
                if symbols[entry] != written[token]:
                    written[token] = symbols[entry]
                    for reached in self.dependents[query].tolist():
                        if reached >= 0:
                            heappush(waiting, ranks[reached])
        state[:] = written

    def make_keys(self, state: Ints, tokens: Ints) -> Ints:
        """A number for the neighbourhood of each token, the same where they are equal."""
        example, query = np.divmod(tokens, len(self.queries))
        keys: Ints = self.static.ravel()[tokens]
        for sources in self.sources[query].T:
            symbols = np.where(sources >= 0, state[sources + example * len(self.queries)], NOTHING)
            keys = keys << BITS | (symbols + 1)
        return keys

    def look_up(self, keys: Ints) -> Ints:
        """The entry of each key, after asking the model about those that are new."""
        place = np.searchsorted(self.keys, keys)
        is_new = np.append(self.keys, NO_KEY)[place] != keys
        if is_new.any():
            missing = np.unique(keys[is_new])
            entries = len(self.symbols) + np.arange(len(missing))
            for part in np.array_split(missing, -(-len(missing) // AT_ONCE)):
                logits = self.ask_about(part)
                self.logits.append(logits)
                self.symbols = np.append(self.symbols, logits.argmax(-1).cpu().numpy())
            new_place = np.searchsorted(self.keys, missing)
            self.keys = np.insert(self.keys, new_place, missing)
            self.entry_of_key = np.insert(self.entry_of_key, new_place, entries)
            place = np.searchsorted(self.keys, keys)
        return self.entry_of_key[place]

    def ask_about(self, keys: Ints) -> Tensor:
        """Logits (keys, vocabulary): each neighbourhood is a short sequence of its own."""
        dynamic = len(self.sees_symbols)
        static = self.examples[keys >> BITS * dynamic]  # (keys, 1 + slots)
        codes = static[:, 1:]
        symbols = np.full(codes.shape, NOTHING)
        for i, slot in enumerate(self.sees_symbols):
            shift = BITS * (dynamic - 1 - i)
            symbols[:, slot] = (keys >> shift & 2**BITS - 1) - 1
        shapes = static.copy()
        shapes[:, 1:] = codes == 0
        parts, places = [], []
        for shape in np.unique(shapes, axis=0):
            rows = np.flatnonzero((shapes == shape).all(1))
            parts.append(self.ask_alike(shape, codes[rows], symbols[rows]))
            places.append(rows)
        return torch.cat(parts)[torch.from_numpy(np.concatenate(places).argsort())]

    def ask_alike(self, shape: Ints, codes: Ints, symbols: Ints) -> Tensor:
        """Logits (keys, vocabulary) in neighbourhoods that have tokens in the same slots."""
        device, query_slot, absent = self.vectors.device, int(shape[0]), shape[1:]
        reach = self.reached[self.slots[query_slot].operand]
        if (ask := self.prepared.get(shape.tobytes())) is None:
            slots = np.array(self.slots, np.int64)[reach.order]
            columns = np.where(slots[:, 1], ROW, COLUMN - slots[:, 3])
            far = FAR - np.arange(len(slots))
            at = {
                "index": np.arange(len(slots)),
                "significance": np.where(absent[reach.order], far, columns),
                "place": np.zeros(len(slots), np.int64),
                "operand": slots[:, 0],
                "shared": slots[:, 1].astype(bool),
                "row": ROW - slots[:, 2],
            }
            tensors = {name: torch.from_numpy(values).to(device) for name, values in at.items()}
            ask = self.prepared[shape.tobytes()] = self.prepare(
                Coordinates(**tensors), reach.column
            )
        # Where only symbols are seen, any vector will do.
        kinds = np.maximum(codes[:, reach.order] - 2, 0)
        vectors = self.vectors[torch.from_numpy(kinds).to(device)]
        return ask(vectors, torch.from_numpy(symbols[:, reach.order]).to(device))[:, 0]

    @cached_property
    def dependents(self) -> Ints:
        """(queries, most): the queries that see what is written at each, and −1."""
        return invert(self.sources)

    def affected(self, changed: Ints) -> Ints:
        """The tokens in whose neighbourhood something changed."""
        example, query = np.divmod(changed, len(self.queries))
        reached = self.dependents[query]
        reached = np.where(reached >= 0, reached + example[:, None] * len(self.queries), -1)
        marks = np.zeros(self.static.size + 1, bool)
        marks[reached] = True  # the last is for −1
        return np.flatnonzero(marks[:-1])

    def find_tokens(self) -> Ints:
        """(queries, slots): the token in each slot that a query sees, or −1."""
        at, queries = self.at, self.queries
        table, lowest = tabulate(at)
        tokens = np.full((len(queries), len(self.slots)), -1)
        row, significance = at.row[queries], at.significance[queries]
        for i, slot in enumerate(self.slots):
            place = row if slot.shared else significance - slot.columns_below
            r, s = row - slot.rows_below, place - lowest
            inside = (r >= 0) & (s >= 0) & (s < table.shape[2])
            tokens[inside, i] = table[r[inside], slot.operand, s[inside]]
        for operand, reach in self.reached.items():
            own = at.operand[queries] == operand
            for unseen in np.flatnonzero(~(reach.vectors | reach.symbols)):
                tokens[own, unseen] = -1
            # Only the lowest digit of a product sees the next digit of the first operand.
            higher = own & (operand == 0) & (significance != row)
            for below in (i for i, slot in enumerate(self.slots) if slot.rows_below):
                tokens[higher, below] = -1
        return tokens

    def reach(self, operand: int) -> Reach:
        """What decides the symbol that a query of this operand writes."""
        slots = torch.tensor(self.slots)
        shared = slots[:, 1].bool()
        coordinates = Coordinates(
            index=torch.arange(len(slots)),
            significance=torch.where(shared, ROW, COLUMN - slots[:, 3]),
            place=torch.zeros(len(slots), dtype=torch.long),
            operand=slots[:, 0],
            shared=shared,
            row=ROW - slots[:, 2],
        )
        seen = visibility(Pairs(coordinates, len(slots)))
        query = self.query_slot(operand)
        column = seen.column[query]  # what later layers see
        is_query = torch.arange(len(slots)) == query
        order = (2 * is_query + column.int()).argsort(descending=True, stable=True)
        vectors, symbols = seen.hidden_vectors[column].any(0), seen.symbols[column].any(0)
        return Reach(vectors.numpy(), symbols.numpy(), order.numpy(), int(column.sum()))

    def query_slot(self, operand: int) -> int:
        return next(
            i
            for i, slot in enumerate(self.slots)
            if slot.operand == operand and not slot.rows_below and not slot.columns_below
        )

    def number_static_parts(self, tokens: Ints) -> tuple[Ints, Ints]:
        """A number for what never changes in a neighbourhood, and a description of each.

        (b, queries), and (numbers, 1 + slots): the query's slot; then for each slot 0 where no
        token is, 1 where only its symbol is seen, and 2 + the token's kind elsewhere.
        """
        operands = self.at.operand[self.queries]
        codes = np.where(tokens < 0, 0, 2 + self.kinds[:, np.maximum(tokens, 0)])
        own_slots = np.zeros(len(operands), np.int64)
        for operand, reach in self.reached.items():
            own = operands == operand
            own_slots[own] = self.query_slot(operand)
            for hidden in np.flatnonzero(~reach.vectors):
                codes[:, own, hidden] = np.minimum(codes[:, own, hidden], 1)
        key = np.broadcast_to(own_slots, codes.shape[:2])
        for slot in range(codes.shape[2]):
            key = key * (2 + len(self.vectors)) + codes[:, :, slot]
        first, numbers = number_distinct(key.ravel())
        example, query = np.divmod(first, len(operands))
        examples = np.column_stack([own_slots[query], codes[example, query]])
        return numbers.reshape(key.shape), examples

    def find_sources(self, tokens: Ints, writes: NDArray[np.bool_]) -> tuple[list[int], Ints]:
        """The slots where symbols are seen; (queries, slots): the query that writes there or −1."""
        sources = np.full(tokens.shape, -1)
        for operand, reach in self.reached.items():
            own = np.flatnonzero(self.at.operand[self.queries] == operand)
            for slot in np.flatnonzero(reach.symbols):
                found = tokens[own, slot]
                writing = (found >= 0) & writes[np.maximum(found, 0)]
                sources[own, slot] = np.where(writing, np.searchsorted(self.queries, found), -1)
        seen = np.flatnonzero((sources >= 0).any(0)).tolist()
        return seen, sources[:, seen]


def list_slots(at: Coordinates[Ints]) -> list[Slot]:
    """All places that a neighbourhood can have."""
    operands = {
        int(operand): bool(at.shared[at.operand == operand].any())
        for operand in np.unique(at.operand)
    }
    return [
        Slot(operand, shared, rows_below, columns_below)
        for rows_below in range(2 if at.row.any() else 1)
        for operand, shared in operands.items()
        for columns_below in range(1 if shared else 2)
        if not (shared and rows_below)
    ]


def tabulate(at: Coordinates[Ints]) -> tuple[Ints, int]:
    """(rows, operands, columns): the token at each place or −1, and the lowest column."""
    lowest = int(at.significance.min())
    shape = int(at.row.max()) + 1, int(at.operand.max()) + 1, int(np.ptp(at.significance)) + 1
    table = np.full(shape, -1)
    table[at.row, at.operand, at.significance - lowest] = np.arange(len(at.row))
    return table, lowest


def invert(sources: Ints) -> Ints:
    """(queries, most): the queries that have each one among their sources, and −1."""
    query, slot = np.nonzero(sources >= 0)
    source = sources[query, slot]
    order = source.argsort(kind="stable")
    source, query = source[order], query[order]
    counts = np.bincount(source, minlength=len(sources))
    place = np.arange(len(source)) - (counts.cumsum() - counts)[source]
    table = np.full((len(sources), max(1, int(counts.max(initial=0)))), -1)
    table[source, place] = query
    return table


def number_distinct(values: NDArray[Any]) -> tuple[Ints, Ints]:
    """Where each distinct value first is, in ascending order, and (n,): which of them each is.

    `np.unique` with `return_index` and `return_inverse` is slower: it sorts the places, too.
    """
    distinct = np.unique(values)
    numbers = np.searchsorted(distinct, values)
    first = np.empty(len(distinct), np.int64)
    first[numbers[::-1]] = np.arange(len(values))[::-1]  # the last assignment is the first place
    return first, numbers


def distinct_vectors(start: Tensor, at_once: int = 1 << 14) -> tuple[Ints, Tensor]:
    """The distinct rows of (b, j, width), and (b, j): which of them each is."""
    rows = start.flatten(0, 1)
    direction = torch.from_numpy(np.random.default_rng(0).normal(size=rows.shape[1])).to(rows)
    parts = rows.split(at_once)
    projections = np.concatenate([(part.detach() @ direction).cpu().numpy() for part in parts])
    first, kinds = number_distinct(projections)
    # Equal rows may have been projected with other rounding.
    _, same = torch.unique(rows[torch.from_numpy(first)].detach(), dim=0, return_inverse=True)
    _, place = np.unique(same.cpu().numpy(), return_index=True)
    kinds, first = same.cpu().numpy()[kinds], first[place]
    vectors, chosen = rows[torch.from_numpy(first)], torch.from_numpy(kinds).to(rows.device)
    for part, own in zip(parts, chosen.split(at_once), strict=True):
        assert torch.equal(part, vectors[own]), "distinct vectors have distinct projections"
    return kinds.reshape(start.shape[:2]), vectors
