#!/usr/bin/env bash
# Sets this host up for SSOP Mesh, or completes what an earlier run began. See README.md beside this file.
set -euo pipefail
DEPLOY=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
. "$DEPLOY/lib/common.sh"

usage() {
  cat <<'USAGE'
Usage: install.sh --role ROLE[,ROLE...] [options]

  --role LIST          of router, inference, rag, cache, edge, which together are all; and opinion, the application
  --wheelhouse DIR     everything from the wheels in this folder; nothing is fetched
  --wheel FILE         the mesh's wheel; what it needs comes from --wheelhouse, else from the package index.
                       Without both the wheel is built from the checkout that this script lies in (needs gcc)
  --routers N          routers of this host (1 to 10) [2]
  --nodes N            inference nodes of this host (1 to 10) [2]
  --model NAME         the catalogue's model for the nodes [smollm2-135m-instruct]
  --model-file FILE    its GGUF file, where nothing may be fetched
  --host-files DIR     a host of an inventory: its ssop.toml, instances/ and roles replace what would be made here
  --secret-file FILE   the mesh's secret, on every host but the first (else it is made)
  --keys-file FILE     keys.toml of the first router's host, for further routers
  --tls-certificate FILE, --tls-key FILE
                       of the front (else a self-signed one is made, and said to be one)
  --client-ca FILE     the front takes only clients with a certificate by this authority
  --extras LIST        extras of the package instead of those of the roles, such as server,cli,upstream,gpu
  --python FILE        the interpreter (3.11 or later) [/usr/bin/python3]
  --install-packages   install what the preflight finds missing, with apt-get
  --preflight          say what is missing, and change nothing

Run it again at any time: what is there stays. Another version is upgrade.sh's business.
USAGE
}

roles='' wheelhouse='' wheel='' routers=2 nodes=2 model=smollm2-135m-instruct model_file='' host_files='' secret_file=''
keys_file='' tls_certificate='' tls_key='' client_ca='' extras='' python=/usr/bin/python3 is_preflight='' may_install=''

