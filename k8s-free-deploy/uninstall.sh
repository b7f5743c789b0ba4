#!/usr/bin/env bash
# Takes the mesh off this host. Settings, secrets and data stay, so that install.sh brings it back as it was;
# with --purge they go too.
set -euo pipefail
DEPLOY=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$DEPLOY/lib/common.sh"

main() {
  local is_purge='' user unit
  case ${1-} in
    '') ;;
    --purge) is_purge=1 ;;
    *) fail "what is '$1'? There is --purge" ;;
  esac
  need_root
  hold_lock
  local -a units
  mapfile -t units < <(units_of_host)
  # All at once: each drains by itself. What is not there any more need not be stopped.
  for unit in ssop.target "${units[@]}"; do systemctl disable -q "$unit" 2>/dev/null || true; done
  systemctl stop 'ssop*' 2>/dev/null || true
  systemctl stop ssop.slice 2>/dev/null || true
  rm -f "$UNIT_DIR"/ssop.target "$UNIT_DIR"/ssop.slice "$UNIT_DIR"/ssop-*.service "$UNIT_DIR"/ssop-*.socket
  rm -rf "$UNIT_DIR"/ssop-*.d "$UNIT_DIR"/ssop.target.wants
  systemctl daemon-reload
  systemctl reset-failed 'ssop*' 2>/dev/null || true
  rm -rf "$PREFIX"
  if [ -n "$is_purge" ]; then
    rm -rf "$ETC" "$STATE" /var/lib/ssop-{cache,rag,redis,router,nginx,opinion} /etc/sysusers.d/ssop.conf
    for user in ssop-router ssop-inference ssop-cache ssop-rag ssop-gateway ssop-redis ssop-nginx ssop-opinion; do
      userdel "$user" 2>/dev/null || true
      groupdel "$user" 2>/dev/null || true
    done
    groupdel ssop-tls 2>/dev/null || true
    say "gone, with its settings, secrets and data"
  else
    say "gone; $ETC and the data below /var/lib are kept (--purge removes them)"
  fi
}

main "$@"
