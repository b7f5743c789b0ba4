#!/bin/sh
# Generates the stubs from protos/ and builds build/debug/ssop-polyglot-rust. Needs cargo, and PROTOC: the command of a
# protobuf compiler.
set -eu
cd "$(dirname "$0")"
mkdir -p build
$PROTOC -I ../../../protos --include_imports --descriptor_set_out=build/protos.new ../../../protos/ssop/v1/*.proto
# A newer file would be built again.
cmp -s build/protos.new build/protos.bin || cp build/protos.new build/protos.bin
cargo build --quiet --locked --target-dir build
