#!/bin/bash
# Boots systemd on an overlay of a root: boot_host.sh FOLDER NAME ROOT BIND... (SOURCE:TARGET, read-only).
# To be run by `unshare --mount --pid --net --fork --kill-child --mount-proc`, so that mounts, processes and the network
# end with it, whatever ends it.
set -euo pipefail
folder=$1 name=$2 lower=$3
shift 3

# A group of its own in every hierarchy: two of these at once would else share the units' groups.
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
  hierarchies=(/sys/fs/cgroup)
else
  hierarchies=(/sys/fs/cgroup/*/)
fi
for hierarchy in "${hierarchies[@]}"; do
  case $hierarchy in
    */cpuset/ | */net_cls*/ | */perf_event/ | */hugetlb/ | */misc/ | */rdma/) continue ;;
  esac
  [ -e "$hierarchy/cgroup.procs" ] || continue
  mkdir -p "$hierarchy/$name"
  echo $$ >"$hierarchy/$name/cgroup.procs"
done

ip link set lo up
mkdir -p "$folder/overlay"
mount -t tmpfs -o size=6g,mode=0755 tmpfs "$folder/overlay"
mkdir "$folder/overlay/"{up,work,root}
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$folder/overlay/up,workdir=$folder/overlay/work" "$folder/overlay/root"
root=$folder/overlay/root
# No service of this machine, and nothing of a mesh that may be on it.
rm -rf "$root"/etc/systemd/system/{multi-user,sockets,timers}.target.wants/* "$root"/etc/ssop "$root"/opt/ssop \
  "$root"/var/lib/ssop* "$root"/etc/systemd/system/ssop*
binds=()
for bind in "$@"; do
  mkdir -p "$root${bind#*:}"
  binds+=("--bind-ro=$bind")
done
# What nspawn keeps about its machines goes with them.
mount -t tmpfs -o mode=0755 tmpfs /run
# 133: the host asked for a reboot. On Debian 13 it gets the controllers of a machine that has version 1 only.
while true; do
  code=0
  systemd-nspawn -q -D "$root" --boot --register=no --keep-unit --console=pipe --machine="$name" --link-journal=no \
    "${binds[@]}" -- --unit=multi-user.target SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1 || code=$?
  [ "$code" = 133 ] || exit "$code"
done
