#!/bin/sh
# Makes build/messages.bin, the descriptors of the test service, and with an argument the program of that language: go, java, rust
# or grpc-js. Needs PROTOC: the command of a protobuf compiler. Java, Rust and TypeScript lend the libraries of their clients
# beside this folder.
set -eu
cd "$(dirname "$0")"
mkdir -p build
proto=protos/grpc/testing/interop.proto
$PROTOC -I protos --descriptor_set_out=build/messages.new $proto
# A newer file would have what depends on it built again.
cmp -s build/messages.new build/messages.bin || cp build/messages.new build/messages.bin
case ${1:-} in
  "") ;;
  go)
    cd go
    GOFLAGS=-mod=readonly go build -o ../build/interop-go .
    ;;
  java)
    version=$(sed -n 's:.*<grpc.version>\(.*\)</grpc.version>.*:\1:p' ../java/pom.xml)
    [ -e "../java/build/lib/grpc-core-$version.jar" ] || sh ../java/build.sh
    rm -rf build/java && mkdir -p build/java/gen build/java/classes
    # Not every compiler of protobuf writes Java; that of the client's build does.
    ../java/build/protoc-plugins/protoc-[0-9]*.exe -I protos --java_out=build/java/gen $proto
    javac --release 17 -nowarn -cp '../java/build/lib/*' -d build/java/classes $(find build/java/gen java -name '*.java')
    ;;
  rust) sh ../rust/build.sh ;;
  grpc-js) [ -d ../typescript/node_modules/@grpc/grpc-js ] || sh ../typescript/build.sh ;;
  *)
    echo "no such language: $1" >&2
    exit 2
    ;;
esac
