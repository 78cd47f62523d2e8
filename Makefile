# Each of `quickstart` and `test` is complete on a fresh clone: it makes .venv if there is none.
# Tests have three tiers: `test` (every change), `slow` (every week, and before a release), `release`.
PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin/
NAME ?= quickstart

.PHONY: setup quickstart test slow release dist mutants oldest attack check docs benchmark clean

# what tests, checks and the site need
setup: $(VENV)/.installed

# compiles the simulator for all commands and tests, from envs/, while pip takes Ringyard out and puts it in again
$(VENV)/.installed: $(VENV)/.runnable
	PYTHONPATH=$(CURDIR)/envs $(RUN)python -c 'import gymnasium, ringyard; \
		env = gymnasium.make_vec("ringyard/Cluster-v0", num_envs=2); \
		_, info = env.reset(seed=0); env.step(info["action_mask"].argmax(axis=1))' 2>/dev/null || \
		echo "the simulator is not compiled yet: the first command or test does it" & \
		$(RUN)python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]" && wait
	touch $@

# what training and comparing need
$(VENV)/.runnable: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(RUN)python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[agents]"
	touch $@

# train PPO of Stable-Baselines3, then compare it with the baselines on workloads it has never seen
quickstart: $(VENV)/.runnable
	$(RUN)ringyard train experiment=cpu_gpu form=jobs reward=saved_jct agent=ppo_jobs total_decisions=12000 evaluate.every=6000 'evaluate.schedulers=[synergy_tune@consolidate]' name=$(NAME) overwrite=true
	$(RUN)ringyard compare experiment=quickstart_comparison name=$(NAME)_comparison trained=runs/$(NAME) overwrite=true

# behaviour of everything on small inputs; a test that takes 10 minutes is stopped and says where it was
test: setup
	$(RUN)python -m pytest -n auto --dist worksteal -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

# whole examples, tutorials, trainings and command lines, all combinations, 10,000 random simulations, kills, the oldest
# versions of the libraries
slow: setup
	$(RUN)python -m pytest -n auto --dist worksteal -m slow
	$(MAKE) attack oldest

# what a release needs beside `test` and `slow`: the wheel in an empty environment, mutants that tests must notice
release: setup dist
	$(RUN)python -m pytest -m release

# what is published, dist/: wheel and source distribution, with metadata and README as the package index takes them
dist: $(VENV)-release/.installed
	rm -rf dist
	$(VENV)-release/bin/python -m build --outdir dist
	$(VENV)-release/bin/python -m twine check --strict dist/*

$(VENV)-release/.installed: constraints.txt
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build twine
	touch $@

# change the papers' schedulers and the allocator in one place at a time: do their tests notice? (hours; what is
# stored is kept, so that it goes on where it was stopped)
mutants: setup
	nice -n 19 $(RUN)python -m tools.mutants

# the oldest versions that pyproject.toml allows: every test (OLDEST=tests), or what they touch most
OLDEST ?= tests/test_golden.py tests/agents/test_command_lines.py tests/agents/test_help.py tests/agents/test_sweeps.py \
	tests/agents/test_python.py tests/agents/test_tables.py tests/envs/test_env.py tests/envs/test_misuse.py tests/envs/test_experiments.py
oldest: $(VENV)-oldest/.installed
	NUMBA_CACHE_DIR=$(abspath $(VENV)-oldest/kernels) $(VENV)-oldest/bin/python -m pytest -n auto --dist loadfile $(OLDEST)

$(VENV)-oldest/.installed: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt torch
	$(VENV)-oldest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt \
		-e ".[agents]" pytest pytest-xdist hypothesis
	touch $@

# everything that has been tried to break it, at scale (tests have some of each)
attack: setup
	$(RUN)python tests/attacks/run_all.py

# the site, build/docs/index.html; a warning is an error
docs: setup
	$(RUN)python -m sphinx --fail-on-warning --keep-going --quiet -b html -d build/doctrees docs build/docs

check: setup
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy
	$(RUN)lint-imports
	$(MAKE) docs

benchmark: setup
	$(RUN)python benchmarks/run_all.py

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-release .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist
	rm -rf build docs/algorithms docs/environments docs/examples docs/reference docs/registry docs/schedulers
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
