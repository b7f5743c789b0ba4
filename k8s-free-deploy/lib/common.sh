# shellcheck shell=bash
# What the scripts of this folder share. Sourced with `set -euo pipefail`; it changes nothing by itself.

readonly PREFIX=/opt/ssop
readonly RELEASES=$PREFIX/releases
readonly ETC=/etc/ssop
readonly UNIT_DIR=/etc/systemd/system
# shellcheck disable=SC2034  # used by install.sh and uninstall.sh
readonly STATE=/var/lib/ssop
readonly NGINX_ETC=$ETC/nginx
readonly UPSTREAMS=$NGINX_ETC/upstreams.conf
# shellcheck disable=SC2034  # used by install.sh
readonly MESH_ROLES=(router inference rag cache edge)
# shellcheck disable=SC2034  # used by install.sh
readonly ROLES=("${MESH_ROLES[@]}" opinion)
# Longest wait for one unit to serve, above the longest TimeoutStartSec and TimeoutStopSec together.
readonly UNIT_TIMEOUT_S=900
# Longest wait for routers to ask a restarted node again, and the wait where there is no router to be asked.
readonly NODES_TIMEOUT_S=120 SETTLE_S=15

say() { printf 'ssop: %s\n' "$*" >&2; }
fail() { printf 'ssop: %s\n' "$*" >&2; exit 1; }

# Usage: need_root
need_root() { [ "$(id -u)" = 0 ] || fail "run this as root"; }

# Usage: hold_lock. One of these scripts at a time; a second one is told, and ends.
hold_lock() {
  exec {lock_fd}>/run/ssop-deploy.lock
  flock -n "$lock_fd" || fail "another of these scripts is running (/run/ssop-deploy.lock)"
}

# Usage: write_file PATH MODE OWNER <text. Whole or not at all.
write_file() {
  local path=$1 mode=$2 owner=$3 new
  new=$(mktemp "$path.XXXXXX")
  cat >"$new"
  chmod "$mode" "$new"
  chown "$owner" "$new"
  mv -f "$new" "$path"
}

# Usage: current_release. Prints the path of the release in use, or nothing.
current_release() { [ -L $PREFIX/current ] && readlink -f $PREFIX/current || true; }
previous_release() { [ -L $PREFIX/previous ] && readlink -f $PREFIX/previous || true; }

# Usage: point LINK RELEASE. Atomic: whoever reads the link finds the old release or the new one.
point() {
  ln -sfn "$2" "$PREFIX/.$1.new"
  mv -Tf "$PREFIX/.$1.new" "$PREFIX/$1"
}

# Usage: is_complete RELEASE. An installation that was broken off is none.
is_complete() { [ -f "$1/.complete" ]; }

# Usage: version_of_wheel FILE
version_of_wheel() { basename "$1" | cut -d- -f2; }

# Usage: place_file SOURCE TARGET. Unless it is there: what an operator has changed stays.
place_file() {
  [ -f "$2" ] || write_file "$2" 0644 root:root <"$1"
}

