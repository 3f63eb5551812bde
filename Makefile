# Two commands for a user, the rest for a contributor; `make help` lists them. All of them set up what they need first.
#
#   PYTHON=/path/python3                the interpreter behind .venv; default: python3, else the newest on PATH
#   VENV_FLAGS=--system-site-packages   let .venv see what PYTHON's own environment has installed, torch for example
#   VENV=/path/env                      use that existing environment instead of .venv
#   TORCH_INDEX=URL                     a further package index to look for torch in; none: only pip's own
VENV ?= .venv
export PYTHON VENV VENV_FLAGS TORCH_INDEX

RUN := $(VENV)/bin/python

.PHONY: help demo test test-all check gen docs coverage perf clean
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' Makefile

demo: ## start the server and measure three benchmarks, as an MCP client would
	@tools/setup.sh bench
	@$(RUN) tools/demo.py

test: ## every check of the repository, and the test suite
	@tools/setup.sh bench,dev
	@$(RUN) tools/check.py

test-all: ## the slow tests too: the whole attack corpus, a hundred jobs, wheels (about an hour)
	@tools/setup.sh bench,dev
	@$(RUN) tools/check.py -m ""

check: ## the same without the test suite
	@tools/setup.sh bench,dev
	@$(RUN) tools/check.py --fast

gen: ## write all generated files
	@tools/setup.sh bench,dev
	@$(RUN) tools/gen.py

docs: ## build the documentation site in build/docs; warnings are errors
	@tools/setup.sh docs
	@rm -rf build/docs
	@$(RUN) -m sphinx -b html -E -W --keep-going -q -j auto -c tools/site -d build/doctrees . build/docs
	@echo "open build/docs/index.html"

coverage: ## chapter, goal, needs, expectations and last verdict per device of every candidate
	@tools/setup.sh bench
	@$(VENV)/bin/aisp bench coverage

perf: ## measure start-up, memory and latency of the server and the CLI
	@tools/setup.sh bench,dev
	@$(RUN) tools/perf.py

clean: ## remove .venv and all caches
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
