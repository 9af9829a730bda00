# `make demo` and `make test` are the two commands of the README; `make help` lists the rest.
#
#   PYTHON=python3.12       the interpreter the environment is built from (3.10 to 3.13)
#   TORCH_INDEX=            where torch comes from: PyTorch's CPU wheels; empty takes PyPI's wheel, which on Linux is
#                           the CUDA build (several GB), and is also what we fall back on where the index is out of reach

PYTHON ?= python3
VENV ?= .venv
LOCK ?= requirements.lock
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH ?= $(shell sed -n 's/^torch==//p' requirements.lock)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb))
DEMO := 03_correlation
# Notebooks run in their own folder, as JupyterLab runs them.
PAPERMILL := $(BIN)/python -m papermill --cwd notebooks --kernel python3 --no-progress-bar --log-level WARNING
# What papermill and JupyterLab write that changes from run to run; outputs stay.
VOLATILE := metadata.papermill cell.metadata.papermill cell.metadata.execution metadata.widgets metadata.language_info.version
STRIP := $(BIN)/nbstripout --keep-output --keep-count --extra-keys "$(VOLATILE)"

# A stored widget shows as an error where no kernel runs: its state is not stored. The page that some come with stays.
# The cell that -p put in goes: what is stored has the defaults.
define DROP_WIDGETS
import sys, nbformat
for path in sys.argv[1:]:
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if "injected-parameters" not in cell.metadata.get("tags", [])]
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.execution_count = count
        for output in (output for output in cell.outputs if "execution_count" in output):
            output.execution_count = count
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        for data in (o.data for o in cell.outputs if any("widget" in kind for kind in o.get("data", {}))):
            for kind in [kind for kind in data if "widget" in kind or "text/html" not in data]:
                del data[kind]
        cell.outputs = [o for o in cell.outputs if o.get("data", True)]
    nbformat.write(notebook, path)
endef
export DROP_WIDGETS

define REPORTS
import shutil
import vjudge as vj
tiny, scenes = vj.load_judge("tiny", device="cpu"), vj.load_collection("scenes", split="test")
vj.report(tiny, scenes, gold="exact", about="Scenes", out="outputs/report_tiny")
real = vj.load_verdicts("viescore").where(criterion="semantic consistency")
vj.analysis.card.make_report(real.only(["GPT-4o", "GPT-4V", "Gemini"])).write("outputs/report_viescore")
for name in ("report_tiny", "report_viescore"):
    shutil.copy(f"outputs/{name}/report.html", f"figures/{name}.html")
endef
export REPORTS

export TOKENIZERS_PARALLELISM ?= false

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types check strangers notebooks repository docs latex figures report validity ablations bench gpu lab tiny base policy lock strip clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(STAMP)  ## create .venv and install vjudge with its development tools

# torch comes first, or another package would pull in the newest CUDA build. Python 3.10 is too old for the locked
# releases: it takes what pyproject.toml allows.
$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v < (3, 14) else "vjudge needs Python 3.10 to 3.13, not %d.%d: set PYTHON" % v)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): a few minutes, about 2 GB with torch's CPU build."
	@$(BIN)/python -c 'import torch' 2>/dev/null \
	  || { test -n "$(TORCH_INDEX)" && $(PIP) install --no-deps --retries 1 --timeout 15 --index-url "$(TORCH_INDEX)" "torch==$(TORCH)"; } \
	  || { echo "Taking torch from PyPI; on Linux that is the CUDA build."; $(PIP) install "torch==$(TORCH)"; }
	@if test -n "$(LOCK)" && $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; \
	  then $(PIP) install --constraint "$(LOCK)" --editable '.[dev]'; \
	  else $(PIP) install --editable '.[dev]'; fi
	@touch $@

demo: setup  ## run notebook 03: real judges against people, then the embedded judge, with their figures
	@mkdir -p outputs/figures
	@echo "Running notebooks/$(DEMO).ipynb"
	@$(PAPERMILL) -p outputs ../outputs -p figures ../outputs/figures notebooks/$(DEMO).ipynb outputs/$(DEMO).ipynb
	@for name in correlation_raters correlation_judges; do \
	  echo; fold --spaces --width=110 outputs/figures/$$name.txt; \
	  $(BIN)/python -c "import pandas as pd; print(pd.read_csv('outputs/figures/$${name}_table.csv').round(3).to_string(index=False))"; \
	  echo "Figure: outputs/figures/$$name.pdf"; done
	@echo; echo "Notebook: outputs/$(DEMO).ipynb"

# Each of two workers goes through one half of the files in order, so that files keep what they share, and who is done
# first takes from the other's end; one torch thread a worker.
test: setup  ## run the tests on two cores
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

