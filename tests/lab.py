"""JupyterLab on loopback and a real headless Chromium to use it with, for tests of what a researcher sees."""

import contextlib
import json
import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest

from servers import free_port, process

TOKEN = "loopback"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SETTINGS = {
    # else cells out of view are no part of the page
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
).split()


def need_browser():
    """Skip where there is no Chromium; where VJUDGE_BROWSER is set, as in CI, fail instead."""
    if CHROMIUM is None:
        stop = pytest.fail if os.environ.get("VJUDGE_BROWSER") else pytest.skip
        stop("needs Chromium: install Debian's package chromium")


def write_notebook(path, *cells):
    path.parent.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.v4.new_notebook(
        cells=list(map(nbformat.v4.new_code_cell, cells)), metadata=KERNEL
    )
    nbformat.write(notebook, path)


@contextlib.contextmanager
def jupyterlab(folder):
    """A server of the notebooks in a folder, with settings of its own; gives its address."""
    port = free_port()
    names = "JUPYTER_CONFIG JUPYTER_RUNTIME JUPYTERLAB_SETTINGS JUPYTERLAB_WORKSPACES".split()
    places = {f"{name}_DIR": str(folder / ".jupyter" / name) for name in names}
    for name, setting in SETTINGS.items():
        file = Path(places["JUPYTERLAB_SETTINGS_DIR"], "@jupyterlab", f"{name}.jupyterlab-settings")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(setting))
    command = "-m jupyterlab --no-browser --allow-root --ip=127.0.0.1 --ServerApp.port_retries=0"
    command += f" --port={port} --IdentityProvider.token={TOKEN}"
    root = f"--ServerApp.root_dir={folder}"
    address = f"http://127.0.0.1:{port}"
    api = f"{address}/api?token={TOKEN}"
    with process([*command.split(), root], api, folder / "lab.log", **places):
        yield address


@contextlib.contextmanager
def chromium(*, width=1400, height=1400, scale=1):
    """A page of a fresh browser; `scale` screen pixels a pixel of the page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            page = browser.new_context(
                viewport={"width": width, "height": height}, device_scale_factor=scale
            ).new_page()
            page.set_default_timeout(60_000)  # of each wait, for a busy machine
            yield page
        finally:
            browser.close()


class Notebook:
    """A notebook open in JupyterLab."""

    def __init__(self, page, address, name):
        self.page, self.url = page, f"{address}/doc/tree/{name}?token={TOKEN}"
        self.open()

    def open(self):
        """Open it, or reload the page."""
        self.page.goto(self.url)
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.idle()

    def idle(self):
        """Wait until the kernel is there and has nothing to do."""
        self.page.wait_for_selector("#jp-main-statusbar >> text=/\\| Idle/")

    def menu(self, *path):
        first, *inner, last = path
        self.page.click(f".lm-MenuBar-itemLabel:text-is('{first}')")
        for label in inner:
            self.page.hover(f".lm-Menu-itemLabel:text-is('{label}')")
        self.page.click(f".lm-Menu-itemLabel:text-is('{last}')")

    def run_all(self, *, restart=False):
        """Run every cell and wait for the last one."""
        prompts = self.page.locator(".jp-CodeCell .jp-InputPrompt")
        before = prompts.last.inner_text()
        if restart:
            self.menu("Kernel", "Restart Kernel and Run All Cells…")
            self.page.click(".jp-Dialog button.jp-mod-accept")
        else:
            self.menu("Run", "Run All Cells")
        for _ in range(900):
            now = prompts.last.inner_text()
            if re.fullmatch(r"\[\d+\]:", now) and (restart or now != before) and not self.running():
                break
            assert not self.errors, self.errors[0]
            self.page.wait_for_timeout(100)
        else:
            raise AssertionError("the notebook did not come to its end")
        self.idle()

    def running(self):
        """How many cells wait or run."""
        return self.page.locator(".jp-InputPrompt:text-is('[*]:')").count()

    @property
    def cells(self):
        return self.page.locator(".jp-Notebook .jp-Cell").count()

    @property
    def errors(self):
        return self.page.locator(
            ".jp-OutputArea-output", has_text="Traceback (most recent call last)"
        ).all_inner_texts()
