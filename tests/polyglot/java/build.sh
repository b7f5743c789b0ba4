#!/bin/sh
# Generates the stubs from protos/, compiles to build/classes and puts the libraries in build/lib. Needs a JDK from 17 and Maven.
set -eu
cd "$(dirname "$0")"
mvn --batch-mode --quiet process-classes
