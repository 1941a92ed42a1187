#!/bin/sh
# The same as ./launch_with_server.sh.
exec "$(dirname "$0")/../launch_with_server.sh" "$@"
