SOAK := examples portable postgres contained contained-as-user as-user long
.PHONY: help setup demo test test-web pictures pictures-web compiled-tests soak $(SOAK:%=soak-%) drills check checklist lint unit bench docs lock clean
.DEFAULT_GOAL := help
BIN := .venv/bin
# Bytecode is kept, whatever the caller's environment says: or each of the suite's processes compiles every test again.
export PYTHONDONTWRITEBYTECODE :=

help:            ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup:           ## make .venv with llmc in it
	@scripts/setup

demo: setup      ## see llmc at work: no account, no configuration
	@$(BIN)/llmc demo

# Most of the time a test waits for an agent, so there are more of them at work than cores.
test:            ## the whole suite, the real Claude Code client included
	@scripts/setup --client
	@$(MAKE) --no-print-directory -j 2 lint compiled-tests
	@scripts/in-memory $(BIN)/pytest -n 5 --dist worksteal

compiled-tests:
	@$(BIN)/pytest -q --collect-only >/dev/null

# A page waits for an agent most of the time, but Chromium needs a core.
test-web:        ## the web page in a real browser, desktop and phone size
	@scripts/setup --client
	@scripts/setup --browser
	@scripts/in-memory $(BIN)/pytest -n 2 --dist worksteal tests/browser

pictures-web:    ## draw the pictures of the web page again
	@scripts/setup --browser
	@$(BIN)/python scripts/make-pictures-web

# Auto mode, the supervisor, goals and drills. The nights, most seeds and the real client are in soak-long.
BOTH_WAYS := $(BIN)/pytest -p no:cacheprovider -n 4 --dist worksteal -m "not real_client" \
	-k "not night_in_minutes and (not ten_kills or ten_kills[1])" \
	tests/e2e/test_auto*.py tests/e2e/test_overseer*.py tests/e2e/test_remediation.py tests/e2e/test_attention.py \
	tests/e2e/test_goal*.py tests/e2e/test_drills.py

soak:            ## the long half of the suite; and on other terms: portable, PostgreSQL, contained, as an ordinary user
	@scripts/setup --client
	@$(BIN)/python -m tests.support.npm_client
	@$(MAKE) --no-print-directory -j 1 -k $(SOAK:%=soak-%)

soak-examples:
	@$(BIN)/pytest -n 2 --dist worksteal --hypothesis-profile=many tests/unit
soak-portable:
	@LLMC_PORTABLE=1 $(BIN)/pytest -n 4 --dist worksteal -m "not real_client and not soak" tests/tools/base tests/e2e
soak-postgres:
	@LLMC_TEST_POSTGRES=1 $(BIN)/pytest -n 4 --dist worksteal -m "not real_client and not drill" tests/e2e/test_auto*.py tests/e2e/test_goal*.py tests/tools/goals
soak-contained:
	@SANDBOX=on $(BOTH_WAYS)
soak-contained-as-user:
	@SANDBOX=on scripts/as-user $(BOTH_WAYS)
soak-as-user:
	@scripts/as-user $(BOTH_WAYS)
soak-long:
	@scripts/in-memory $(BIN)/pytest -n 4 --dist worksteal -m soak

drills: setup     ## every failure an unattended fleet can meet, made to happen for real
	@$(BIN)/llmc drill --all

check: setup lint unit  ## the fast gates, before every commit

checklist:       ## every promise with the tests that prove it, run now
	@scripts/setup --client
	@$(BIN)/python scripts/checklist --allow-missing -- -n 4 --dist worksteal

lint:
	@$(BIN)/ruff check -q src tests bench scripts/make-docs scripts/checklist
	@$(BIN)/ruff format -q --check src tests bench scripts/make-docs scripts/checklist
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo

unit:
	@$(BIN)/pytest -q -n 2 tests/unit

bench:           ## measure; JSON in bench/results/, a table on screen
	@scripts/setup --client
	@$(BIN)/python -m bench

docs:            ## write the generated parts of the docs again
	@$(BIN)/python scripts/make-docs

pictures:        ## draw the pictures of the docs again, of a real fleet
	@scripts/setup
	@$(BIN)/python scripts/make-pictures

lock:            ## resolve the pinned dependencies again (needs uv)
	uv pip compile -q --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 pyproject.toml requirements/dev.in -o requirements/dev.lock
	uv pip compile -q --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-deps --universal --python-version 3.11 requirements/client.in -o requirements/client.lock
	uv pip compile -q --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --universal --python-version 3.11 requirements/browser.in -o requirements/browser.lock

clean:           ## remove what setup and the tests made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/results
