"""Runs side by side: what differs, accuracy by length over seeds, learning curves."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from lengthwise.base import UsageError
from lengthwise.base.files import writing
from lengthwise.evaluation.analysis import Spread, over_seeds
from lengthwise.evaluation.drawing import COLOURS, count_examples, line, percent, shade_trained
from lengthwise.training.differences import check_keys, differences, flatten, label, matches
from lengthwise.training.experiment import Experiment
from lengthwise.training.overview import summarise_run
from lengthwise.training.runs import ConfigReader, Run, is_run

Record = dict[str, Any]
MOST_COLUMNS, FEWEST_COLUMNS = 9, 4  # lengths that a table shows
MOST_LISTED = 20  # runs
MOST_VALUES = 12  # of a key
STYLES = ("-", "--", ":", "-.")
SUFFIXES = (".png", ".pdf", ".svg")


class Comparison(Sequence[Record]):
    """Runs as plain records, one for each run, with a table, a figure and a DataFrame of them.

    Runs that differ in the seed only are one row of the table and one line of the figure.
    """

    def __init__(
        self,
        runs: Iterable[Run],
        reasons: Mapping[Path, str] | None = None,
        is_pattern: bool = False,
        skipped: Mapping[str, str] | None = None,
    ):
        """`reasons` say why runs failed, `skipped` why some can't be read.

        Runs that a pattern found are sorted by their keys, and damaged ones are skipped.
        """
        self.runs: list[Run] = []
        self.evaluations: list[list[Record]] = []  # during training, of each run
        self.records: list[Record] = []
        self.skipped = dict(skipped or {})  # runs that can't be read, with the reason
        for run in runs:
            try:
                evaluations, record = run.evaluations(), summarise_run(run)
            except UsageError as error:
                if not is_pattern:
                    raise
                self.skipped[str(run.path)] = str(error)
            else:
                self.runs.append(run)
                self.evaluations.append(evaluations)
                self.records.append({**record, "failure": (reasons or {}).get(run.path)})
        if not self.runs:
            why = next(iter(self.skipped.values()), "`lengthwise runs` lists the runs")
            raise UsageError(f"there is no run to compare; {why}")
        flats = [{**flatten(run.experiment), **code_keys(run)} for run in self.runs]
        merge_origins(flats, [run.experiment for run in self.runs])
        self.differing = differences(flats)
        rows = [key for key in self.differing if key != "seed"]
        for record, flat in zip(self.records, flats, strict=True):
            record["keys"] = {key: flat.get(key) for key in self.differing}
            record["label"] = label(flat, rows) or f"{record['task']}, {record['position']}"
        if is_pattern:
            self.sort_by_keys()

    def sort_by_keys(self) -> None:
        """Put the runs in the order of the keys in which they differ."""
        together = zip(self.runs, self.evaluations, self.records, strict=True)
        ordered = sorted(together, key=lambda one: [*map(sort_key, one[2]["keys"].values())])
        self.runs, self.evaluations, self.records = map(list, zip(*ordered, strict=True))

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return self.table()

    def groups(self) -> list[tuple[str, list[int]]]:
        """The places of the runs that differ in the seed only, with their label."""
        found: dict[str, tuple[str, list[int]]] = {}
        for place, record in enumerate(self.records):
            alike = json.dumps({**record["keys"], "seed": None}, sort_keys=True)
            found.setdefault(alike, (record["label"], []))[1].append(place)
        return list(found.values())

    def summary(self) -> list[Record]:
        """A row for each group: its keys, how many seeds, mean and spread of the exact match."""
        rows = []
        for name, places in self.groups():
            tested = [self.records[place] for place in places]
            lengths = sorted({n for record in tested for n in record["accuracy"]})
            keys = {k: v for k, v in tested[0]["keys"].items() if k != "seed"}
            rows.append(
                {
                    "label": name,
                    "keys": keys,
                    "runs": [record["run"] for record in tested],
                    "seeds": sorted(record["seed"] for record in tested),
                    "finished": sum(record["status"] == "finished" for record in tested),
                    "accuracy": {n: vars(spread_at(tested, n)) for n in lengths},
                }
            )
        return rows

    def table(self, width: int | None = None) -> str:
        """Mean ± standard deviation of the exact match in percent, by length.

        Lengths are left out until a line has at most `width` characters.
        """
        rows = self.summary()
        lengths = {n for row in rows for n in row["accuracy"]}
        for most in range(MOST_COLUMNS, FEWEST_COLUMNS - 1, -1):
            lines = self.table_lines(rows, choose_lengths(lengths, self.train_digits, most))
            if width is None or len(lines[1]) <= width:
                break
        return "\n".join(lines)

    def table_lines(self, rows: Sequence[Record], lengths: Sequence[int]) -> list[str]:
        lines = [["exact match (%)", "seeds", *(f"{n} digits" for n in lengths)]]
        for row in rows:
            cells = [cell(row["accuracy"].get(n)) for n in lengths]
            left = len(row["runs"]) - row["finished"]
            count = f"{len(row['runs'])}" + (f" ({left} not finished)" if left else "")
            lines.append([row["label"], count, *cells])
        return align(lines)

    def describe(self, width: int | None = None) -> str:
        """What differs, the runs, accuracy by length, and how it was learned, as text."""
        parts = ["\n".join(self.describe_differences())]
        if len(self) <= MOST_LISTED:
            rows = [[record["run"], record["label"], str(record["seed"])] for record in self]
            parts.append("\n".join(align([["run", "condition", "seed"], *rows])))
        parts.append(self.table(width))
        if learning := self.learning_table():
            parts.append(learning)
        return "\n\n".join(parts)

    def describe_differences(self) -> list[str]:
        """A line for each key in which the runs differ, with its values."""
        if not self.differing:
            return ["the configurations are the same"]
        lines = ["the configurations differ in"]
        for key in self.differing:
            values = [record["keys"][key] for record in self]
            if all(isinstance(value, int | float) for value in values):
                values.sort()
            distinct = list(dict.fromkeys(str(value) for value in values if value is not None))
            rest = [f"… ({len(distinct)} values)"] if len(distinct) > MOST_VALUES else []
            lines.append(f"  {key}: {', '.join(distinct[:MOST_VALUES] + rest)}")
        return lines

    def learning_table(self, length: int | None = None) -> str:
        """Mean exact match at one length, as training went on; empty if nothing was tested."""
        tested = self.curve_length(length)
        curves = [(name, self.curve_points(places, tested)) for name, places in self.groups()]
        seen = sorted({count for _, points in curves for count in points})
        if not seen:
            return ""
        shown = [seen[round(i * (len(seen) - 1) / 5)] for i in range(6)] if len(seen) > 6 else seen
        lines = [[f"{tested} digits (%) after", *(f"{count:,}" for count in shown)]]
        for name, points in curves:
            means = {count: over_seeds(values).mean for count, values in points.items()}
            cells = [f"{100 * means[count]:.1f}" if count in means else "" for count in shown]
            lines.append([name, *cells])
        return "\n".join([*align(lines), "examples of training"])

    @property
    def train_digits(self) -> int:
        return min(run.experiment.data.train_digits for run in self.runs)

    def plot(self, out: str | Path | None = None, length: int | None = None) -> Any:
        """A matplotlib figure: accuracy by length, and learning curves at one length.

        `length` is by default one digit more than trained, or the longest that was tested. `out`
        saves it as PNG, PDF or SVG.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        groups = self.groups()
        tested = self.curve_length(length)
        for number, (name, places) in enumerate(groups):
            colour, style = find_style(number, len(groups))
            records = [self.records[place] for place in places]
            lengths = sorted({n for record in records for n in record["accuracy"]})
            points = {n: [r["accuracy"][n] for r in records if n in r["accuracy"]] for n in lengths}
            line(left, points, name, colour, style=style)
            line(right, self.curve_points(places, tested), "", colour, style=style)
        left.set_xlabel("digits")
        percent(left)
        left.xaxis.get_major_locator().set_params(integer=True)
        shade_trained(left, self.train_digits)
        percent(right, f"exact match (%), {tested} digits")
        count_examples(right)
        for axis in (left, right):
            axis.spines[["top", "right"]].set_visible(False)
        finish_legend(figure, left)
        if out is not None:
            save_figure(figure, out)
        return figure

    def curve_length(self, length: int | None) -> int | None:
        """The length whose learning curves are drawn."""
        tested = {n for run in self.runs for n in run.experiment.lengths}
        if length is not None and length not in tested:
            shown = ", ".join(map(str, sorted(tested)))
            raise UsageError(f"{length} digits were not tested during training, but {shown}")
        beyond = sorted(n for n in tested if n > self.train_digits)
        return length or (beyond[0] if beyond else max(tested))

    def curve_points(self, places: Sequence[int], length: int | None) -> dict[int, list[float]]:
        """Exact match by the examples seen, for each seed."""
        points: dict[int, list[float]] = {}
        for place in places:
            for record in self.evaluations[place]:
                for accuracy in record["evaluation"]:
                    if accuracy["length"] == length:
                        points.setdefault(record["examples"], []).append(accuracy["exact_match"])
        return dict(sorted(points.items()))

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values, for files and scripts."""
        whole = {"differ in": self.differing, "summary": self.summary(), "runs": self.records}
        return json.loads(json.dumps({**whole, "skipped": self.skipped}))

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row for each run and each length; needs pandas."""
        try:
            import pandas as pd
        except ImportError:
            raise UsageError("pandas is not installed; `pip install pandas` adds it") from None
        plain = ("run", "status", "task", "layout", "position", "seed", "parameters", "seconds")
        rows = [
            {
                **{key: record[key] for key in plain},
                **record["keys"],
                "length": length,
                "exact_match": share,
            }
            for record in self.records
            for length, share in record["accuracy"].items()
        ]
        return pd.DataFrame(rows)


