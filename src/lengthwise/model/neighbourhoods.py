"""Rounds of rewriting on sequences of any length, with each distinct neighbourhood computed once.

In a round, what is written at a token depends only on its neighbourhood: the tokens of its column
and the next lower one, and the symbols written there (`columns.visibility`). Long problems have
millions of tokens but few distinct neighbourhoods. A token whose neighbourhood has not changed
since the last round would be given the same symbol again, so it is left out. Both are exact.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.model.columns import visibility
from lengthwise.model.pairs import Pairs
from lengthwise.problems.layouts import Coordinates

Ints = NDArray[np.int64]
# (vectors (b, j, width), symbols (b, j), coordinates) -> logits (b, j, vocabulary)
Ask = Callable[[Tensor, Tensor, Coordinates[Tensor]], Tensor]

NOTHING = -1  # the symbol where nothing is written yet
AT_ONCE = 4096  # neighbourhoods that the model is asked about in one batch
FEW = 48  # tokens that are faster to visit one by one than as arrays
ROUNDS_OF_A_ROW = 32  # that are computed before the rest is visited in order
BITS = 6  # of a symbol in a key
ROW, COLUMN = 1, 1  # of the query, in the short sequence that stands for a neighbourhood
FAR = -100  # the significance of tokens that are not there: out of every window


class Slot(NamedTuple):
    """A place in a neighbourhood, as seen from its query."""

    operand: int
    shared: bool
    rows_below: int
    columns_below: int


class Neighbourhoods:
    """The tokens of a batch with their neighbourhoods, for coordinates (j,)."""

    def __init__(
        self, start: Tensor, coordinates: Coordinates[Tensor], writes: Tensor, n_out: int, ask: Ask
    ):
        self.ask, self.n_out = ask, n_out
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
        self.dependents = invert(self.sources)
        self.known: dict[int, int] = {}  # the entry of each key
        self.keys, self.entry_of_key = np.empty(0, np.int64), np.empty(0, np.int64)  # sorted
        self.symbols = np.empty(0, np.int64)  # of each entry
        self.logits: list[Tensor] = []

    @property
    def count(self) -> int:
        """How many distinct neighbourhoods the model was asked about."""
        return len(self.symbols)

    def rewrite(self, rounds: int | None = None) -> Tensor:
        """Logits (b, n_out, vocabulary) when no symbol changes any more, or after some rounds.

        No token sees what depends on what is written at itself, so there is one state that no round
        changes, in whatever order tokens are visited. After the first rounds the rest is visited in
        order: a chain of carries would take a round for each of its columns.
        """
        (state, entries, active), done = self.start(), 0
        most = ROUNDS_OF_A_ROW * (1 + int(self.at.row.max()))
        while len(active) and done != rounds:
            if rounds is None and (len(active) <= FEW or done >= most):
                self.finish_in_order(state, entries, active)
                break
            active, done = self.advance(state, entries, active), done + 1
        return self.read(entries)

    def start(self) -> tuple[Ints, Ints, Ints]:
        """What is written at each token, its entry, and the tokens that the first round visits."""
        size = self.static.size
        return np.full(size, NOTHING), np.zeros(size, np.int64), np.arange(size)

    def advance(self, state: Ints, entries: Ints, active: Ints) -> Ints:
        """Write a round at the active tokens; returns those that the next round visits."""
        found = self.look_up(self.make_keys(state, active))
        entries[active] = found
        changes = self.symbols[found] != state[active]
        state[active] = self.symbols[found]
        return self.affected(active[changes])

    def read(self, entries: Ints) -> Tensor:
        """Logits (b, n_out, vocabulary) where the answer is read."""
        read = np.searchsorted(self.queries, np.arange(self.n_out))
        chosen = torch.from_numpy(entries.reshape(self.static.shape)[:, read])
        return torch.cat(self.logits)[chosen.to(self.vectors.device)]

    def logits_of(self, keys: Ints) -> Tensor:
        """The logits (keys, vocabulary) in the neighbourhoods of these keys."""
        entries = torch.from_numpy(self.look_up(keys))
        return torch.cat(self.logits)[entries.to(self.vectors.device)]

    def finish_in_order(self, state: Ints, entries: Ints, active: Ints) -> None:
        """Visit active tokens, each after all that it depends on, and those that they affect."""
        at, count = self.at, len(self.queries)
        is_sum = at.operand == at.operand.max()  # in rows, sums come after the products they add
        keys = (at.significance, is_sum & at.shared.any(), at.row)
        order = np.lexsort([values[self.queries] for values in keys])
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count)
        written, static, ranks = state.tolist(), self.static.ravel(), rank.tolist()
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
                if (entry := self.known.get(key)) is None:
                    self.look_up(np.array([key]))
                    symbols, entry = self.symbols.tolist(), self.known[key]
                entries[token] = entry
                if symbols[entry] != written[token]:
                    written[token] = symbols[entry]
                    for reached in self.dependents[query].tolist():
                        if reached >= 0:
                            heappush(waiting, ranks[reached])
        state[:] = written

    def make_keys(self, state: Ints, active: Ints) -> Ints:
        """A number for the neighbourhood of each token, the same where they are equal."""
        example, query = np.divmod(active, len(self.queries))
        keys: Ints = self.static.ravel()[active]
        for sources in self.sources[query].T:
            symbols = np.where(sources >= 0, state[sources + example * len(self.queries)], NOTHING)
            keys = keys << BITS | (symbols + 1)
        return keys

    def look_up(self, keys: Ints) -> Ints:
        """The entry of each key, after asking the model about those that are new."""
        if len(missing := np.unique(keys[~self.are_known(keys)])):
            for part in np.array_split(missing, -(-len(missing) // AT_ONCE)):
                logits = self.ask_about(part)
                first = len(self.symbols)
                self.logits.append(logits)
                self.symbols = np.append(self.symbols, logits.argmax(-1).cpu().numpy())
                self.known |= zip(part.tolist(), range(first, first + len(part)), strict=True)
            self.keys = np.fromiter(self.known, np.int64, len(self.known))
            self.entry_of_key = np.fromiter(self.known.values(), np.int64, len(self.known))
            order = self.keys.argsort()
            self.keys, self.entry_of_key = self.keys[order], self.entry_of_key[order]
        return self.entry_of_key[np.searchsorted(self.keys, keys)]

    def are_known(self, keys: Ints) -> NDArray[np.bool_]:
        if not len(self.keys):
            return np.zeros(len(keys), bool)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.keys[place] == keys

    def ask_about(self, keys: Ints) -> Tensor:
        """Logits (keys, vocabulary): each neighbourhood is a short sequence of its own."""
        device = self.vectors.device
        dynamic = len(self.sees_symbols)
        static = self.examples[keys >> BITS * dynamic]  # (keys, 1 + slots)
        query_slot, codes = static[:, 0], static[:, 1:]
        symbols = np.full(codes.shape, NOTHING)
        for i, slot in enumerate(self.sees_symbols):
            shift = BITS * (dynamic - 1 - i)
            symbols[:, slot] = (keys >> shift & 2**BITS - 1) - 1
        slots = np.array(self.slots, np.int64)  # (slots, 4)
        columns = np.where(slots[:, 1], ROW, COLUMN - slots[:, 3])
        absent = codes == 0
        significance = np.where(absent, FAR - np.arange(len(slots)), columns)
        # Where only symbols are seen, any vector will do.
        vectors = self.vectors[torch.from_numpy(np.maximum(codes - 2, 0)).to(device)]
        parts = {
            "index": np.arange(len(slots)),
            "significance": significance,
            "place": np.zeros(len(slots), np.int64),
            "operand": slots[:, 0],
            "shared": slots[:, 1].astype(bool),
            "row": ROW - slots[:, 2],
        }
        tensors = {name: torch.from_numpy(values).to(device) for name, values in parts.items()}
        logits = self.ask(vectors, torch.from_numpy(symbols).to(device), Coordinates(**tensors))
        return logits[
            torch.arange(len(keys), device=device), torch.from_numpy(query_slot).to(device)
        ]

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
        for operand, (vectors, symbols) in self.reached.items():
            own = at.operand[queries] == operand
            for unseen in np.flatnonzero(~(vectors | symbols)):
                tokens[own, unseen] = -1
        return tokens

    def reach(self, operand: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The slots whose vectors, and whose symbols, decide what such a query writes."""
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
        column = seen.column[self.query_slot(operand)]  # what later layers see
        vectors, symbols = seen.hidden_vectors[column].any(0), seen.symbols[column].any(0)
        return vectors.numpy(), symbols.numpy()

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
        for operand, (vectors, _) in self.reached.items():
            own = operands == operand
            own_slots[own] = self.query_slot(operand)
            for hidden in np.flatnonzero(~vectors):
                codes[:, own, hidden] = np.minimum(codes[:, own, hidden], 1)
        key = np.broadcast_to(own_slots, codes.shape[:2])
        for slot in range(codes.shape[2]):
            key = key * (2 + len(self.vectors)) + codes[:, :, slot]
        _, first, numbers = np.unique(key, return_index=True, return_inverse=True)
        example, query = np.divmod(first, len(operands))
        examples = np.column_stack([own_slots[query], codes[example, query]])
        return numbers.reshape(key.shape), examples

    def find_sources(self, tokens: Ints, writes: NDArray[np.bool_]) -> tuple[list[int], Ints]:
        """The slots where symbols are seen; (queries, slots): the query that writes there or −1."""
        sources = np.full(tokens.shape, -1)
        for operand, (_, symbols) in self.reached.items():
            own = np.flatnonzero(self.at.operand[self.queries] == operand)
            for slot in np.flatnonzero(symbols):
                found = tokens[own, slot]
                writing = (found >= 0) & writes[np.maximum(found, 0)]
                sources[own, slot] = np.where(writing, np.searchsorted(self.queries, found), -1)
        seen = np.flatnonzero((sources >= 0).any(0)).tolist()
        return seen, sources[:, seen]


