#!/bin/sh
# Generates the stubs from protos/ and builds ./client. Needs go, and PROTOC: the command of a protobuf compiler.
set -eu
cd "$(dirname "$0")"
export GOBIN="$PWD/build/bin" GOFLAGS=-mod=mod
go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
rm -rf gen && mkdir gen
printf 'module github.com/ssop-mesh/ssop/gen/go\n\ngo 1.25.0\n' >gen/go.mod
PATH="$GOBIN:$PATH" $PROTOC -I ../../../protos --go_out=gen --go_opt=module=github.com/ssop-mesh/ssop/gen/go \
  --go-grpc_out=gen --go-grpc_opt=module=github.com/ssop-mesh/ssop/gen/go ../../../protos/ssop/v1/*.proto
go build -o build/client .
