"""Find the prefixes that rows share, so that each is computed once."""

from __future__ import annotations

import os.path
from collections.abc import Sequence

from vjudge.engines.rows import Prefix, Tokenized

MIN_PREFIX = 8  # tokens; computing a shorter prefix apart saves nothing


def share_prefixes(rows: Sequence[Tokenized], image_token_id: int | None) -> list[Prefix]:
    """Give each row a prefix that holds all its images, and share prefixes where that saves most.

    The rows come sorted by images and text, so that one pass over them suffices (a greedy
    algorithm). A row joins the newest prefix, which is cut to what both have in common, if this
    saves more tokens than a prefix of its own. A prefix of its own has all its tokens but the last.

        tokens of rows        prefix        rows  saved if joined       saved if split
        a b c d e f | 1       a b c d e f   2     2 x 4 (a b c d,       1 x 6 (a b c d e f,
        a b c d e f | 2                           once for three)       once for two)
        a b c d x y | 3       <- joins: the prefix is now a b c d

    Args:
        rows: their tokens; `row.prefix` is set.
        image_token_id: the token that stands at an image's places; None for a model without images.

    Returns:
        The distinct prefixes, by their slots in the shared cache.
    """
    prefixes: list[Prefix] = []
    newest = Prefix([], (), 0)
    n_sharing = 0  # rows that have the newest prefix
    for row in rows:
        # 1) the shortest prefix that the row can have: up to its last image
        n_needed = MIN_PREFIX
        if image_token_id in row.ids:
            n_needed = max(n_needed, len(row.ids) - row.ids[::-1].index(image_token_id))
        # 2) how many tokens are saved, if the row joins the newest prefix, and if it does not
        n_common = len(os.path.commonprefix([newest.ids, row.ids[:-1]]))
        saved_if_joined = n_sharing * n_common
        saved_if_split = (n_sharing - 1) * len(newest.ids)
        # 3) join, or begin a new prefix
        can_join = newest.keys == row.keys and n_common >= n_needed
        if can_join and saved_if_joined > saved_if_split:
            newest.ids = row.ids[:n_common]
        else:
            newest = Prefix(row.ids[:-1], row.keys, len(prefixes))
            prefixes.append(newest)
            n_sharing = 0
        n_sharing += 1
        row.prefix = newest
    return prefixes
