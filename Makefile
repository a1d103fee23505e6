# Two commands matter: `make demo` and `make test`. Each makes its own virtual environment; only Python >= 3.11 and
# make are needed.
PYTHON ?= python3
DEMO := .venv-demo
DEV := .venv-dev
# Many tests start the program anew: compiled once, it starts in half the time.
unexport PYTHONDONTWRITEBYTECODE

# Scripts that write files of this repository from other files in it. Each takes --check.
QUICKLY_MADE := scripts/release_files.py scripts/rule_pages.py scripts/fit_changes.py scripts/unread_keys.py \
	scripts/other_words.py scripts/block_events.py tests/measured/calibration.py
GENERATED := $(QUICKLY_MADE) scripts/pictures.py tests/render/test_terminal.py
# What `make quick` runs: the rules' own examples, the readers and editors of files, the allocator, and the rooms.
QUICK := tests/test_architecture.py tests/test_import_graph.py tests/test_generated.py tests/test_size.py \
	tests/test_contracts.py tests/rules tests/documents tests/allocator tests/recordings tests/render/test_formats.py

.PHONY: demo test test-all test-page quick t lint lint-generated generate unit unit-all page wheel clean bench accuracy record releases fuzz

demo: $(DEMO)/.ready
	@echo '$$ vramwise check examples/mistakes.yml --gpu rtx-4090'
	@$(DEMO)/bin/vramwise check examples/mistakes.yml --gpu rtx-4090; true
	@echo
	@echo '$$ vramwise fix --diff examples/mistakes.yml --gpu rtx-4090'
	@$(DEMO)/bin/vramwise fix --diff examples/mistakes.yml --gpu rtx-4090 2>/dev/null; true
	@echo
	@echo '$$ vramwise check examples/qlora.yml --gpu rtx-4090'
	@$(DEMO)/bin/vramwise check examples/qlora.yml --gpu rtx-4090
	@echo
	@echo '$$ vramwise predict examples/qlora.yml --gpu rtx-4090 --what-if micro_batch_size=8'
	@$(DEMO)/bin/vramwise predict examples/qlora.yml --gpu rtx-4090 --what-if micro_batch_size=8
	@echo
	@echo '$$ vramwise check examples/trl-sft.yml examples/llamafactory-lora.yml --gpu rtx-4090'
	@$(DEMO)/bin/vramwise check examples/trl-sft.yml examples/llamafactory-lora.yml --gpu rtx-4090; true
	@echo
	@echo '$$ vramwise fit examples/qlora.yml --gpu rtx-4090'
	@$(DEMO)/bin/vramwise fit examples/qlora.yml --gpu rtx-4090
	@echo
	@echo 'Now yours:  $(DEMO)/bin/vramwise check your-config.yml --gpu YOUR-CARD'

# What training needs is large: it is installed while the code is looked through.
test:
	@$(MAKE) --no-print-directory --jobs 2 lint $(DEV)/.ready
	@$(MAKE) --no-print-directory unit

# With the cases and examples that `make test` leaves out (tests/helpers/nightly.py); a workflow runs it every night.
test-all:
	@$(MAKE) --no-print-directory --jobs 2 lint $(DEV)/.ready
	@$(MAKE) --no-print-directory unit-all

# Before a commit: everything but the slow tests. It needs no torch.
quick: lint
	$(DEV)/bin/python -m pytest -n 2 --dist worksteal $(QUICK)

# Any part of the tests: make t FILE=tests/allocator, make t FILE="tests/ghost -k llama"
t: $(DEV)/.tools
	$(DEV)/bin/python -m pytest $(FILE)

lint: $(DEV)/.tools
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/mypy
	@$(MAKE) --no-print-directory lint-generated

lint-generated: $(DEV)/.tools
	@$(MAKE) --no-print-directory generate CHECK=1 GENERATED="$(QUICKLY_MADE)"

# Every generated file whose sources are in this repository; CHECK=1 only says which are not current.
generate: $(DEV)/.tools
	@failed=0; for script in $(GENERATED); do \
		$(DEV)/bin/python $$script $(if $(CHECK),--check,--write) || failed=1; done; exit $$failed

# Compiled once: each of the two processes that run the tests would compile every module for itself.
unit: $(DEV)/.ready
	@$(DEV)/bin/python -m compileall -q src
	$(DEV)/bin/python -m pytest -n 2 --dist worksteal

unit-all: $(DEV)/.ready
	$(DEV)/bin/python -m pytest -n 2 --dist worksteal -m ''

# Tests that need a browser, on the page as it is built: Chromium, chromedriver and npm are needed.
AXE := node_modules/axe-core/axe.min.js
test-page: page $(DEV)/.tools $(AXE)
	$(DEV)/bin/python -m pytest -n 2 --dist loadfile -m '' --no-skips tests/page tests/render

$(AXE):
	npm install --no-save --no-audit --no-fund axe-core@4.14.0

# Fresh hostile inputs for FUZZ_SECONDS; what breaks something is kept under fuzz-failures/. `make test` does it briefly.
FUZZ_SECONDS ?= 600
fuzz: $(DEV)/.ready
	$(DEV)/bin/python -m tests.fuzz.run --corpus --seconds $(FUZZ_SECONDS) --jobs 2

# The page as one static folder, dist/page: Pyodide comes from its npm package, so npm is needed.
page: $(DEMO)/.ready
	$(DEMO)/bin/python scripts/build_page.py

# What is released: a wheel, and the page for web hosts as a zip.
wheel: page
	$(DEMO)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	cd dist && rm -f vramwise-page.zip && $(abspath $(DEMO))/bin/python -m zipfile -c vramwise-page.zip page

# Predicted against measured, one line a recorded run.
accuracy: $(DEV)/.ready
	$(DEV)/bin/python tests/measured/accuracy.py --all

# What the package says of its own errors, by features: from every measured run, anew.
record: $(DEV)/.ready
	$(DEV)/bin/python tests/measured/record.py

# Other people's releases that are not known yet: taken from the registry; what a person must read is printed.
releases: $(DEV)/.tools
	$(DEV)/bin/python scripts/releases.py $(foreach url,$(INDEX),--index $(url)) $(if $(REPORT),--report $(REPORT))

bench: $(DEV)/.ready
	$(DEV)/bin/python bench/startup.py
	$(DEV)/bin/python bench/corpus.py
	$(DEV)/bin/python bench/predict_speed.py

$(DEMO)/.ready: pyproject.toml
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(DEV)/.tools: pyproject.toml
	$(PYTHON) -m venv $(DEV)
	$(DEV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(DEV)/bin/python -m pip install --quiet --disable-pip-version-check -e . --group dev
	@touch $@

# Not compiled: of its modules a third is ever imported, and compiled then.
$(DEV)/.ready: $(DEV)/.tools
	$(DEV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --group train-test
	@touch $@

clean:
	rm -rf $(DEMO) $(DEV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
