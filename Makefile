# Every target makes what it needs, once, in .venv: nothing is installed outside of it.
# The interpreter that .venv is made from; `make clean` first to change it.
PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
CODE := $(wildcard flowdsl examples tests bench docs/*.py)
PAGES := $(wildcard *.md docs/*.md docs/*.py)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.SILENT:
.PHONY: help site other-checkers release-check demo test lint types contract doctest unit long explore chaos fuzz fuzz-guided docs bench bench-storage bench-graph bench-training bench-frameworks bench-gpu bench-cores bench-texts bench-shards bench-tables bench-arrays bench-cluster bench-regression bench-gate bench-baseline \
	chaos-cluster faults faults-peers format lock lowest newest clean

say = printf '==> %s\n'

help:
	echo 'make demo      train on handwritten digits, from images to a picture of the loss'
	echo 'make test      all that CI runs: lint types contract doctest unit, in this order'
	echo '  make lint      ruff: rules and format; a fragment of the changelog'
	echo '  make types     mypy --strict and pyright'
	echo '  make contract  the import contract'
	echo '  make doctest   the examples in the docstrings and the pages'
	echo '  make unit      the tests, in four processes (JOBS=4)'
	echo 'make other-checkers  what ty, pyrefly and zuban say of the tests of the types, for the page'
	echo 'make long      the samples that take too long for every day'
	echo 'make explore   the tests that draw, at random seeds until one fails (MINUTES=10)'
	echo 'make chaos     10,000 random pipelines in random trouble (SEED=0 PIPELINES=10000 MINUTES=60)'
	echo 'make chaos-cluster  300 of them on a Ray cluster whose machines die (MINUTES=30)'
	echo 'make fuzz      damaged files, killed writers, altered messages and states (SEED=0 FILES= KILLS=)'
	echo 'make fuzz-guided  every reader and decoder, with coverage as the guide (MINUTES=60)'
	echo 'make faults    what a user sees when files, queues and processes fail'
	echo 'make faults-peers  the same faults in DataLoader, Grain and tf.data, for the page'
	echo 'make docs      write docs/operators.md, docs/reliability.md and the pictures of the gallery'
	echo 'make bench     time flowdsl beside others: make bench OPTIONS=--quick for a minute of it'
	echo '  make bench-storage  time the readers of files beside others'
	echo '  make bench-graph  time the ways into a step of TensorFlow beside others'
	echo '  make bench-training  time steps of training beside a loop by hand and fit'
	echo '  make bench-frameworks  time steps of PyTorch and JAX, and fit of Keras, beside their own loaders'
	echo '  make bench-gpu  time steps on a GPU beside DataLoader and a constant; needs one'
	echo '  make bench-cores  time rows by 1, 2, 4, ... processes beside DataLoader and Grain'
	echo '  make bench-texts  time packed rows and buckets of texts beside Grain and tf.data'
	echo '  make bench-shards  time interleaved lines of text files beside tf.data'
	echo '  make bench-tables  time batches of a table with nulls beside pyarrow by hand'
	echo '  make bench-arrays  time shuffled batches of arrays in memory beside the peers'
	echo '  make bench-cluster  time rows from a Ray cluster beside Ray Data'
	echo '  make bench-regression  time it alone, to compare with an earlier state'
	echo '  make bench-gate  fail if an operator or the transport is slower than bench/baseline.json says'
	echo 'make site      the documentation as web pages, in site/index.html'
	echo 'make release-check  build, check and install what a release uploads'
	echo 'make format    mend what ruff can mend'
	echo 'make lock      refresh requirements/ after a change of pyproject.toml'
	echo 'make lowest    the tests that reach into dependencies, at the lowest versions that pyproject.toml allows'
	echo 'make newest    ... at the newest (others: TESTS=tests/tensorflow/train; another Python: PYTHON=python3.13)'
	echo 'make clean     remove .venv, caches and outputs'
	echo 'Another Python: make clean, then make PYTHON=python3.13 demo'

demo: $(VENV)/demo
	$(say) 'Running examples/digits.py'
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python examples/digits.py

test: lint types contract doctest unit

lint: $(VENV)/dev
	$(say) 'ruff check'
	$(BIN)/ruff check
	$(say) 'ruff format --check'
	$(BIN)/ruff format --check
	$(say) 'towncrier check: a branch has a fragment in changes/'
	if git rev-parse --quiet --verify main > /dev/null; then \
		$(BIN)/towncrier check --compare-with main > /dev/null || { \
			echo 'No fragment: changes/README.md says what to write'; exit 1; }; fi

types: $(VENV)/dev
	$(say) 'mypy --strict and pyright, side by side'
	$(BIN)/mypy $(CODE) & mypy=$$!; \
		$(BIN)/basedpyright $(CODE); pyright=$$?; \
		wait $$mypy && exit $$pyright

# Prints the table that docs/types.md shows.
other-checkers: $(VENV)/dev $(VENV)/checkers/ready
	$(say) 'Other type checkers over the tests of the types'
	$(BIN)/python -m tests.typing.others $(VENV)/checkers/bin

contract: $(VENV)/dev
	$(say) 'import contract'
	$(BIN)/lint-imports --no-logo

doctest: $(VENV)/dev
	$(say) 'doctests'
	$(BIN)/python -m pytest -q -p tests.conftest --doctest-modules --doctest-glob='*.md' flowdsl $(PAGES)

# Tests start hundreds of interpreters, each of which would otherwise compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# A process that has nothing to do takes the next file: the tests of a file keep their order, and what
# they share is made once. A quarter of the time, a test waits for a timer or a process that starts:
# three processes use nine tenths of two cores, and four use all.
JOBS ?= 4

unit: $(VENV)/dev
	$(say) 'tests'
	$(BIN)/pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0

long: $(VENV)/dev
	$(say) 'long samples'
	$(BIN)/pytest -q -m long

# `make test` draws the same in every run; this draws anew in every round.
explore: MINUTES ?= 10

explore: $(VENV)/dev
	$(say) 'explore'
	$(BIN)/python -m tests.explore --minutes $(MINUTES)

# Seeded: a failure prints the seed that shows it again. It ends after MINUTES, done or not.
SEED ?= 0
PIPELINES ?= 10000
chaos: MINUTES ?= 60

chaos: $(VENV)/dev
	$(say) 'chaos'
	$(BIN)/python -m tests.chaos --pipelines $(PIPELINES) --seed $(SEED) --minutes $(MINUTES)

chaos-cluster: MINUTES ?= 30

chaos-cluster: $(VENV)/dev
	$(say) 'chaos on a cluster'
	$(BIN)/python -m tests.ray.chaos --seed $(SEED) --minutes $(MINUTES)

# Seeded likewise: damaged files for all readers, writers that are killed, malformed messages of
# other machines, then altered plans and states.
FILES ?= 100000
KILLS ?= 200
FRAMES ?= 100000
CASES ?= 5000

fuzz: $(VENV)/dev
	$(say) 'fuzz'
	$(BIN)/python -m tests.storage.fuzz --files $(FILES) --seed $(SEED)
	$(BIN)/python -m tests.storage.killing --kills $(KILLS) --seed $(SEED)
	$(BIN)/python -m tests.remote.fuzz --frames $(FRAMES) --seed $(SEED)
	$(BIN)/python -m tests.workers.fuzz --cases $(CASES) --seed $(SEED)

# Coverage-guided, by Atheris. The input of a fault stays in out/guided.
fuzz-guided: MINUTES ?= 60

fuzz-guided: $(VENV)/dev $(VENV)/fuzz/ready
	$(say) 'guided fuzzing'
	PYTHONPATH=$(VENV)/fuzz $(BIN)/python -m tests.guided --minutes $(MINUTES)

faults: $(VENV)/dev
	$(say) 'faults'
	$(BIN)/python -m tests.faults

# Writes tests/faults/peers.json, which docs/reliability.md shows; another machine, other seconds.
faults-peers: $(VENV)/dev
	$(say) 'The same faults in other libraries'
	$(BIN)/python -m tests.faults.peers
	$(BIN)/python docs/generate_reliability.py

docs: $(VENV)/dev
	$(say) 'Writing docs/operators.md, docs/reliability.md and the pictures of the gallery'
	$(BIN)/python docs/generate_operators.py
	$(BIN)/python docs/generate_reliability.py
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python docs/generate_gallery.py

# Without warnings: a link within the pages that leads nowhere is one.
site: $(VENV)/site/ready
	$(say) 'Building site/'
	$(VENV)/site/bin/python -m sphinx -W --keep-going -q -c docs/site -d $(VENV)/site/doctrees . site
	echo 'site/index.html'

# What an upload consists of, as a user gets it: in an environment and a folder of its own.
release-check: $(VENV)/dev
	$(say) 'Building dist/'
	rm -rf dist $(VENV)/release
	$(BIN)/uv build --quiet --python $(BIN)/python --no-build-isolation
	$(say) 'Checking the metadata'
	$(BIN)/twine check --strict dist/*
	$(say) 'Installing the wheel into a fresh environment'
	$(PYTHON) -m venv $(VENV)/release
	$(BIN)/uv pip install --quiet --python $(VENV)/release/bin/python --only-binary :all: dist/*.whl
	$(say) 'Running the first block of the README there'
	awk '/^```python$$/ { inside = 1; next } /^```$$/ && inside { exit } inside' README.md > $(VENV)/release/first.py
	cd $(VENV)/release && bin/python -I first.py
	grep -q '^\[project.urls\]' pyproject.toml || \
		echo 'Before an upload: [project.urls] has no address yet, see docs/versioning.md'

bench: $(VENV)/bench/ready
	$(say) 'Benches'
	$(VENV)/bench/bin/python -m bench $(OPTIONS)

bench-storage: $(VENV)/bench/ready
	$(say) 'Benches of stored rows'
	$(VENV)/bench/bin/python -m bench.storage $(OPTIONS)

bench-graph: $(VENV)/bench/ready
	$(say) 'Steps and rows a second'
	$(VENV)/bench/bin/python -m bench.graph $(OPTIONS)

bench-training: $(VENV)/bench/ready
	$(say) 'Steps of training a second'
	$(VENV)/bench/bin/python -m bench.training $(OPTIONS)

bench-frameworks: $(VENV)/bench/ready
	$(say) 'Steps and rows a second in PyTorch, JAX and Keras'
	$(VENV)/bench/bin/python -m bench.frameworks $(OPTIONS)

bench-gpu: $(VENV)/bench/ready
	$(say) 'Steps a second on a GPU'
	$(VENV)/bench/bin/python -m bench.gpu $(OPTIONS)

bench-cores: $(VENV)/bench/ready
	$(say) 'Rows a second by several numbers of processes'
	$(VENV)/bench/bin/python -m bench.cores $(OPTIONS)

bench-texts: $(VENV)/bench/ready
	$(say) 'Packing and buckets beside Grain and tf.data'
	$(VENV)/bench/bin/python -m bench.texts $(OPTIONS)

bench-shards: $(VENV)/bench/ready
	$(say) 'Interleaved lines of text files beside tf.data'
	$(VENV)/bench/bin/python -m bench.shards $(OPTIONS)

bench-tables: $(VENV)/bench/ready
	$(say) 'Batches of a table with nulls beside pyarrow by hand'
	$(VENV)/bench/bin/python -m bench.tables $(OPTIONS)

bench-arrays: $(VENV)/bench/ready
	$(say) 'Shuffled batches of arrays in memory'
	$(VENV)/bench/bin/python -m bench.arrays $(OPTIONS)

bench-cluster: $(VENV)/bench/ready
	$(say) 'Rows a second from a Ray cluster'
	$(VENV)/bench/bin/python -m bench.cluster $(OPTIONS)

bench-regression: $(VENV)/dev
	$(say) 'Benches of flowdsl alone; add OPTIONS=--benchmark-compare for the difference'
	$(BIN)/pytest -q bench --benchmark-autosave $(OPTIONS)

GATE = bench.gate:loop bench.gate:operators bench.gate:rows bench.gate:words bench.gate:images

bench-gate: $(VENV)/dev
	$(say) 'Costs against bench/baseline.json'
	$(BIN)/python -m flowdsl bench --compare bench/baseline.json --fail-above 10% $(OPTIONS)

bench-baseline: $(VENV)/dev
	$(say) 'Writing bench/baseline.json'
	$(BIN)/python -m flowdsl bench $(GATE) --save bench/baseline.json $(OPTIONS)

format: $(VENV)/dev
	$(say) 'ruff check --fix, ruff format'
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Pins every package for Python 3.11 to 3.13 on Linux and macOS alike, one version of each, with the
# hashes of all its wheels: a wheel changed later is refused, and nothing is compiled while
# installing. Existing pins stay; `make lock UPGRADE=--upgrade` renews them.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--fork-strategy fewest --only-binary :all: --generate-hashes --custom-compile-command 'make lock' \
	$(UPGRADE)

lock: $(VENV)/dev
	$(say) 'Locking requirements/'
	$(LOCK) pyproject.toml --extra tensorflow --extra demo --group build -o requirements/demo.txt
	$(LOCK) pyproject.toml --extra all --group dev -c requirements/demo.txt -o requirements/dev.txt
	$(LOCK) pyproject.toml --extra all --extra tensorflow --group bench -c requirements/demo.txt -o requirements/bench.txt
	$(LOCK) pyproject.toml --group site -c requirements/demo.txt -o requirements/site.txt
	$(LOCK) --group checkers -o requirements/checkers.txt
	$(LOCK) --group fuzz -o requirements/fuzz.txt

# What pip may install for others: each in an environment of its own, resolved afresh. The default is
# the tests that reach into dependencies, without the slow ones, which are mostly long random chains of
# operators. tests/typing is never among them: each version of a type
# checker says something else.
TESTS ?= $(addprefix tests/,datasets elements feeding nodes operators ops remote storage tensorflow/queues workers) \
	$(wildcard tests/test_*.py)
lowest: RESOLUTION = lowest-direct
newest: RESOLUTION = highest

lowest newest: $(VENV)/uv.txt
	$(say) 'Installing the $@ versions into .venv/$@ (some gigabytes, the first time)'
	$(BIN)/uv pip compile --quiet --python $(PYTHON) --resolution $(RESOLUTION) --only-binary :all: \
		pyproject.toml --extra all --extra demo --extra tensorflow --extra keras --extra torch \
		--group dev --group build --group torch -o $(VENV)/$@.txt
	$(PYTHON) -m venv --clear $(VENV)/$@
	$(BIN)/uv pip install --quiet --python $(VENV)/$@/bin/python --compile-bytecode \
		--only-binary :all: --no-deps -r $(VENV)/$@.txt
	$(BIN)/uv pip install --quiet --python $(VENV)/$@/bin/python --no-deps --no-build-isolation -e .
	$(say) 'tests with the $@ versions'
	$(VENV)/$@/bin/python -m pytest -q -m 'not long and not slow' -n $(JOBS) --dist loadfile \
		--no-loadscope-reorder --max-worker-restart=0 $(TESTS)

clean:
	$(say) 'Removing .venv, caches and outputs'
	rm -rf $(VENV) out *.lmdb dist build site .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		.import_linter_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The two levels of .venv. Each file is touched when its level is installed, so that a repeat
# installs nothing until the lock or pyproject.toml changes.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(VENV)/demo: requirements/demo.txt pyproject.toml | $(BIN)/python
	$(say) 'Installing flowdsl with TensorFlow into .venv (a few minutes the first time)'
	$(INSTALL) --only-binary :all: --require-hashes -r requirements/demo.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/dev: requirements/dev.txt requirements/torch.txt $(VENV)/demo
	$(say) 'Installing the development tools into .venv'
	$(INSTALL) --only-binary :all: --require-hashes -r requirements/dev.txt
	$(INSTALL) --only-binary :all: -r requirements/torch.txt
	touch $@

# The locked uv alone, which is all that `make lowest` and `make newest` need of the lock.
$(VENV)/uv.txt: requirements/dev.txt | $(BIN)/python
	awk '/^[^ ]/ { chosen = /^uv==/ } chosen' $< > $@
	$(INSTALL) --only-binary :all: --require-hashes -r $@

# Whom flowdsl is timed beside, in an environment of their own.
$(VENV)/bench/ready: requirements/bench.txt | $(BIN)/python
	$(say) 'Installing the contestants into .venv/bench (some gigabytes, the first time)'
	$(BIN)/python -m venv --clear $(VENV)/bench
	$(VENV)/bench/bin/python -m pip install --quiet --disable-pip-version-check \
		--only-binary :all: --require-hashes -r requirements/bench.txt
	touch $@

# What makes the site, in an environment of its own; flowdsl is read from this folder.
$(VENV)/site/ready: requirements/site.txt | $(BIN)/python
	$(say) 'Installing Sphinx into .venv/site'
	$(BIN)/python -m venv --clear $(VENV)/site
	$(VENV)/site/bin/python -m pip install --quiet --disable-pip-version-check \
		--only-binary :all: --require-hashes -r requirements/site.txt
	touch $@

# Type checkers beside mypy and pyright, in an environment of their own; what the programs import is
# read from .venv.
$(VENV)/checkers/ready: requirements/checkers.txt | $(BIN)/python
	$(say) 'Installing other type checkers into .venv/checkers'
	$(BIN)/python -m venv --clear $(VENV)/checkers
	$(VENV)/checkers/bin/python -m pip install --quiet --disable-pip-version-check \
		--only-binary :all: --require-hashes -r requirements/checkers.txt
	touch $@

# Atheris, beside .venv and not in it: only the guided fuzzer finds it there.
$(VENV)/fuzz/ready: requirements/fuzz.txt | $(BIN)/python
	$(say) 'Installing Atheris into .venv/fuzz'
	rm -rf $(VENV)/fuzz
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/fuzz \
		--only-binary :all: --require-hashes -r requirements/fuzz.txt
	touch $@

# TensorFlow, as locked, has wheels for Python 3.11 to 3.13.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null || { \
		echo "The locked environment needs Python 3.11, 3.12 or 3.13, but $(PYTHON) is" \
			"$$($(PYTHON) --version 2>/dev/null || echo not found). Name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; \
		exit 1; }
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) lacks the venv module (on Debian and Ubuntu: apt install python3-venv)."; \
		exit 1; }
	$(say) "Making .venv with $$($(PYTHON) --version)"
	$(PYTHON) -m venv --clear $(VENV)
