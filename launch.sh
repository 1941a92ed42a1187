#!/bin/sh
# ./launch.sh N configs/run/x.yaml key=value … [offload|zero1]: N GPUs, or cpu:N processes without any.
python="$(dirname "$0")/.venv/bin/python"
[ -x "$python" ] || python=python3
exec "$python" -m tutelage.launch "$@"
