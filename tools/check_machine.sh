#!/usr/bin/env bash
# Says what is missing to set up and build, and which Debian package has it. PYTHON names the interpreter.
set -euo pipefail
python=${PYTHON:-python3}
missing=()
lacks() { missing+=("$2"); echo "missing: $1 (Debian package $2)" >&2; }

if ! command -v "$python" >/dev/null; then
  lacks "$python" python3
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "missing: Python 3.11 or later; $python is $("$python" -V). Give another one: make PYTHON=python3.12 ..." >&2
  exit 1
else
  "$python" -c 'import ensurepip, venv' 2>/dev/null || lacks "the modules venv and ensurepip" python3-venv
  "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || lacks "Python.h" python3-dev
fi
command -v gcc >/dev/null || lacks gcc gcc
echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1 || ! command -v gcc >/dev/null || lacks "the headers of the C library" libc6-dev
if [ ${#missing[@]} -gt 0 ]; then
  echo "install them with: sudo apt-get install ${missing[*]}" >&2
  exit 1
fi