strangers: setup  ## every notebook on every kind of a stranger's data, eleven minutes on one core
	@OMP_NUM_THREADS=1 VJUDGE_STRANGERS=1 $(BIN)/python -m pytest -q -s tests/tools/test_strangers.py

lint: setup  ## ruff, its formatter, and notebooks free of volatile metadata
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(if $(NOTEBOOKS),$(STRIP) --verify $(NOTEBOOKS))

types: setup  ## mypy on the package
	@$(BIN)/mypy

# One core checks the types while both test.
check: lint  ## lint, types and tests
	@$(MAKE) --no-print-directory --jobs 2 types test

notebooks: setup  ## run every notebook in place with the figures that are shipped, and drop volatile metadata
	@for path in $(NOTEBOOKS); do echo "Running $$path"; $(PAPERMILL) -p figures ../figures $$path $$path || exit 1; done
	@$(MAKE) --no-print-directory strip

strip: setup
	@$(if $(NOTEBOOKS),$(BIN)/python -c "$$DROP_WIDGETS" $(NOTEBOOKS))
	@$(if $(NOTEBOOKS),$(STRIP) $(NOTEBOOKS))

# Without URL the checkout's own `origin`; the address is handed over by the environment, where no shell reads it.
repository: setup  ## write Colab badges and install lines of URL=https://github.com/YOU/REPOSITORY into the notebooks
	@$(BIN)/python tools/repository.py $(if $(filter undefined,$(origin URL)),,--url="$$URL") $(NOTEBOOKS)

figures: setup  ## write the paper figures of notebooks 03 and 04 to figures/
	@mkdir -p outputs
	@for name in 03_correlation 04_length_bias; do \
	  $(PAPERMILL) -p figures ../figures notebooks/$$name.ipynb outputs/$$name.ipynb || exit 1; done
	@ls figures/*.pdf

report: setup  ## the report cards of tiny on Scenes and of public verdicts of VIEScore: figures/report_*
	@OMP_NUM_THREADS=1 $(BIN)/python -c "$$REPORTS"

validity: setup  ## prove probes and tests on simulated judges: figures/validity*, half an hour on one core
	@PYTHONPATH=tools OMP_NUM_THREADS=1 $(BIN)/python -m validity --out figures

ablations: setup  ## train a judge for each ablation and seed: figures/ablations.csv, two hours on one core
	@PYTHONPATH=tools OMP_NUM_THREADS=1 $(BIN)/python -m assets.ablations --out outputs/ablations --save figures

bench: setup  ## speed and memory in one table of ratios, an hour of processor time (VJUDGE_BENCH=0.2: on a fifth of the items)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest tools/bench -o python_files='bench_*.py' -s

gpu: setup  ## on a GPU, eight minutes: precision, rates, memory, 4 and 8 bits, vLLM, training; outputs/gpu/gpu.md
	@PYTHONPATH=tools:tests timeout 540 $(BIN)/python -m gpu --out outputs/gpu

latex: setup  ## compile FOLDER (figures) in articles of one and two columns: outputs/latex; needs pdflatex
	@PYTHONPATH=tools OMP_NUM_THREADS=1 $(BIN)/python -m latex "$(or $(FOLDER),figures)"

docs: setup  ## build the reference, the notebooks and the gallery as one static site in site/
	@$(BIN)/python tools/site_builder.py

lab: setup  ## open the notebooks in JupyterLab
	@$(BIN)/jupyter lab notebooks

tiny: setup  ## train the embedded judge from nothing into outputs/tiny-training/judge, or go on where it was cut off
	@PYTHONPATH=tools OMP_NUM_THREADS=1 $(BIN)/python -m assets.tiny --out outputs/tiny-training --precision bfloat16

base: setup  ## train what notebook 02 starts from into outputs/tiny-base/read, or go on where it was cut off
	@PYTHONPATH=tools OMP_NUM_THREADS=1 $(BIN)/python -m assets.tiny --out outputs/tiny-base --tower tiny --last read --read-steps 700

policy: setup  ## train the policy of notebook 06 into outputs/policy-training/policy, or go on where it was cut off
	@PYTHONPATH=tools OMP_NUM_THREADS=1 $(BIN)/python -m assets.policy --out outputs/policy-training

lock:  ## resolve pyproject.toml afresh into requirements.lock (Python 3.11; TORCH=x.y.z for another torch)
	@rm -rf .venv-lock
	@$(MAKE) --no-print-directory setup VENV=.venv-lock LOCK=
	@{ sed -n '/^#/p' requirements.lock; .venv-lock/bin/python -m pip freeze --exclude-editable | sed 's/+cpu$$//'; } > .venv-lock/lock
	@mv .venv-lock/lock requirements.lock && rm -rf .venv-lock

clean:  ## remove the environment, caches and outputs
	rm -rf $(VENV) .venv-lock outputs site build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
