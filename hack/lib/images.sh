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

# ---- operator ----

OPERATOR_IMAGE=mpioperator/mpi-operator
OPERATOR_ARCHIVE="${CARGO_TARGET_DIR:-$REPO/target}/image/mpi-operator.tar"

# The tag is made from the content, so that a new build is a new tag and a Deployment
# really rolls over to it. The last one made stands in a file beside the archive.
operator_tag() { cat "$OPERATOR_ARCHIVE.tag" 2>/dev/null || die "there is no operator image: make image"; }

make_operator() {
  local target binary dir tag log="$CACHE/log/image-operator.log" started=$SECONDS
  command -v cargo >/dev/null || die "cargo is missing: install Rust (rustup.rs)"
  need_programs cc=build-essential
  target=$(rustc -vV | sed -n 's/^host: //p')
  binary="${CARGO_TARGET_DIR:-$REPO/target}/$target/release/mpi-operator"
  mkdir -p "$CACHE/tmp" "${OPERATOR_ARCHIVE%/*}"
  say "building the operator (release, static)"
  # Static, so that the image holds one file: no shell, no libraries to keep patched.
  # With --target the flags reach the program only, not build scripts or other builds.
  if ! run_logged "the operator" "$log" env RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --release --locked --manifest-path "$REPO/Cargo.toml" \
    --package mpi-operator --bin mpi-operator --target "$target"; then
    show_log "$log" 40
    die "the operator does not build"
  fi
  tag="dev-$(hash_of "$binary")"
  if [[ -f $OPERATOR_ARCHIVE && $(cat "$OPERATOR_ARCHIVE.tag" 2>/dev/null) == "$tag" ]]; then
    say "the operator image is up to date: $OPERATOR_IMAGE:$tag"
    return 0
  fi
  dir=$(mktemp -d "$CACHE/tmp/operator.XXXXXX")
  install -D -m 0755 "$binary" "$dir/root/opt/mpi-operator"
  chown -R 0:0 "$dir/root" 2>/dev/null || true # not root: kind, where owners do not matter
  pack "$dir/root" "$dir/layer.tar"
  write_archive "$OPERATOR_ARCHIVE" "$dir/layer.tar" '{"Entrypoint":["/opt/mpi-operator"],"User":"65532:65532"}' \
    "$OPERATOR_IMAGE:dev" "$OPERATOR_IMAGE:$tag"
  echo "$tag" >"$OPERATOR_ARCHIVE.tag"
  rm -rf "$dir"
  say "made $OPERATOR_IMAGE:$tag in $((SECONDS - started)) s"
}