def compare(
    *runs: Run | str | Path, where: Mapping[str, Any] | None = None, root: str | Path = "runs"
) -> Comparison:
    """Runs side by side: given as such, as paths, names or patterns such as "runs/add*".

    Without any, all runs in `root`. `where` keeps those with these values of keys, as in
    {"model.position": "rope", "seed": [0, 1]}.
    """
    check_keys(where or {})
    given = runs or (str(Path(root) / "*"),)
    paths = [found for each in given for found in find_paths(each, Path(root))]
    is_pattern = not all(is_named for _, is_named in paths)
    found: dict[Path, Run] = {}
    reader = ConfigReader()
    skipped: dict[str, str] = {}
    for path, is_named in paths:
        try:
            run = path if isinstance(path, Run) else Run(path, reader)
            if not where or matches(flatten(run.experiment), where):
                found.setdefault(run.path.resolve(), run)
        except UsageError as error:
            if is_named:
                raise
            skipped[str(path)] = str(error)
    if not found and where:
        raise UsageError(f"no run has {describe_where(where)}")
    return Comparison(found.values(), is_pattern=is_pattern, skipped=skipped)


def describe_where(where: Mapping[str, Any]) -> str:
    """The condition as it is written on the command line.

    >>> describe_where({"model.position": "rope", "seed": [0, 1]})
    'model.position=rope and seed=0,1'
    """
    values = {key: v if isinstance(v, list | tuple | range) else [v] for key, v in where.items()}
    return " and ".join(f"{key}={','.join(map(str, found))}" for key, found in values.items())


