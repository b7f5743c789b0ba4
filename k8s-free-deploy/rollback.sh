#!/usr/bin/env bash
# Puts the release before in the place of the one that runs, unit by unit, without a lost request. A second rollback
# undoes the first.
set -euo pipefail
DEPLOY=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$DEPLOY/lib/common.sh"

main() {
  [ $# = 0 ] || fail "this takes no arguments; it goes back to $(basename "$(previous_release)")"
  need_root
  hold_lock
  umask 022
  local running previous
  running=$(current_release)
  previous=$(previous_release)
  [ -n "$running" ] || fail "there is no release here"
  [ -n "$previous" ] || fail "there is no release to go back to"
  is_complete "$previous" || fail "there is no release to go back to"
  [ "$previous" != "$running" ] || fail "release $(basename "$running") is all that there was"
  switch_release "$running" "$previous"
}

main "$@"
