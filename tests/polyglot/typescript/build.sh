#!/bin/sh
# Builds build/main.js. Needs node and npm; grpc-js reads protos/ at run time.
set -eu
cd "$(dirname "$0")"
npm ci --silent --no-audit --no-fund
npm run --silent build
