#!/usr/bin/env bash
# The main job: the shipped posts through a mesh. One that runs already on STATE is used and left running.
set -euo pipefail
ssop=${SSOP:?names the ssop command} state=${STATE:?names the state directory}

"$ssop" models fetch --state-dir "$state"
code=0
"$ssop" up --detach --port 0 --state-dir "$state" || code=$?
case $code in
  0) trap '"$ssop" down --state-dir "$state"' EXIT ;;
  3) echo "using that mesh; it is left running" ;;
  *) exit "$code" ;;
esac
"$ssop" analyze --state-dir "$state"
