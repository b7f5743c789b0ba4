#!/usr/bin/env bash
# Takes the protos as they are for what later ones must not break: protos/baseline.binpb. For a release only; `buf breaking`
# compares with it from then on (tests/contract/test_protos.py).
set -euo pipefail
cd "$(dirname "$0")/../protos"
buf build --exclude-source-info --output baseline.binpb
