#!/bin/sh
# Runs inside the image's file system, after its packages are installed and rootfs/
# is copied in. Used by the Containerfile and by hack/images.sh alike.
set -eu

useradd --uid 1000 --create-home --shell /bin/bash mpiuser
# "!" in place of a password locks the account for an sshd that runs as root; "*" only
# means that no password fits.
usermod --password "*" mpiuser
chown -R mpiuser:mpiuser /home/mpiuser

# sshd's own folder; a package's service would make it at boot.
mkdir -p /run/sshd
chmod 0755 /run/sshd
# Host keys come with each job. The ones the package made would be the same for everybody.
rm -f /etc/ssh/ssh_host_*

# Not needed to run MPI programs, and most of the size.
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
  /usr/share/doc/* /usr/share/man/* /usr/share/info/* /usr/share/locale/*
rm -f /setup.sh
