"""What is refused before any work: rows without a target, a cue in length or score, test items in the training."""

import re

from PIL import Image
from pytest import mark, raises
from training_cases import rows_with_feedback, train

from samples import pair
from vjudge.data import CollectionError
from vjudge.training import checks


def test_everything_wrong_with_the_rows_is_said_at_once(random_judge, tmp_path):
    rows = rows_with_feedback(10)
    broken = tmp_path / "broken.jpg"
    Image.effect_noise((200, 200), 90).convert("RGB").save(broken)
    broken.write_bytes(broken.read_bytes()[:3000])  # its header is sound, its pixels are not
    long = [f"{level} {'words ' * 600}" for level in rows[4]["descriptions"]]
    wrong = {
        1: ({"feedback": None}, "feedback: is missing"),
        3: ({"gold": None}, "whole score"),
        4: ({"descriptions": long}, r"have \d+ \+ \d+ tokens, .* limit is \d+; shorten"),
        6: ({"images": [str(tmp_path / "gone.png")]}, "gone.png"),
        7: ({"feedback": "Fine. So the overall score is 1."}, ""),
        8: ({"images": [str(broken)]}, "broken.jpg"),
    }
    for index, (cells, _) in wrong.items():
        rows[index] |= cells
    with raises(CollectionError) as caught:
        train(random_judge, tmp_path / "out", rows)
    found = {problem.index: str(problem) for problem in caught.value.problems}
    assert found.keys() == wrong.keys() and not (tmp_path / "out").exists()
    for index, (_, message) in wrong.items():
        assert re.search(message, found[index])


def test_an_unbalanced_collection_is_refused_with_the_figure():
    longer = [row | {"response": "word " * int(row["gold"])} for row in rows_with_feedback(40)]
    rows = rows_with_feedback(40)
    few = [row for number, row in enumerate(rows) if row["gold"] != 2 or number < 5]
    pairs = []
    for number in range(8):  # questions differ far more in length than their two responses do
        one, other = "c " * 5**number, "c " * (5**number + 1)
        row = pair(str(number), one, other, instruction=str(number))
        pairs.append(row | {"preference": "abbb"[number % 4]})
    for rows, allow, figure, message in (
        (longer, "length", {"auc": 1.0}, r"with probability 1\.00"),
        (few, "scores", {"ratio": 8.0}, r"8\.0 times as frequent as the rarest"),
        (pairs, "length", {"auc": 0.75}, r"with probability 0\.75"),
    ):
        with raises(CollectionError, match=message):
            checks.check_balance(rows)
        assert figure.items() <= checks.check_balance(rows, allow=[allow]).items()


def test_leakage_is_found_by_pixels_and_by_texts(tmp_path):
    rows = rows_with_feedback(4)
    for number, row in enumerate(rows):
        row |= {"images": [Image.new("RGB", (8, 8), (number, 0, 0))], "response": f"{number}"}
    rows[1]["images"][0].save(tmp_path / "same.png")
    test = [rows[0] | {"images": [Image.new("RGB", (8, 8), "blue")]}]
    test.append(rows[3] | {"images": [str(tmp_path / "same.png")], "response": "another"})
    with raises(CollectionError) as caught:
        checks.check_leakage(rows, test)
    assert [(p.index, p.field) for p in caught.value.problems] == [(0, "response"), (1, "images")]
    assert checks.check_leakage(rows, test, allow=["leakage"]) == 2
    assert checks.check_leakage(rows[2:3], test) == 0
    (tmp_path / "same.png").write_bytes(b"no picture")  # unseen is not unlike
    with raises(CollectionError, match="row 1 .*images: .*same.png"):
        checks.check_leakage(rows, test, allow=["leakage"])


@mark.parametrize(
    "options, message",
    [
        ({"quantization": "4bit"}, "add lora=True"),
        ({"recipe": "mine"}, "recipe 'mine' is unknown"),
        ({"freeze": ["head"]}, r"freeze=\['head'\]: use tower, projector, decoder"),
        ({"freeze": ["tower", "projector", "decoder"]}, "nothing to train"),
        (dict(freeze=["decoder"], lora=True), "leave one of them out"),
        ({"rows_at_once": 3}, "no multiple"),
        ({"batch_size": -2}, "batch_size=-2: use a whole number from 1"),
        ({"lora": 8}, "lora=8: use True, or options"),
        ({"template": "llava-critic-pair"}, "'llava-critic-pair' shows two responses"),
        ({"typo": 1}, "argument 'typo': a recipe's fields are lr, batch_size"),
    ],
)
def test_unsound_options_are_refused(random_judge, tmp_path, options, message):
    with raises((ValueError, TypeError), match=message):
        train(random_judge, tmp_path / "out", **{"steps": 1, **options})