read_options() {
  while [ $# -gt 0 ]; do
    case $1 in
      --preflight) is_preflight=1 ;;
      --install-packages) may_install=1 ;;
      --help | -h) usage && exit 0 ;;
      --role | --wheelhouse | --wheel | --routers | --nodes | --model | --model-file | --host-files | --secret-file | \
        --keys-file | --tls-certificate | --tls-key | --client-ca | --extras | --python)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case $1 in
          --role) roles=$2 ;;
          --wheelhouse) wheelhouse=$2 ;;
          --wheel) wheel=$2 ;;
          --routers) routers=$2 ;;
          --nodes) nodes=$2 ;;
          --model) model=$2 ;;
          --model-file) model_file=$2 ;;
          --host-files) host_files=$2 ;;
          --secret-file) secret_file=$2 ;;
          --keys-file) keys_file=$2 ;;
          --tls-certificate) tls_certificate=$2 ;;
          --tls-key) tls_key=$2 ;;
          --client-ca) client_ca=$2 ;;
          --extras) extras=$2 ;;
          --python) python=$2 ;;
        esac
        shift
        ;;
      *) usage >&2 && fail "what is '$1'?" ;;
    esac
    shift
  done
  [ -z "$host_files" ] || [ -n "$roles" ] || roles=$(<"$host_files/roles")
  [ -n "$roles" ] || { usage >&2 && fail "say --role"; }
  roles=${roles//[$'\n ']/,}
  [[ ,$roles, != *,all,* ]] || roles=$(IFS=, && printf '%s' "${roles/all/${MESH_ROLES[*]}}")
  local role
  for role in ${roles//,/ }; do
    [[ " ${ROLES[*]} " == *" $role "* ]] || fail "there is no role '$role'; there are: ${ROLES[*]} all"
  done
  [[ $routers =~ ^([1-9]|10)$ ]] || fail "--routers is 1 to 10"
  [[ $nodes =~ ^([1-9]|10)$ ]] || fail "--nodes is 1 to 10"
  local path
  for path in "$wheelhouse" "$host_files"; do [ -z "$path" ] || [ -d "$path" ] || fail "$path is no folder"; done
  # pip and Python are started elsewhere.
  [ -z "$wheelhouse" ] || wheelhouse=$(readlink -f "$wheelhouse")
  [ -z "$wheel" ] || wheel=$(readlink -f "$wheel")
  for path in "$wheel" "$model_file" "$secret_file" "$keys_file" "$tls_certificate" "$tls_key" "$client_ca"; do
    [ -z "$path" ] || [ -f "$path" ] || fail "$path is no file"
  done
  [ -z "$tls_certificate" ] || [ -n "$tls_key" ] || fail "--tls-certificate needs --tls-key"
}

has_role() { [[ ,$roles, == *,$1,* ]]; }

# What may be missing, and what it costs.
advise() {
  if [ -z "$wheel$wheelhouse" ]; then
    [ -e /usr/include/nghttp2/nghttp2.h ] ||
      say "no libnghttp2-dev: calls are built on gRPC's own library, at ten times the CPU"
  elif ! "$python" -c 'import ctypes.util, sys; sys.exit(ctypes.util.find_library("nghttp2") is None)'; then
    say "no libnghttp2: calls go over gRPC's own library, at ten times the CPU (apt-get install libnghttp2-14)"
  fi
}

# Everything that is missing, in one go; each line says what it is for.
preflight() {
  local -a missing=() packages=()
  lacks() { missing+=("$1") && [ -z "${2-}" ] || packages+=("$2"); }
  [ -d /run/systemd/system ] || lacks "systemd is not what runs this system"
  local version
  version=$(systemctl --version 2>/dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
  [ "${version:-0}" -ge 250 ] || lacks "systemd 250 or later (credentials); here is ${version:-none}"
  local id='' version_id=''
  id=$(. /etc/os-release 2>/dev/null && printf '%s' "${ID-}")
  version_id=$(. /etc/os-release 2>/dev/null && printf '%s' "${VERSION_ID-}")
  [ "$id" = debian ] && [[ $version_id =~ ^1[23]$ ]] || say "tested on Debian 12 and 13; this is ${id:-unknown} $version_id"
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    lacks "Python 3.11 or later as $python" python3
  elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    lacks "Python's modules venv and ensurepip" python3-venv
  fi
  case $(readlink -f "$python" 2>/dev/null) in
    /root/* | /home/*) lacks "a Python outside of home folders, which the services can't see: --python" ;;
  esac
  command -v openssl >/dev/null || lacks "openssl, for secrets and certificates" openssl
  if has_role edge; then [ -x /usr/sbin/nginx ] || lacks "nginx, the front" nginx; fi
  if has_role cache && ! has_role inference && ! has_role rag; then
    command -v valkey-server redis-server >/dev/null || lacks "a Redis" redis-server
  fi
  if has_role opinion && ! has_role cache && [ -z "$host_files" ] && [ ! -f $ETC/ssop.toml ]; then
    lacks "a Redis for posts: the role cache on this host, or an ssop.toml whose [opinion] names one (--host-files)"
  fi
  if [ -z "$wheel$wheelhouse" ]; then
    [ -f "$DEPLOY/../pyproject.toml" ] || lacks "--wheel or --wheelhouse, since this is no checkout"
    command -v gcc >/dev/null || lacks "gcc, to build the wheel from this checkout" gcc
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null ||
      lacks "Python.h, to build the wheel from this checkout" python3-dev
  fi
  local free_mib
  free_mib=$(df -Pm /opt | awk 'NR == 2 {print $4}')
  [ "$free_mib" -ge 2048 ] || lacks "2 GiB free for a release below /opt; there are $free_mib MiB"
  if [ ${#missing[@]} = 0 ]; then
    advise
    return
  fi
  if [ -n "$may_install" ] && [ ${#packages[@]} = ${#missing[@]} ]; then
    may_install=''
    say "installing ${packages[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
    preflight
    return
  fi
  printf 'ssop: missing: %s\n' "${missing[@]}" >&2
  [ ${#packages[@]} = 0 ] || say "packages: apt-get install ${packages[*]} (or give --install-packages)"
  exit 1
}

# Prints the wheel to install.
choose_wheel() {
  if [ -n "$wheel" ]; then
    printf '%s\n' "$wheel"
  elif [ -n "$wheelhouse" ]; then
    find_wheel "$wheelhouse"
  else
    say "building the wheel from $(dirname "$DEPLOY")"
    local built
    built=$(mktemp -d)
    "$python" -m venv "$built/venv" >&2
    (cd / && "$built/venv/bin/python" -m pip -q --disable-pip-version-check wheel --no-deps -w "$built" \
      "$(dirname "$DEPLOY")") >&2
    find_wheel "$built"
  fi
}

make_directories() {
  install -d -m 0755 $PREFIX $RELEASES $ETC $ETC/instances $ETC/redis $ETC/hooks $ETC/tls $NGINX_ETC $STATE $STATE/models
  install -d -m 0700 $ETC/credentials $ETC/credentials/{mesh,router,inference,cache,rag,opinion}
  install -d -m 0755 /etc/sysusers.d
}

# The secret and the first key are made once, and never again: another secret would lock every key out.
make_secrets() {
  local release=$1
  if [ ! -f $ETC/credentials/mesh/secret ]; then
    if [ -n "$secret_file" ]; then
      write_file $ETC/credentials/mesh/secret 0600 root:root <"$secret_file"
    else
      openssl rand -hex 32 | write_file $ETC/credentials/mesh/secret 0600 root:root
    fi
  elif [ -n "$secret_file" ] && ! cmp -s "$secret_file" $ETC/credentials/mesh/secret; then
    fail "this host has another secret already: see README.md, rotating the mesh's secret"
  fi
  has_role router || return 0
  if [ ! -f $ETC/keys.toml ]; then
    if [ -n "$keys_file" ]; then
      write_file $ETC/keys.toml 0640 root:ssop-router <"$keys_file"
    else
      make_first_key "$release"
    fi
  fi
  chown root:ssop-router $ETC/keys.toml
  chmod 0640 $ETC/keys.toml
}

make_first_key() {
  local made
  made=$(mktemp -d)
  install -m 0600 $ETC/credentials/mesh/secret "$made/secret"
  (cd / && "$1/bin/python" -c '
import pathlib, sys
from ssop_cli.embedded import make_identity
from ssop_cli.places import Places
folder = pathlib.Path(sys.argv[1])
make_identity(Places(folder, folder))' "$made")
  write_file $ETC/credentials/client.key 0600 root:root <"$made/client.key"
  write_file $ETC/keys.toml 0640 root:ssop-router <"$made/keys.toml"
  rm -rf "$made"
  say "the first API key, of tenant local with all scopes, is in $ETC/credentials/client.key"
}

make_settings() {
  local -a peers=()
  local number
  if [ -n "$host_files" ]; then
    place_file "$host_files/ssop.toml" $ETC/ssop.toml
    local file
    for file in "$host_files"/instances/*.env; do
      [ ! -e "$file" ] || place_file "$file" "$ETC/instances/$(basename "$file")"
    done
    return 0
  fi
  [ ! -f $ETC/ssop.toml ] || return 0
  for ((number = 0; number < nodes; number++)); do peers+=("{ address = \"127.0.0.1:731$number\" }"); done
  {
    cat <<TOML
# Written by install.sh, once; it is yours now. Every key: docs/settings.md. Secrets are not here: credential:mesh_secret
# is $ETC/credentials/mesh/secret, which only root may read and which systemd shows to the services of the mesh.
[mesh]
secret_file = "credential:mesh_secret"
# A service that stops is left alone for two seconds, then has thirty to finish; TimeoutStopSec of the units is above it.
lame_duck_ms = 2000
drain_ms = 30000
TOML
    ! has_role cache || cat <<'TOML'

[cache]
listen = ["127.0.0.1:7340"]
cache_url = "unix:///run/ssop-redis-cache/redis.sock"
state_url = "unix:///run/ssop-redis-state/redis.sock"
local_directory = "/var/lib/ssop-cache/answers"
TOML
    ! has_role rag || cat <<'TOML'

[rag]
listen = ["127.0.0.1:7330"]
directory = "/var/lib/ssop-rag/index"
TOML
    ! has_role inference || cat <<TOML

[inference]
models_dir = "$STATE/models"
models = [{ name = "$model", tiers = ["lite", "full"] }]
TOML
    ! has_role router || cat <<TOML

[router]
nodes = [$(IFS=, && printf '%s' "${peers[*]}")]
keys_file = "$ETC/keys.toml"
routers = $routers
# A model on the CPU is slow by nature; with a GPU or a model server 10000 is right.
first_field_timeout_ms = 60000
TOML
    ! { has_role router && has_role cache; } || printf 'cache_address = "127.0.0.1:7340"\n'
    ! { has_role router && has_role rag; } || printf 'rag_address = "127.0.0.1:7330"\n'
    ! has_role edge || cat <<'TOML'

[gateway]
# All routers, through nginx on this host.
router_address = "unix:/run/ssop-nginx/routers.sock"
TOML
    ! has_role opinion || cat <<TOML

[opinion]
router_address = "$(opinion_routers)"
stream_url = "unix:///run/ssop-redis-state/redis.sock"
state_directory = "/var/lib/ssop-opinion"
tenants_directory = "$ETC/tenants"
TOML
  } | write_file $ETC/ssop.toml 0644 root:root
}

# Where the application finds routers: those of this host, else as settings say.
opinion_routers() {
  local number
  local -a found=()
  for ((number = 0; number < routers; number++)); do found+=("127.0.0.1:730$number"); done
  (IFS=, && printf '%s' "${found[*]}")
}

# A first tenant of the application, with the first API key and a webhook of its own; never again.
make_tenant() {
  has_role opinion || return 0
  install -d -m 0755 $ETC/tenants
  [ -z "$(ls -A $ETC/tenants)" ] && [ -f $ETC/credentials/client.key ] || return 0
  write_file $ETC/credentials/opinion/local.key 0600 root:root <$ETC/credentials/client.key
  openssl rand -hex 32 | write_file $ETC/credentials/opinion/webhook.secret 0600 root:root
  write_file $ETC/tenants/local.toml 0644 root:root <<'TOML'
# Written by install.sh, once; it is yours now (docs/opinion.md). The files lie in /etc/ssop/credentials/opinion.
api_key_file = "/run/credentials/ssop-opinion.service/opinion_local.key"
policy = "lite"
[[webhook_keys]]
id = "local"
secret_file = "/run/credentials/ssop-opinion.service/opinion_webhook.secret"
source = "webhook"
TOML
  say "the opinion application's first tenant is local; the secret of its webhook is $ETC/credentials/opinion/webhook.secret"
}

make_front() {
  has_role edge || return 0
  local number
  if [ ! -f $UPSTREAMS ]; then
    if [ -n "$host_files" ] && [ -f "$host_files/upstreams.conf" ]; then
      write_file $UPSTREAMS 0644 root:root <"$host_files/upstreams.conf"
    else
      {
        printf '# Written by install.sh, once; it is yours now. Scripts add "down" to a router while it restarts.\n'
        printf 'upstream ssop_routers {\n    zone ssop_routers 128k;\n    least_conn;\n'
        for ((number = 0; number < routers; number++)); do
          printf '    server 127.0.0.1:730%s max_fails=2 fail_timeout=2s;\n' "$number"
        done
        printf '    keepalive 128;\n    keepalive_timeout 1h;\n    keepalive_requests 1000000;\n}\n'
        printf 'upstream ssop_gateways {\n    server 127.0.0.1:7380 max_fails=0;\n    keepalive 64;\n}\n'
        printf '# The opinion application, where it runs.\n'
        printf 'upstream ssop_opinion {\n    server 127.0.0.1:7390 max_fails=0;\n    keepalive 16;\n}\n'
      } | write_file $UPSTREAMS 0644 root:root
    fi
  fi
  [ -z "$host_files" ] || [ ! -f "$host_files/to-routers.conf" ] || place_file "$host_files/to-routers.conf" $NGINX_ETC/to-routers.conf
  if [ -n "$tls_certificate" ]; then
    write_file $ETC/tls/front.pem 0644 root:root <"$tls_certificate"
    write_file $ETC/tls/front.key 0640 root:ssop-nginx <"$tls_key"
  elif [ ! -f $ETC/tls/front.pem ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 825 -subj "/CN=$(hostname -f 2>/dev/null || hostname)" \
      -addext "subjectAltName=DNS:$(hostname -f 2>/dev/null || hostname),DNS:localhost,IP:127.0.0.1" \
      -keyout $ETC/tls/front.key.new -out $ETC/tls/front.pem.new 2>/dev/null
    write_file $ETC/tls/front.key 0640 root:ssop-nginx <$ETC/tls/front.key.new
    write_file $ETC/tls/front.pem 0644 root:root <$ETC/tls/front.pem.new
    rm -f $ETC/tls/front.key.new $ETC/tls/front.pem.new
    say "the front's certificate is self-signed ($ETC/tls/front.pem): give it a real one before strangers use it"
  fi
  chown root:ssop-nginx $ETC/tls/front.key
  [ -z "$client_ca" ] || write_file $ETC/tls/client-ca.pem 0644 root:root <"$client_ca"
  if [ ! -f $NGINX_ETC/listen.conf ]; then
    {
      printf 'listen 443 ssl http2;\nlisten [::]:443 ssl http2;\nserver_name _;\n'
      printf 'ssl_certificate %s/tls/front.pem;\nssl_certificate_key %s/tls/front.key;\n' $ETC $ETC
      [ -z "$client_ca" ] || printf 'ssl_client_certificate %s/tls/client-ca.pem;\nssl_verify_client on;\n' $ETC
    } | write_file $NGINX_ETC/listen.conf 0644 root:root
    [ -f /proc/net/if_inet6 ] || sed -i '/\[::\]/d' $NGINX_ETC/listen.conf
  fi
}

make_models() {
  has_role inference && [ -z "$host_files" ] || return 0
  local release=$1
  if [ -n "$model_file" ]; then
    (cd / && "$release/bin/python" -c '
import pathlib, sys
from ssop_inference.models import add_model, list_models
name, source, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
if name not in list_models(folder):
    target = folder / source.name
    target.write_bytes(source.read_bytes())
    add_model(name, target, folder)' "$model" "$(readlink -f "$model_file")" $STATE/models)
  else
    (cd / && PIP_NO_INDEX=${wheelhouse:+1} PIP_FIND_LINKS=${wheelhouse:+$wheelhouse} "$release/bin/python" -c '
import pathlib, sys
from ssop_inference.models import fetch_model
fetch_model(sys.argv[1], pathlib.Path(sys.argv[2]))' "$model" $STATE/models) ||
      fail "the model $model can't be had; give its file with --model-file"
  fi
  chmod -R go+rX $STATE/models
}

# The units of this host, in the order of restarts: what is called comes before who calls it.
choose_units() {
  local number
  [ ! -f $ETC/units ] || return 0
  {
    ! has_role cache || printf '%s\n' ssop-redis@cache.service ssop-redis@state.service ssop-cache.service
    ! has_role rag || printf '%s\n' ssop-rag.service
    if has_role inference; then
      for ((number = 0; number < nodes; number++)); do printf 'ssop-inference@%s.service\n' "$number"; done
    fi
    if has_role router; then
      for ((number = 0; number < routers; number++)); do printf 'ssop-router@%s.service\n' "$number"; done
    fi
    ! has_role edge || printf '%s\n' ssop-nginx.service ssop-gateway.socket ssop-gateway.service
    ! has_role opinion || printf '%s\n' ssop-opinion.service
  } | write_file $ETC/units 0644 root:root
}

start_units() {
  local -a units
  mapfile -t units <$ETC/units
  systemctl enable -q ssop.target "${units[@]}"
  # At once: each waits by itself for what it needs.
  systemctl start --no-block ssop.target "${units[@]}"
  wait_serving "${units[@]}" || fail "mend what the log says, then run this again"
}

main() {
  read_options "$@"
  need_root
  preflight
  if [ -n "$is_preflight" ]; then
    say "nothing is missing for: $roles"
    return 0
  fi
  hold_lock
  umask 022
  make_directories
  local chosen release running file
  local -a chosen_roles
  IFS=, read -r -a chosen_roles <<<"$roles"
  chosen=$(choose_wheel)
  running=$(current_release)
  if [ -n "$running" ] && [ "$(basename "$running")" != "$(version_of_wheel "$chosen")" ]; then
    fail "release $(basename "$running") runs here; upgrade.sh replaces it without a lost request"
  fi
  release=$(make_release "$python" "${extras:-$(extras_of "${chosen_roles[@]}")}" "$chosen" "$wheelhouse")
  point current "$release"
  install_units "$release"
  make_secrets "$release"
  for file in "$release"/deploy/redis/*.conf; do
    place_file "$file" "$ETC/redis/$(basename "$file")"
  done
  make_settings
  make_tenant
  make_front
  ! has_role edge || install_nginx "$release"
  make_models "$release"
  check_settings "$release"
  choose_units
  start_units
  say "release $(basename "$release") serves as: $roles"
}

main "$@"
