#!/usr/bin/env bash
# Replaces the release of this host, unit by unit, without a lost request. Usage: upgrade.sh [--wheelhouse DIR]
# [--wheel FILE] [--extras LIST] [--python FILE]. If a unit does not serve with it, all go back.
set -euo pipefail
DEPLOY=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$DEPLOY/lib/common.sh"

wheelhouse='' wheel='' extras='' python=/usr/bin/python3

main() {
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in
      --wheelhouse) wheelhouse=$2 ;;
      --wheel) wheel=$2 ;;
      --extras) extras=$2 ;;
      --python) python=$2 ;;
      *) fail "what is '$1'?" ;;
    esac
    shift 2
  done
  need_root
  hold_lock
  umask 022
  local running release
  running=$(current_release)
  [ -n "$running" ] || fail "there is no release here yet: install.sh makes the first"
  [ -z "$wheelhouse" ] || wheelhouse=$(readlink -f "$wheelhouse")
  [ -z "$wheel" ] || wheel=$(readlink -f "$wheel")
  [ -n "$wheel" ] || { [ -n "$wheelhouse" ] && wheel=$(find_wheel "$wheelhouse"); } || fail "say --wheel or --wheelhouse"
  release=$(make_release "$python" "${extras:-$(<"$running/.extras")}" "$wheel" "$wheelhouse")
  if [ "$release" = "$running" ]; then
    # An upgrade that was broken off is completed.
    install_units "$release"
    restart_changed "$release"
    say "release $(basename "$release") runs"
    return 0
  fi
  switch_release "$running" "$release"
  prune "$release" "$running"
}

# Usage: prune KEPT... Releases that are neither these nor in use by a process.
prune() {
  local release
  for release in "$RELEASES"/*; do
    [[ " $* " != *" $release "* ]] || continue
    if pgrep -f "^$release/" >/dev/null; then continue; fi
    rm -rf "$release"
    say "removed release $(basename "$release")"
  done
}

main "$@"
