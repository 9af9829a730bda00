"""`make docs`: one static site whose pages open in a browser, whose links resolve, and which loads nothing."""

import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

import pytest

import lab
import site_builder


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    site_builder.main(["--out", str(folder)])
    return folder


def test_links_between_the_pages_resolve_and_nothing_is_loaded_from_elsewhere(site):
    pages = [page for page in site.rglob("*.html") if "api" not in page.parts]
    assert len(pages) >= 14
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for kind, link in re.findall(r'(href|src)="([^"#]+)', text):
            if "://" in link or link.startswith(("data:", "mailto:")):
                assert kind == "href" or link.startswith("data:"), (page, link)
                continue
            assert (page.parent / unquote(link)).resolve().exists(), (page, link)


def test_the_reference_has_the_public_names(site):
    text = (site / "api/vjudge.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in text for name in ("scores", "load_judge", "Result"))
    assert (site / "api/vjudge/metrics.html").is_file()


@pytest.fixture(scope="module")
def opened(site):
    """A page of a browser with a laptop's screen, and the address of the site."""
    lab.need_browser()
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        with lab.chromium(width=1280, height=900) as page:
            yield page, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def test_a_person_finds_the_notebooks_the_gallery_and_the_reference(opened):
    page, address = opened
    page.goto(f"{address}/index.html")
    assert page.locator("img").first.evaluate("image => image.naturalWidth") > 600
    for name, heading in (("Gallery", "Gallery"), ("Notebooks", "Notebooks")):
        page.get_by_role("link", name=re.compile(f"^{name}")).first.click()
        assert page.locator("h1").inner_text() == heading
    page.get_by_role("link", name="Reference").first.click()
    assert page.get_by_text("load_judge").count()


def test_the_first_number_stands_on_the_first_screen_under_the_set_up_cell(opened):
    """Of notebook 04, where five cells of plumbing stood before it."""
    page, address = opened
    page.goto(f"{address}/notebooks/04_length_bias.html")
    set_up = page.locator("pre", has_text="vj.load_judge(JUDGE)").first.bounding_box()
    number = page.locator("td", has_text=re.compile(r"^\S?\d*\.\d+$")).first
    box = number.bounding_box()
    assert 0 < box["y"] + box["height"] - (set_up["y"] + set_up["height"]) < 900