def sort_key(value: Any) -> tuple[bool, float, str]:
    """Numbers by their size, then everything else as text.

    >>> sorted(["rope", 100, 20, None], key=sort_key)
    [20, 100, None, 'rope']
    """
    is_number = isinstance(value, int | float)
    return not is_number, value if is_number else 0, str(value)


def merge_origins(flats: Sequence[Record], experiments: Sequence[Experiment]) -> None:
    """Name origins alike that differ in the seed only, where each is of its run's own seed.

    So the seeds of fine-tuned runs are one condition.
    """
    reader = ConfigReader()
    families: dict[str, dict[int, str]] = {}  # paths of origins by seed
    keys = [json.dumps(seedless_origin(e, reader), sort_keys=True) for e in experiments]
    for key, experiment in zip(keys, experiments, strict=True):
        families.setdefault(key, {}).setdefault(experiment.seed, str(experiment.start_from))
    for key, flat in zip(keys, flats, strict=True):
        paths = families[key]
        if paths[flat["seed"]] == flat["start_from"] and len(set(paths.values())) > 1:
            flat["start_from"] = f"{next(iter(paths.values()))} and other seeds"


def seedless_origin(experiment: Experiment, reader: ConfigReader) -> Any:
    """What an experiment starts from; of a run of its own seed, the keys without the seed."""
    path = experiment.start_from
    if path is None or not is_run(Path(path)):
        return path
    try:
        origin = Run(path, reader).experiment
    except UsageError:
        return path
    if origin.seed != experiment.seed:
        return path
    return {**flatten(origin), "seed": None, "start_from": seedless_origin(origin, reader)}


