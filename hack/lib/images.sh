# Makes the images of the cluster as docker archives, without a container engine. Sourced.
# shellcheck shell=bash

IMAGE_ARCH=$(dpkg --print-architecture 2>/dev/null || uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')

# A docker archive is a tar of one layer, a config and a manifest: little enough to
# write by hand, and then the same input gives the same image, byte for byte.
write_archive() { # OUTPUT LAYER_TAR RUNTIME_CONFIG_JSON TAG...
  local output=$1 layer=$2 runtime=$3 dir digest tags
  shift 3
  dir=$(mktemp -d "$CACHE/tmp/archive.XXXXXX")
  digest=$(sha256sum "$layer" | cut -d' ' -f1)
  mv "$layer" "$dir/$digest.tar"
  tags=$(printf ',"%s"' "$@")
  cat >"$dir/config.json" <<JSON
{"architecture":"$IMAGE_ARCH","os":"linux","created":"1970-01-01T00:00:00Z","config":$runtime,
"rootfs":{"type":"layers","diff_ids":["sha256:$digest"]},
"history":[{"created":"1970-01-01T00:00:00Z","created_by":"hack/images.sh"}]}
JSON
  cat >"$dir/manifest.json" <<JSON
[{"Config":"config.json","RepoTags":[${tags#,}],"Layers":["$digest.tar"]}]
JSON
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$dir" \
    -cf "$output.tmp" manifest.json config.json "$digest.tar"
  rm -rf "$dir"
  mv "$output.tmp" "$output"
}

pack() { # DIR OUTPUT: owners are kept (a home that became root's breaks a non-root sshd)
  tar --xattrs --sort=name --numeric-owner -C "$1" -cf "$2" .
}

# ---- pause ----

pause_archive() { echo "$CACHE/images/pause-$(hash_of "$REPO/images/pause/pause.c").tar"; }

make_pause() {
  local output dir
  output=$(pause_archive)
  [[ -f $output ]] && return 0
  need_programs gcc=gcc /usr/include/signal.h=libc6-dev
  mkdir -p "$CACHE/images" "$CACHE/tmp"
  dir=$(mktemp -d "$CACHE/tmp/pause.XXXXXX")
  mkdir "$dir/root"
  gcc -Os -static -s -Wall -o "$dir/root/pause" "$REPO/images/pause/pause.c" || die "could not compile images/pause/pause.c"
  pack "$dir/root" "$dir/layer.tar"
  write_archive "$output" "$dir/layer.tar" '{"Entrypoint":["/pause"],"User":"65535:65535"}' mpi-operator/pause:dev
  rm -rf "$dir"
}

# ---- Open MPI worker ----

openmpi_archive() {
  local recipe="$REPO/images/openmpi" files=()
  mapfile -t files < <(find "$recipe" -type f | LC_ALL=C sort)
  # This file is part of the recipe as well.
  echo "$CACHE/images/openmpi-$DEBIAN_SUITE-$(hash_of "${files[@]}" "$HACK/lib/images.sh").tar"
}

# The unpacked packages change far less often than what is put on top of them.
openmpi_base() {
  echo "$CACHE/images/openmpi-base-$DEBIAN_SUITE-$(hash_of "$REPO/images/openmpi/packages.txt").rootfs.tar"
}

in_root() { # DIR COMMAND...: with nothing of the caller's environment
  local dir=$1
  shift
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive chroot "$dir" "$@"
}

make_openmpi() {
  local output
  output=$(openmpi_archive)
  [[ -f $output ]] && return 0
  ((EUID == 0)) || die "the worker image is made with debootstrap, which needs root (or use images/openmpi/Containerfile with docker)"
  need_programs debootstrap=debootstrap
  local log="$CACHE/log/image-openmpi.log" started=$SECONDS dir
  mkdir -p "$CACHE/images" "$CACHE/tmp" "$CACHE/log"
  dir=$(mktemp -d "$CACHE/tmp/openmpi.XXXXXX")
  say "making the Open MPI image from Debian packages (first time only)"
  if ! openmpi_steps "$dir" "$output" >"$log" 2>&1 </dev/null; then
    show_log "$log"
    rm -rf "$dir"
    die "could not make the Open MPI image"
  fi
  rm -rf "$dir"
  say "made the Open MPI image in $((SECONDS - started)) s"
}

# Called where a failing command must not be hidden by "if": each step is chained.
openmpi_steps() { # DIR OUTPUT
  local dir=$1 output=$2 recipe="$REPO/images/openmpi" base include
  base=$(openmpi_base)
  if [[ ! -f $base ]]; then
    include=$(paste -sd, "$recipe/packages.txt")
    debootstrap --variant=minbase --include="$include" "$DEBIAN_SUITE" "$dir/base" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} &&
      pack "$dir/base" "$base.tmp" &&
      mv "$base.tmp" "$base" &&
      mv "$dir/base" "$dir/root" || return 1
  else
    mkdir "$dir/root" && tar --xattrs --numeric-owner -C "$dir/root" -xpf "$base" || return 1
  fi
  # The program is compiled in a copy, so that no compiler ends up in the image.
  # shellcheck disable=SC2046  # one word per package is meant
  cp -a "$dir/root" "$dir/build" &&
    cp /etc/resolv.conf "$dir/build/etc/resolv.conf" &&
    cp "$recipe/pi.c" "$dir/build/tmp/pi.c" &&
    in_root "$dir/build" apt-get update &&
    in_root "$dir/build" apt-get install -y --no-install-recommends $(cat "$recipe/build-packages.txt") &&
    in_root "$dir/build" mpicc -O2 -Wall -o /tmp/pi /tmp/pi.c &&
    cp -r "$recipe/rootfs/." "$dir/root/" &&
    install -m 0755 "$recipe/setup.sh" "$dir/root/setup.sh" &&
    in_root "$dir/root" sh /setup.sh &&
    install -m 0755 -o 1000 -g 1000 "$dir/build/tmp/pi" "$dir/root/home/mpiuser/pi" &&
    rm -f "$dir/root/etc/resolv.conf" "$dir/root/etc/hostname" &&
    pack "$dir/root" "$dir/layer.tar" &&
    write_archive "$output" "$dir/layer.tar" \
      '{"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin","OMPI_ALLOW_RUN_AS_ROOT=1","OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"],"WorkingDir":"/home/mpiuser","Cmd":["/bin/sh"]}' \
      mpi-operator/openmpi:dev mpioperator/mpi-pi:openmpi
}