def list_slots(at: Coordinates[Ints]) -> list[Slot]:
    """All places that a neighbourhood can have."""
    operands = {int(operand): bool(at.shared[at.operand == operand].any())
                for operand in np.unique(at.operand)}  # fmt: skip
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


def distinct_vectors(start: Tensor, at_once: int = 1 << 14) -> tuple[Ints, Tensor]:
    """The distinct rows of (b, j, width), and (b, j): which of them each is."""
    rows = start.flatten(0, 1)
    direction = torch.from_numpy(np.random.default_rng(0).normal(size=rows.shape[1])).to(rows)
    parts = rows.split(at_once)
    projections = np.concatenate([(part.detach() @ direction).cpu().numpy() for part in parts])
    _, first, kinds = np.unique(projections, return_index=True, return_inverse=True)
    # Equal rows may have been projected with other rounding.
    _, same = torch.unique(rows[torch.from_numpy(first)].detach(), dim=0, return_inverse=True)
    _, place = np.unique(same.cpu().numpy(), return_index=True)
    kinds, first = same.cpu().numpy()[kinds], first[place]
    vectors, chosen = rows[torch.from_numpy(first)], torch.from_numpy(kinds).to(rows.device)
    for part, own in zip(parts, chosen.split(at_once), strict=True):
        assert torch.equal(part, vectors[own]), "distinct vectors have distinct projections"
    return kinds.reshape(start.shape[:2]), vectors
