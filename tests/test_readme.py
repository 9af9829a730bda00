"""The READMEs tell the truth: the front page's code runs and prints what stands under it, links and commands exist."""

import ast
import json
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import yaml
from PIL import Image

import vjudge
from test_rooms import ROOMS

ROOT = Path(__file__).parents[1]
GIT = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True)
PAGES = [ROOT / name for name in GIT.stdout.split()] or [*ROOT.glob("*.md")]
FRONT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def ran(code):
    """The names that a block of code leaves, and its last line's value."""
    *lines, last = ast.parse(code).body
    names = {}
    exec(compile(ast.Module(lines, []), "README.md", "exec"), names)
    return names, eval(compile(ast.Expression(last.value), "README.md", "eval"), names)


def anchors(page):
    """GitHub's names of a page's headings."""
    titles = re.findall(r"^#+ (.+)", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_front_page_is_short_and_opens_with_one_picture():
    assert len(FRONT.encode()) <= 8_000
    (picture,) = re.findall(r"!\[[^]]{20,}\]\(([^)]+)\)", FRONT)
    assert (ROOT / picture).stat().st_size < 300_000
    assert max(Image.open(ROOT / picture).size) >= 1_200


def test_the_first_lines_give_the_reading_under_them_and_the_numbers_of_the_picture():
    code = blocks(FRONT, "python")[0]
    _, result = ran(code)
    assert len(code.replace("\n\n", "\n").strip().splitlines()) == 3
    assert result.reading == blocks(FRONT, "text")[0].strip()
    stored = pd.read_csv(ROOT / "figures/correlation_raters_table.csv")
    judges = result.view["kind"] == "judge"
    assert result.view["who"][judges].tolist() == stored["who"][judges.to_numpy()].tolist()
    assert result.view["estimate"].to_numpy() == pytest.approx(stored["estimate"].to_numpy())


@pytest.mark.filterwarnings("ignore")  # three drawings of nothing: too few to say anything of
def test_the_row_of_ones_own_file_is_graded_by_the_lines_under_it(tmp_path, monkeypatch):
    """With the embedded judge in place of the 7B one, and three such rows."""
    monkeypatch.chdir(tmp_path)
    (line,), code = blocks(FRONT, "json"), blocks(FRONT, "python")[1]
    row = json.loads(line)
    Image.new("RGB", (40, 30), "teal").save(tmp_path / row["image_path"])
    rows = [row | {"id": f"a{n}", "human_scores": [n, n, 2]} for n in (1, 2, 3)]
    (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    judge = re.search(r'load_judge\("([^"]+)"\)', code)[1]
    names, paper = ran("import vjudge as vj\n" + code.replace(judge, "tiny"))
    assert len(code.strip().splitlines()) <= 10
    assert names["mine"].frame["id"].tolist() == ["a1", "a2", "a3"] and "correlation" in paper
    assert (tmp_path / "outputs/critic").is_dir() and any((tmp_path / "outputs/paper").iterdir())


def test_every_tool_of_the_comparison_has_a_version_and_a_commit():
    section = FRONT[FRONT.index("## Beside other tools") : FRONT.index("## What runs where")]
    tools = re.findall(r"\[([^]]+)\]\(https://github\.com/", section)
    sources = section[section.index("Read in") :]
    assert len(tools) == 5
    for tool in tools:
        assert re.search(rf"{tool} [\w.]+ \([0-9a-f]{{7}}\)", sources.replace("\n", " ")), tool


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text):
        if link.startswith(("https://", "http://")):
            assert "github.com/vjudge/vjudge" not in link, "a stranger's"
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists() and target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_every_make_command_that_is_named_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        code = "\n".join(re.findall(r"^ {4}.*|`[^`\n]+`", text, re.M) + blocks(text, "sh"))
        assert set(re.findall(r"\bmake ([a-z]+)\b", code)) <= targets, page
    assert re.findall(r"^make ([a-z]+)", blocks(FRONT, "sh")[0], re.M) == ["demo", "test"]


def test_ci_runs_make_check_here_and_on_the_hosted_machines():
    script = ROOT / ".ci/run"
    assert "make check" in script.read_text().splitlines()
    assert script.stat().st_mode & 0o111, ".ci/run must be executable"
    assert re.search(r"^check: lint\b.*\n.* types test$", (ROOT / "Makefile").read_text(), re.M)
    workflow = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    assert "make check" in [step.get("run") for step in job["steps"]]


def test_the_galleries_show_every_notebook_and_the_figures_page_no_figure_that_is_gone():
    notebooks = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    gallery = (ROOT / "notebooks/README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\((\w+\.ipynb)\)", gallery)) == notebooks
    assert set(re.findall(r"notebooks/(\w+\.ipynb)", FRONT)) == notebooks
    page = (ROOT / "figures/README.md").read_text(encoding="utf-8")
    names = {path.stem for path in (ROOT / "figures").glob("[a-z]*.*")}
    assert set(re.findall(r"^\| `(\w+)`", page, re.M)) <= names
    families = (*re.findall(r"`(\w+)_\*`", page), "front")
    assert all(name.startswith(families) for name in names), "a family of figures without a section"


def test_the_map_names_every_room_in_the_order_of_imports():
    page = (ROOT / "vjudge/README.md").read_text(encoding="utf-8")
    names = re.findall(r"^ {4}(\w+(?:\.py|/)) ", page, re.M)
    assert [name.removesuffix(".py").rstrip("/") for name in names] == [*ROOMS, "assets"]
    assert all((ROOT / "vjudge" / name).exists() for name in names)


def test_the_citation_file_has_this_version_the_four_systems_and_the_sources_of_the_verdicts():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == vjudge.__version__ and citation["license"] == "Apache-2.0"
    papers = {paper["url"].rpartition("/")[2] for paper in citation["references"]}
    systems = {"2401.06591", "2310.08491", "2405.01535", "2410.02712"}
    verdicts = {"2312.14867", "2310.18235", "2303.11897", "2406.04485", "2406.11069"}
    assert papers == systems | verdicts


def test_the_changes_begin_with_this_version_and_name_each_deprecated_call():
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (.+)", page, re.M)[1] == vjudge.__version__
    sources = "".join(path.read_text() for path in (ROOT / "vjudge").rglob("*.py"))
    names = re.findall(r'warn\("(\w+) is deprecated', sources)
    assert names and all(re.search(rf"^\| `[\w.]*\b{name}\(", page, re.M) for name in names)
