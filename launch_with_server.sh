#!/bin/sh
# ./launch_with_server.sh M N configs/run/x.yaml key=value … [offload|zero1]: M vLLM servers, N GPUs that train.
exec "$(dirname "$0")/launch.sh" --with-server "$@"
