#!/bin/sh
# Builds build/main.js. Needs node and npm; grpc-js reads protos/ at run time.
set -eu
cd "$(dirname "$0")"
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --silent --no-audit --no-fund
npm run --silent build
