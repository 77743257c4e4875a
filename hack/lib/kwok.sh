# Simulated nodes. Sourced.
# shellcheck shell=bash
kwok_nodes() { die "not yet"; }