# Usage: find_wheel DIR. The one wheel of the mesh in a folder.
find_wheel() {
  local found=("$1"/ssop_mesh-*.whl)
  [ -e "${found[0]}" ] || fail "no ssop_mesh-*.whl in $1"
  [ ${#found[@]} = 1 ] || fail "several wheels of the mesh in $1: name one with --wheel"
  printf '%s\n' "${found[0]}"
}

# Usage: make_release PYTHON EXTRAS WHEEL WHEELHOUSE. Prints its path. WHEELHOUSE empty: from the package index.
make_release() {
  local python=$1 extras=$2 wheel=$3 wheelhouse=$4 release
  local -a pip origin=()
  release=$RELEASES/$(version_of_wheel "$wheel")
  if is_complete "$release"; then
    cmp -s "$wheel" "$release/$(basename "$wheel")" ||
      fail "release $(basename "$release") is there with other contents: give the new wheel a version of its own"
    say "release $(basename "$release") is there already"
    printf '%s\n' "$release"
    return
  fi
  say "making release $(basename "$release")"
  rm -rf "$release"
  install -d -m 0755 "$RELEASES" "$release"
  "$python" -m venv "$release" >&2
  pip=("$release/bin/python" -m pip --disable-pip-version-check --no-input -q)
  if [ -n "$wheelhouse" ]; then
    origin=(--no-index --find-links "$wheelhouse")
  elif [ -f "$DEPLOY/../requirements/constraints.txt" ]; then
    # What the tests ran with.
    origin=(-c "$DEPLOY/../requirements/constraints.txt")
  fi
  # pip would search the folder that it is started in.
  (cd / && "${pip[@]}" install --no-compile "${origin[@]}" "${wheel}[$extras]") >&2
  # The services may not write here, so what they would compile at each start is compiled now.
  "$release/bin/python" -m compileall -q -j 0 "$release/lib" >&2 || true
  install -d -m 0755 "$release/deploy"
  cp -R "$DEPLOY/." "$release/deploy/"
  install -m 0644 "$wheel" "$release/"
  printf '%s\n' "$extras" >"$release/.extras"
  chmod -R go+rX,go-w "$release"
  touch "$release/.complete"
  printf '%s\n' "$release"
}

# Usage: install_units RELEASE. Its units, each with the release's own path.
install_units() {
  local release=$1 unit name
  install -d -m 0755 "$UNIT_DIR"
  for unit in "$release"/deploy/systemd/*.{service,socket,target,slice}; do
    name=$(basename "$unit")
    sed "s|/opt/ssop/current/|$release/|g" "$unit" | write_file "$UNIT_DIR/$name" 0644 root:root
  done
  # Units that an older release had and this one has not.
  for unit in "$UNIT_DIR"/ssop*.{service,socket,target,slice}; do
    name=$(basename "$unit")
    if [ -f "$unit" ] && [ ! -e "$release/deploy/systemd/$name" ] && [ -f "$(previous_release)/deploy/systemd/$name" ]; then
      rm -f "$unit"
    fi
  done
  install -m 0644 "$release/deploy/systemd/ssop.sysusers" /etc/sysusers.d/ssop.conf
  systemd-sysusers /etc/sysusers.d/ssop.conf
  systemctl daemon-reload
}

# Usage: units_of_host. The units that install.sh chose for this host, in the order in which they are restarted: what
# others call comes first, so that nobody calls a service that is newer than it knows.
units_of_host() { [ -f $ETC/units ] && cat $ETC/units || true; }

# Usage: extras_of ROLE...
extras_of() {
  local extras=server,cli role
  for role in "$@"; do
    case $role in
      router) extras+=,cpu ;;
      inference | rag) extras+=,embedded ;;
      opinion) extras+=,opinion ;;
    esac
  done
  printf '%s\n' "$extras"
}

# Usage: check_settings RELEASE. Whether the release can use the host's settings, before anything is restarted.
check_settings() {
  (cd / && "$1/bin/python" "$DEPLOY/lib/check_settings.py" $ETC/ssop.toml $ETC/credentials)
}

# Usage: run_hook NAME UNIT. For fronts on other hosts: an executable of this name takes a unit out of them.
run_hook() {
  [ -x "$ETC/hooks/$1" ] || return 0
  "$ETC/hooks/$1" "$2" || fail "the hook $1 failed for $2; nothing was done to it"
}

# Usage: router_address UNIT. Where a router of this host listens, as nginx knows it; nothing for other units.
router_address() {
  local instance
  [[ $1 == ssop-router@*.service ]] || return 0
  instance=${1#ssop-router@}
  instance=${instance%.service}
  sed -n 's/^SSOP_ROUTER_LISTEN=.*"\([^"]*\)".*/\1/p' "$ETC/instances/router-$instance.env" 2>/dev/null | grep . ||
    printf '127.0.0.1:730%s\n' "$instance"
}

# Usage: wait_nodes TIMEOUT_S EXCEPT. Until the routers of this host would ask every node but those; prints the others.
wait_nodes() {
  local timeout_s=$1 spared=$2 instance address
  local -a metrics=()
  for instance in $(units_of_host | sed -n 's/^ssop-router@\(.*\)\.service$/\1/p'); do
    systemctl is-active -q "ssop-router@$instance.service" || continue
    address=$(sed -n 's/^SSOP_MESH_METRICS_LISTEN=.*"router": *"\([^"]*\)".*/\1/p' "$ETC/instances/router-$instance.env" 2>/dev/null)
    metrics+=("${address:-127.0.0.1:940$instance}")
  done
  if [ ${#metrics[@]} = 0 ]; then
    # The routers are elsewhere; a while must do, or the hook post-start.
    [ "$timeout_s" = 0 ] || sleep "$SETTLE_S"
    return 0
  fi
  "$PREFIX/current/bin/python" "$DEPLOY/lib/wait_nodes.py" "$timeout_s" "$spared" "${metrics[@]}"
}

# Usage: front_set ADDRESS up|down. Whether nginx of this host sends a router new calls; those that run go on.
front_set() {
  local address=$1 state=$2 before
  [ -n "$address" ] && [ -f "$UPSTREAMS" ] && systemctl is-active -q ssop-nginx.service || return 0
  before=$(<"$UPSTREAMS")
  if [ "$state" = down ]; then
    sed "/^ *server ${address//./\\.}[ ;]/{/ down;/!s/;/ down;/}" <<<"$before"
  else
    sed "/^ *server ${address//./\\.}[ ;]/s/ down;/;/" <<<"$before"
  fi | write_file "$UPSTREAMS" 0644 root:root
  [ "$before" != "$(<"$UPSTREAMS")" ] || return 0
  # All of them down is a configuration that nginx takes and that serves nobody.
  if ! grep -A99 'upstream ssop_routers' "$UPSTREAMS" | sed '/^}/q' | grep '^ *server' | grep -qv ' down;'; then
    write_file "$UPSTREAMS" 0644 root:root <<<"$before"
    return 0
  fi
  reload_front
}

# Usage: reload_front. Returns when new workers have taken over.
reload_front() {
  local master before now tries
  master=$(systemctl show -P MainPID ssop-nginx.service)
  before=$(pgrep -P "$master" | sort | tr '\n' ' ')
  systemctl reload ssop-nginx.service
  for ((tries = 0; tries < 100; tries++)); do
    now=$(pgrep -P "$master" | sort | tr '\n' ' ')
    [ "$now" = "$before" ] || { sleep 0.2; return 0; }
    sleep 0.1
  done
  say "nginx did not renew its workers within 10 s"
}

# Usage: wait_serving UNIT... Until all serve; fails, with the log, when one dies again and again, or takes too long.
wait_serving() {
  local unit state deadline=$((SECONDS + UNIT_TIMEOUT_S)) pending
  local -A restarts
  for unit; do restarts[$unit]=$(restarts_of "$unit"); done
  while true; do
    pending=''
    for unit; do
      state=$(systemctl show -P ActiveState "$unit")
      [ "$state" != active ] || continue
      pending=$unit
      if [ "$state" = failed ] || [ "$(restarts_of "$unit")" -gt $((restarts[$unit] + 2)) ] || [ $SECONDS -gt $deadline ]; then
        say "$unit does not serve:"
        journalctl -q -n 20 --no-pager -u "$unit" >&2 || true
        return 1
      fi
    done
    [ -n "$pending" ] || return 0
    sleep 0.3
  done
}

# Usage: restarts_of UNIT. How often systemd has started it again; other units than services never are.
restarts_of() {
  local found
  found=$(systemctl show -P NRestarts "$1")
  printf '%s\n' "${found:-0}"
}

# Usage: restart_unit UNIT. Out of the front, drained, started, serving, in the front again.
restart_unit() {
  local unit=$1 address started=$SECONDS unfit='' missed
  # Those that are out before are not this unit's doing.
  [[ $unit != ssop-inference@* ]] || unfit=$(wait_nodes 0 '' 2>/dev/null) || true
  address=$(router_address "$unit")
  run_hook pre-stop "$unit"
  front_set "$address" down
  if ! timeout "$UNIT_TIMEOUT_S" systemctl restart "$unit" || ! systemctl is-active -q "$unit"; then
    front_set "$address" up
    say "$unit does not serve:"
    journalctl -q -n 20 --no-pager -u "$unit" >&2 || true
    return 1
  fi
  front_set "$address" up
  if [[ $unit == ssop-inference@* ]] && ! missed=$(wait_nodes "$NODES_TIMEOUT_S" "$unfit"); then
    say "routers do not ask these nodes again: $missed"
    return 1
  fi
  run_hook post-start "$unit"
  say "$unit serves again, after $((SECONDS - started)) s"
}

# Usage: restart_changed RELEASE. Each unit of the host that does not run from this release, one after the other; what
# others wait for without a second one (Redis) stays, unless its unit has another configuration.
restart_changed() {
  local release=$1 unit
  for unit in $(units_of_host); do
    case $unit in
      *.socket | ssop-redis@*) continue ;;
      ssop-nginx.service)
        install_nginx "$release" || return 1
        continue
        ;;
    esac
    if [ "$(release_of_unit "$unit")" = "$release" ] && systemctl is-active -q "$unit"; then continue; fi
    restart_unit "$unit" || return 1
  done
  # What an operator has enabled besides, such as the exporter: nobody waits for it.
  for unit in $(systemctl list-units --plain --no-legend --state=active 'ssop-*.service' | cut -d' ' -f1); do
    case $(release_of_unit "$unit") in
      '' | "$release") ;;
      *) [[ $unit == ssop-redis@* ]] || restart_unit "$unit" || return 1 ;;
    esac
  done
}