def code_keys(run: Run) -> Record:
    """Digests of the user's own code: runs of edited code have the same configuration."""
    return {f"code of the {part}": digest[:8] for part, digest in run.code["digests"].items()}


def find_paths(given: Run | str | Path, root: Path) -> list[tuple[Run | Path, bool]]:
    """The runs that a path, a name in the directory of runs, or a pattern stands for.

    Each with whether it was named, and not only found.
    """
    if isinstance(given, Run):
        return [(given, True)]
    if not isinstance(given, str | Path):
        raise UsageError(f"a run is given as such or by its path, not as {given!r}")
    path = Path(given)
    if is_run(path):
        return [(path, True)]
    if not any(sign in str(given) for sign in "*?["):
        inside = root / path
        return [(inside if is_run(inside) else path, True)]
    for pattern in (path, root / path):
        anchor = Path(pattern.anchor) if pattern.anchor else Path()
        relative = str(pattern.relative_to(pattern.anchor)) if pattern.anchor else str(pattern)
        if paths := sorted(p for p in anchor.glob(relative) if is_run(p)):
            return [(p, False) for p in paths]
    raise UsageError(f"there is no run at {given}; `lengthwise runs` lists the runs")


def spread_at(records: Sequence[Record], length: int) -> Spread:
    return over_seeds([r["accuracy"][length] for r in records if length in r["accuracy"]])


def choose_lengths(lengths: set[int], train_digits: int, most: int = MOST_COLUMNS) -> list[int]:
    """Few enough lengths for a table: the ends, those around the trained one, and some between.

    >>> choose_lengths(set(range(5, 36)), 5)
    [5, 6, 9, 14, 19, 23, 28, 33, 35]
    """
    if len(lengths) <= most:
        return sorted(lengths)
    ordered = sorted(lengths)
    kept = {n for n in (train_digits, train_digits + 1) if n in lengths} | {ordered[0], ordered[-1]}
    rest = [n for n in ordered if n not in kept]
    more = most - len(kept)
    return sorted(kept | {rest[round((i + 0.5) * len(rest) / more)] for i in range(more)})


def cell(spread: Mapping[str, Any] | None) -> str:
    if spread is None:
        return ""
    deviation = spread["deviation"]
    mean = f"{100 * spread['mean']:.1f}"
    return mean if deviation is None else f"{mean} ± {100 * deviation:.1f}"


def align(lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns of text: the first to the left, the others to the right, a rule below the first."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = []
    for first, *others in lines:
        cells = [f"{text:>{width}}" for text, width in zip(others, widths[1:], strict=True)]
        texts.append("  ".join([f"{first:<{widths[0]}}", *cells]).rstrip())
    return [texts[0], "─" * max(map(len, texts)), *texts[1:]]


def find_style(number: int, count: int) -> tuple[Any, str]:
    """A colour and a style of line for one of several groups."""
    if count <= len(COLOURS) * len(STYLES):
        return COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS)]
    import matplotlib

    return matplotlib.colormaps["viridis"](0.95 * number / (count - 1)), "-"


def finish_legend(figure: Any, axis: Any) -> None:
    """One legend below the panels; of very many lines, a part."""
    handles, labels = axis.get_legend_handles_labels()
    shown = 24
    if len(labels) > shown:
        labels[shown - 1] = f"… and {len(labels) - shown + 1} more"
    columns = max(1, min(4, int(100 / (max(map(len, labels[:shown]), default=1) + 6))))
    figure.legend(
        handles[:shown],
        labels[:shown],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


def save_figure(figure: Any, out: str | Path) -> None:
    """Write a figure in the format that the file's name ends with."""
    path = Path(out)
    check_figure_name(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)


def check_figure_name(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"a figure is written as {', '.join(SUFFIXES)}, not as '{path.name}'")
