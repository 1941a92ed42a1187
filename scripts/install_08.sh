#!/bin/sh
# The same as make install; make server adds vLLM for a CPU, pip install vllm one for GPUs.
exec make -C "$(dirname "$0")/.." install