# Usage: release_of_unit UNIT. The release that its process runs from.
release_of_unit() {
  local pid
  pid=$(systemctl show -P MainPID "$1")
  [ "${pid:-0}" != 0 ] || return 0
  tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | sed -n '1s|\(/opt/ssop/releases/[^/]*\)/.*|\1|p' || true
}

# Usage: install_nginx RELEASE. Its nginx.conf, taken over without a cut stream if nginx finds it good.
install_nginx() {
  local release=$1 old=""
  [ -f $NGINX_ETC/to-routers.conf ] ||
    write_file $NGINX_ETC/to-routers.conf 0644 root:root <<<'grpc_pass grpc://ssop_routers;'
  cmp -s "$release/deploy/nginx/nginx.conf" $NGINX_ETC/nginx.conf && return 0
  [ ! -f $NGINX_ETC/nginx.conf ] || old=$(<$NGINX_ETC/nginx.conf)
  write_file $NGINX_ETC/nginx.conf 0644 root:root <"$release/deploy/nginx/nginx.conf"
  systemctl is-active -q ssop-nginx.service || return 0
  if ! systemctl reload ssop-nginx.service; then
    write_file $NGINX_ETC/nginx.conf 0644 root:root <<<"$old"
    say "nginx refuses the release's nginx.conf; the old one stays"
    return 1
  fi
}

# Usage: switch_release FROM TO. Every unit from one release to another, or all of them back.
switch_release() {
  local from=$1 to=$2
  check_settings "$to" || fail "nothing was changed"
  point previous "$from"
  point current "$to"
  install_units "$to"
  if restart_changed "$to"; then
    say "release $(basename "$to") runs; the one before is $(basename "$from")"
    return 0
  fi
  say "going back to release $(basename "$from")"
  point current "$from"
  point previous "$to"
  install_units "$from"
  restart_changed "$from" || fail "and that failed too: see journalctl -u 'ssop-*'"
  fail "release $(basename "$to") does not run here; $(basename "$from") serves as before"
}
