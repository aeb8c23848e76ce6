# `make demo` and `make test` do all their own set-up: a virtual environment in .venv, filled once.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
# Two test processes on two cores: threads of torch that wait for each other would only spin.
ONE_THREAD := OMP_NUM_THREADS=1
BROWSER := .venv/.browser
DICOM := .venv/.dicom
TSC := .venv/node/node_modules/.bin/tsc

.PHONY: demo test test-all lint types check bench clean

demo: $(READY)
	$(BIN)/enteron demo --out demo

test: $(READY) $(BROWSER) $(DICOM)
	$(ONE_THREAD) $(BIN)/pytest -n 2 -m "not slow"

test-all: $(READY) $(BROWSER) $(DICOM)
	$(ONE_THREAD) $(BIN)/pytest -n 2 --timeout 1800

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY) $(TSC)
	$(BIN)/pyright
	@if [ -x $(TSC) ]; then $(TSC) --project tsconfig.json; fi

check: lint types test

bench: $(READY)
	$(BIN)/enteron bench

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis

# Filled again only when the project's needs change; the editable install sees code changes itself.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "enteron needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# The report is tested in Chromium. On a bare machine (root, apt) it is installed once; elsewhere, or
# when that fails, those tests skip and say so.
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120
$(BROWSER): $(READY)
	@if { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then \
		touch $@; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing Chromium for the tests of the report"; \
		{ $(APT) update; $(APT) install -y --no-install-recommends chromium; } >.venv/browser.log 2>&1 \
			&& touch $@ \
			|| echo "Chromium could not be installed (see .venv/browser.log): its tests will skip"; \
	else echo "Chromium is not installed: the tests of the report in a browser will skip"; fi

# DICOM exports are checked by dciodvfy. Where it cannot be installed, that test skips.
$(DICOM): $(READY) $(BROWSER)
	@if command -v dciodvfy >/dev/null; then touch $@; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ $(APT) update; $(APT) install -y --no-install-recommends dicom3tools; } >.venv/dicom.log 2>&1 \
			&& touch $@ \
			|| echo "dicom3tools could not be installed (see .venv/dicom.log): its test will skip"; \
	else echo "dicom3tools is not installed: the check of DICOM exports will skip"; fi

# The pages' scripts are plain modules; TypeScript only checks them. Nothing of it is shipped.
$(TSC): $(READY)
	@if command -v npm >/dev/null; then \
		npm install --silent --no-audit --no-fund --prefix .venv/node typescript@5.9.3 >.venv/npm.log 2>&1 \
			|| echo "TypeScript could not be installed (see .venv/npm.log): the pages' scripts are not checked"; \
	else echo "npm is not installed: the pages' scripts are not checked"; fi
