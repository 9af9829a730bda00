"""What `inspect` finds in collections whose contents are known, and that each method says why it does not apply."""

import pandas as pd
from pytest import approx, mark, raises
from rouge_score import rouge_scorer

from conftest import make_rows
from samples import pair, picture, row
from vjudge.analysis.inspection import inspect, rouge_l
from vjudge.data import CollectionError, load_collection
from vjudge.results import NotComputed, settings

METHODS = "overview question sample scores lengths blind references rubrics pictures people".split()


@mark.parametrize(
    "text, other",
    [
        ("a red cat", "the red cat"),
        ("It is 3.", "it is 3, not 4"),
        ("no", "yes"),
        ("x y z", "z y x"),
    ],
)
def test_rouge_l_is_the_published_one(text, other):
    scorer = rouge_scorer.RougeScorer(["rougeL"])
    assert rouge_l(text, other) == approx(scorer.score(text, other)["rougeL"].fmeasure)


def planted(n=30):
    """Longer is better, the best repeats the reference, and two people differ by one on every third item."""
    rows = []
    for place in range(n):
        gold = place % 5 + 1
        rows.append(
            row(
                str(place),
                response="It is " + "so " * gold + ("a red cat" if gold == 5 else "."),
                reference_answer="a red cat",
                gold=gold,
                human_scores=[gold, min(5, gold + (place % 3 == 0))],
                images=[],
                group=f"g{place // 5}",
            )
        )
    return rows


def test_what_was_planted_is_found():
    look = inspect(planted())
    facts = look.overview().table.loc[0]
    assert (facts["rows"], facts["criteria"], facts["group"], facts["with human_scores"]) == (
        30,
        1,
        6,
        30,
    )
    assert look.scores().table.iloc[0].tolist() == ["True?", 6, 6, 6, 6, 6]
    assert "right for 20.0% of the items" in look.scores().reading
    words = look.lengths().table.set_index("unit").loc["words"]
    assert words["auc"] == 1 and "is beyond chance (.50)" in look.lengths().reading
    blind = look.blind().table.set_index("judge")
    assert (
        blind.loc["length", "estimate"] == approx(1)
        and "length agrees best with true score" in look.blind().reading
    )
    shares = look.references().table
    assert (
        shares["true score"].tolist() == [1, 2, 3, 4, 5] and shares["50%"].tolist()[:4] == [0] * 4
    )
    alike = inspect([row(str(n), images=[], human_scores=[3, 3]) for n in range(4)]).people()
    assert "alpha (interval), which is undefined: all items that two people" in alike.reading
    assert look.people().table.set_index("coefficient").loc["within_one", "estimate"] == 1
    assert look.sample(3).table["id"].is_unique and len(look.sample(3).table) == 3
    unrelated = inspect(
        [each | {"response": "ab"[n // 5 % 2] + " c d"} for n, each in enumerate(planted())]
    )
    assert "can't be told from chance" in unrelated.lengths().reading


def test_pictures_are_counted_by_their_content(tmp_path):
    files = [picture(tmp_path, f"{name}.png", colour) for name, colour in ("ar", "br", "cb") for colour in [{"r": "red", "b": "blue"}[colour]]]  # fmt: skip
    rows = [row(str(n), images=[str(tmp_path / name)]) for n, name in enumerate([*files, files[0]])]
    result = inspect(rows).pictures()
    assert (
        result.table.iloc[0].tolist() == [4, 4, 2, 4] and "2 pictures in 1 size" in result.reading
    )
    rows[1]["images"] = [str(tmp_path / "gone.png")]
    with raises(CollectionError, match=r"images\[0\]: .*gone.png.*does not exist"):
        inspect(rows)


def test_a_question_shows_every_image_of_a_response(tmp_path):
    names = ["asked.png", "first.png", "second.png"]
    asked, *drawn = (str(tmp_path / picture(tmp_path, name, "red")) for name in names)
    items = [row("a", images=[asked], response_images=drawn), row("b", images=[asked])]
    figure = inspect(items).question("a").plot()
    assert [ax.get_title() for ax in figure.axes] == ["1", "a: response", "a: response (2)"]


def test_rubrics_are_compared_two_by_two():
    texts = ["Is it red?", "Is it red and round?", "How well is it written?"]
    result = inspect(
        [row(str(n), criteria=text, images=[]) for n, text in enumerate(texts)]
    ).rubrics()
    assert "3 distinct rubrics" in result.reading and len(result._data) == 3
    assert result._data["criteria alone"].max() == approx(2 * 3 / (3 + 5))


GERMAN = [
    {
        "instruction": "Was ist zu sehen?",
        "response": "Ein Hund " * (n % 3 + 1),
        "human_scores": [n % 5 + 1, None, 3],
    }
    for n in range(20)
]
PAIRS = [pair(str(n), "one " * (n % 3 + 1), "two two", preference="ab"[n % 2]) for n in range(8)]
KINDS = {  # the methods that do not apply
    "whole": (make_rows(20), "rubrics"),
    "german": (GERMAN, "references rubrics pictures"),
    "pairs": (PAIRS, "scores blind references rubrics pictures people"),
    "pairs without a choice": ([pair("a")], "scores lengths blind references rubrics pictures people"),
    "unscored": ([row(images=[])], "scores lengths blind references rubrics pictures people"),
    "no rubric": ([{"instruction": "?", "response": "!", "gold": n} for n in range(9)], "blind references rubrics pictures people"),
    "one score": ([row(str(n), gold=3, images=[]) for n in range(4)], "blind references rubrics pictures people"),
    "frame": (pd.DataFrame(planted()), "rubrics pictures"),
}  # fmt: skip


@mark.filterwarnings("error::UserWarning")
@mark.parametrize("kind", KINDS)
def test_each_method_shows_its_result_or_says_what_is_needed(kind, tmp_path):
    items, absent = KINDS[kind]
    settings(n_resamples=100)
    look = inspect(items)
    for name in METHODS:
        result = getattr(look, name)()
        if name in absent.split():
            assert not result.computed and len(result.reason) > 10, name
            with raises(NotComputed):
                result.table  # noqa: B018
            continue
        assert result.computed and result._bundles(), (name, result.reason)
        result.save(folder=tmp_path)
        assert result.caption and len(result.table)
    settings(n_resamples=2_000)


def test_scenes_can_not_be_scored_without_looking():
    """What its page says of it: every score equally often, and neither length nor shared words tell one."""
    settings(n_resamples=200)
    look = inspect(load_collection("scenes", split="test"))
    assert look.scores().table.drop(columns="criterion").sum().nunique() == 1
    tests = look.lengths().table
    assert tests[["auc", "within"]].stack().between(0.46, 0.54).all()
    assert look.blind().table["estimate"].abs().max() < 0.1
    assert (
        look.overview().table["criteria"].item() >= 40
        and look.question().table["text"].str.len().min() > 0
    )
    settings(n_resamples=2_000)


def test_one_question_is_shown_whole_and_an_unknown_one_is_refused():
    look = inspect(planted())
    table = look.question("7").table.set_index("what")["text"]
    assert table["instruction"] == "Say." and table["score 5"] == "all"
    assert [name for name in table.index if name.endswith(": response")] == [
        f"{n}: response"
        for n in range(5, 10)  # its group's, lowest true score first
    ]
    assert look.question("nobody").reason == "no row has the id 'nobody'"
