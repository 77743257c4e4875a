# Makes the Open MPI worker image. Sourced, after images.sh; a file of its own because
# its hash is part of the image's key in the cache.
# shellcheck shell=bash

openmpi_archive() {
  local recipe="$REPO/images/openmpi" files=()
  mapfile -t files < <(find "$recipe" -type f | LC_ALL=C sort)
  echo "$CACHE/images/openmpi-$DEBIAN_SUITE-$(hash_of "${files[@]}" "$HACK/lib/openmpi.sh").tar"
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
  if [[ -f $output ]]; then
    keep_fresh "$output" openmpi-
    return 0
  fi
  if [[ $CLUSTER == kind ]]; then
    mkdir -p "$CACHE/images"
    docker build -t mpi-operator/openmpi:dev -t mpioperator/mpi-pi:openmpi \
      -f "$REPO/images/openmpi/Containerfile" "$REPO/images/openmpi" &&
      docker save -o "$output.tmp" mpi-operator/openmpi:dev mpioperator/mpi-pi:openmpi && mv "$output.tmp" "$output"
    return
  fi
  ((EUID == 0)) || die "the worker image is made with debootstrap, which needs root (or use images/openmpi/Containerfile with docker)"
  need_programs debootstrap=debootstrap
  local log="$CACHE/log/image-openmpi.log" started=$SECONDS dir
  mkdir -p "$CACHE/images" "$CACHE/tmp"
  dir=$(mktemp -d "$CACHE/tmp/openmpi.XXXXXX")
  say "making the Open MPI image from Debian packages (first time only)"
  if ! run_logged "the Open MPI image" "$log" openmpi_steps "$dir" "$output"; then
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
