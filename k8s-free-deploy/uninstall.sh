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
  # Who calls before what is called.
  for unit in $(printf '%s\n' "${units[@]}" | tac) ssop.target; do
    systemctl disable -q --now "$unit" 2>/dev/null || true
  done
  rm -f "$UNIT_DIR"/ssop.target "$UNIT_DIR"/ssop.slice "$UNIT_DIR"/ssop-*.service "$UNIT_DIR"/ssop-*.socket
  systemctl daemon-reload
  systemctl reset-failed 'ssop*' 2>/dev/null || true
  rm -rf "$PREFIX"
  if [ -n "$is_purge" ]; then
    rm -rf "$ETC" "$STATE" /var/lib/ssop-{cache,rag,redis,router,nginx} /etc/sysusers.d/ssop.conf
    for user in ssop-router ssop-inference ssop-cache ssop-rag ssop-gateway ssop-redis ssop-nginx; do
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
