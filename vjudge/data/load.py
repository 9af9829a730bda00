"""Where collections come from: names, files, folders, the hub; and `rows_of` for rows in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import datasets
from datasets import Dataset

from vjudge.data import photos, scenes
from vjudge.data.adapters import ADAPTERS, Adapter
from vjudge.data.collection import as_rows, make_collection, origin, record_origin
from vjudge.data.files import SUFFIXES, chosen, rows_of_file, splits_of
from vjudge.data.rows import Rows
from vjudge.data.schema import PICTURE_COLUMNS, CollectionError, Items
from vjudge.records import is_int_at_least


def rows_of(
    items: Items, *, columns: Mapping | None = None, people: Sequence | None = None
) -> Rows:
    """Bring whatever a user gives into canonical rows, as all functions that take items do.

    Args:
        items: a `datasets.Dataset`; a DataFrame; a list of rows, `Item`s or `Pair`s; a single row,
            `Item` or `Pair`; or a name or a path that `load_collection` takes. Any column of
            `vjudge.records.IMAGE_COLUMNS` may hold images, one or a list of them: each a path,
            bytes, an array, a PIL image, the {"bytes", "path"} dict of the datasets library or a
            data URI.
        columns, people: as for `load_collection`.

    Returns:
        The rows. Each is read when it is asked for, its images undecoded.

    Raises:
        CollectionError: `items` is no collection. When a row is read: the row cannot be brought
            into canonical form.

    >>> row = {"id": 1, "image_path": "a.png", "instruction": "What is it?", "response": "A cat."}
    >>> rows_of([row])[0]["images"]
    ['a.png']
    """
    if isinstance(items, (str, Path)):
        return Rows(load_collection(items, columns=columns, people=people))
    return as_rows(items, columns, people)


def check_pictures(items: Items) -> None:
    """Refuse a collection without a column of images, for a model that looks at images.

    Columns of the responses' images count, too. The first row with images decides; where a row that
    cannot be read comes before it, the collection passes, as the code that reads the row reports
    it.

    Raises:
        CollectionError: no column names an image; the message lists the columns.
    """
    rows = rows_of(items)
    for _, row, faults in rows.checked():
        if faults or any(row.get(name) is not None for name in PICTURE_COLUMNS):
            return
    raise CollectionError(
        "this judge looks at pictures, and no column names one (the columns are"
        f" {', '.join(rows.columns)}): add a column with paths, or rename yours to `images`; an"
        " `images` column of empty lists says on purpose that there are none"
    )


def load_collection(
    source: object,
    *,
    columns: Mapping[str, str] | None = None,
    people: Sequence[str] | None = None,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    revision: str | None = None,
    schema: str | None = None,
    questions: bool = False,
) -> Dataset:
    """Load a collection by name, from local files, from the hub, or from rows in memory.

    Args:
        source: one of
            - "scenes", "drawings" or "photos";
            - the hub id of a published data set (`vjudge.data.adapters.ADAPTERS`);
            - a .jsonl, .json, .csv, .tsv or .parquet file, such as an export of Label Studio
              (JSON) or Argilla;
            - a folder: with one such file, with one per split (test.jsonl), with the files of a
              published set, with images and metadata.csv, or from `datasets.save_to_disk`;
            - a frame, a data set, a list of rows or one row.
            The columns are the canonical ones or those of any published set.
        columns: what other columns are, theirs first: {"question": "instruction"}.
        people: the columns of people's scores, one per rater, in the raters' order. None takes
            rater1, ann_2, human_3, annotator_a and the like where they hold numbers on the scale,
            with a warning that names them.
        split: which split to load, where there are several; "pointwise" or "pairwise" for
            LLaVA-Critic-113k, whose rows hold `prompt` and `target` for `fine_tune`.
        limit: at most this many rows, the first ones; None for all.
        seed: of a generated collection.
        revision: commit of a hub data set, None for the newest.
        schema: the published set whose columns a file has, such as "Feedback-Bench"; None finds it
            by the columns and, where several sets have the same, by the name of file or folder.
        questions: whether rows may lack responses, which a policy then writes:
            `items.remove_columns("response").add_column("response", answers)`.

    Returns:
        A `datasets.Dataset` with the canonical columns of items, pairs or candidates, then any
        further columns. Images decode when a row is read; relative paths start at the file's
        folder, those of other sources at the working directory. Bad rows of a published set are
        kept, with the reason in `fault`: `items.filter(lambda row: row["fault"] is None)` drops
        them.

    Raises:
        CollectionError: the source cannot be found or read, or rows of it cannot be used. The
            error lists every bad row: a cell that its column cannot hold, no instruction, no
            response or only one of two, an image file that does not exist, a repeated id.

    >>> load_collection("scenes", split="test", limit=5).num_rows
    5
    >>> mine = [{"question": "What is it?", "output": "A cat.", "ann_1": 4, "ann_2": None}]
    >>> items = load_collection(
    ...     mine,
    ...     columns={"question": "instruction", "output": "response"},
    ...     people=["ann_1", "ann_2"],
    ... )
    >>> items[0]["instruction"], items[0]["human_scores"]
    ('What is it?', [4.0, nan])
    """
    if limit is not None and not is_int_at_least(limit, 0):
        raise CollectionError(f"limit={limit!r}: use a whole number, or None for all rows")
    needed = ["instruction"] if questions else ["instruction", "response"]
    # Every source below ends in `gather(rows, ...)`, which brings its rows into a data set.
    gather = partial(make_collection, columns=columns, people=people, limit=limit, needed=needed)
    # 1) rows in memory
    if not isinstance(source, str | Path):
        return gather(source, schema=schema)

    # 2) a collection of this package
    name = str(source)
    path = Path(name).expanduser()
    if name in ("scenes", "drawings"):
        return gather(scenes.rows(split, limit, seed, drawn=name == "drawings"))
    if name == "photos":
        return gather(photos.rows(split, limit))

    # 3) a local file or folder
    if path.exists():
        return _load_path(path, split, schema, gather)

    # 4) a published set on the hub
    hub_ids: list[str] = []
    for adapter in ADAPTERS:
        hub_ids += adapter.ids
        if name in adapter.ids:
            return _fetch(name, adapter, split, revision, gather)
    raise CollectionError(
        f"unknown collection {name!r}: no such name, and no such file or folder seen from"
        f" {str(Path.cwd())!r}. Names: scenes, drawings, photos, {', '.join(hub_ids)}. Files:"
        f" {', '.join(SUFFIXES)}, or from datasets.save_to_disk. Of another hub data set, pass what"
        " datasets.load_dataset returns"
    )


def canonical(rows: Items, *, schema: str | None = None) -> Dataset:
    """Bring rows into a data set of the canonical columns.

    Args:
        rows: what `rows_of` takes, in the canonical columns or in those of a published set.
        schema: as for `load_collection`.

    Returns:
        As `load_collection`. A missing id becomes the row's number; a missing group the image's
        path, else a digest of its file, else the id. Further columns follow, as text where types
        mix.

    Raises:
        CollectionError: see `load_collection`.
    """
    if isinstance(rows, (str, Path)):
        return load_collection(rows, schema=schema)
    return make_collection(rows, schema=schema)


def _load_path(
    path: Path, split: str | None, schema: str | None, gather: Callable[..., Dataset]
) -> Dataset:
    """Load one split of a local file or folder.

    Args:
        path: of the file or folder.
        split, schema: as for `load_collection`.
        gather: `make_collection` with the user's options.
    """
    tables = splits_of(path)
    name = chosen(path, split, tables)
    rows = tables[name]
    folder = path  # where relative image paths start
    names = [name, path.name]
    if isinstance(rows, Path):  # a file whose rows are not read yet
        folder = rows.parent
        names = [name, rows.stem, folder.name]
        rows = rows_of_file(rows)
    items = gather(rows, folder, schema=schema, names=names)
    if origin(items).get("source"):  # a loaded collection that the user saved
        return items
    return record_origin(items, source=str(path), split=name or None)


def _fetch(
    name: str,
    adapter: Adapter,
    split: str | None,
    revision: str | None,
    gather: Callable[..., Dataset],
) -> Dataset:
    """Load a published set from the hub, and record the commit that it came from.

    Args:
        name: the set's id on the hub.
        adapter: its description.
        split, revision: as for `load_collection`.
        gather: `make_collection` with the user's options.
    """
    import huggingface_hub

    # Where a set has configurations, the user's split is one of these, and not the hub's split.
    chosen_split = chosen(name, split, adapter.configs or (adapter.split,))
    # Without a network the commit stays unknown; where there is no copy either, `load_dataset`
    # raises the error.
    commit = None
    with suppress(Exception):
        commit = huggingface_hub.HfApi().dataset_info(name, revision=revision).sha
    config = chosen_split if adapter.configs else None
    try:
        rows = datasets.load_dataset(name, config, split=adapter.split, revision=commit or revision)
    except Exception as error:
        raise CollectionError(
            f"{name!r} could not be loaded from the hub ({type(error).__name__}: {error}); if it"
            f" is gated, accept its terms at https://huggingface.co/datasets/{name} and log in"
            " (hf auth login, or HF_TOKEN)"
        ) from error
    items = gather(rows, adapter=adapter)
    return record_origin(items, source=name, split=chosen_split, revision=revision, commit=commit)
