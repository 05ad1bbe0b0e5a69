#!/bin/sh
# Installs the `loom` command: downloads the archive of a release for this machine, verifies its SHA-256 checksum, and copies the program.
#
#   sh install.sh
#
# LOOM_INSTALL_DIR   where the program goes (default: ~/.local/bin)
# LOOM_VERSION       a version, such as 0.1.0 (default: the newest release)
# LOOM_BASE_URL      the folder that has the archives and SHA256SUMS (default: the release's downloads)
set -eu

repository=https://github.com/tensorloom/tensorloom

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

# The target triple of this machine's archive.
triple() {
  system=$(uname -s)
  machine=$(uname -m)
  case $machine in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) fail "there is no archive for $machine processors; build from source with: cargo install --git $repository tensorloom-cli" ;;
  esac
  case $system-$machine in
    # Statically linked: it runs with any C library.
    Linux-x86_64) echo x86_64-unknown-linux-musl ;;
    Linux-aarch64) echo aarch64-unknown-linux-gnu ;;
    # A shell under Rosetta reports x86_64 on a machine with an Apple processor.
    Darwin-x86_64)
      if [ "$(sysctl -n hw.optional.arm64 2> /dev/null || echo 0)" = 1 ]; then
        echo aarch64-apple-darwin
      else
        echo x86_64-apple-darwin
      fi
      ;;
    Darwin-aarch64) echo aarch64-apple-darwin ;;
    MINGW* | MSYS* | CYGWIN*) fail "on Windows, download loom-*-x86_64-pc-windows-msvc.zip from $repository/releases" ;;
    *) fail "there is no archive for $system on $machine; build from source with: cargo install --git $repository tensorloom-cli" ;;
  esac
}

# download URL FILE
download() {
  if command -v curl > /dev/null 2>&1; then
    curl -fsSL --retry 3 -o "$2" "$1"
  elif command -v wget > /dev/null 2>&1; then
    wget -q -O "$2" "$1"
  else
    fail "neither curl nor wget is installed; install one of them"
  fi || fail "can't download $1; check the network connection, and that the release has this file"
}

# sha256 FILE
sha256() {
  if command -v sha256sum > /dev/null 2>&1; then
    sha256sum "$1"
  else
    shasum -a 256 "$1"
  fi | cut -d ' ' -f 1
}

command -v sha256sum > /dev/null 2>&1 || command -v shasum > /dev/null 2>&1 ||
  fail "neither sha256sum nor shasum is installed, so a download can't be verified; install coreutils"
triple=$(triple)
if [ -n "${LOOM_BASE_URL:-}" ]; then
  base=${LOOM_BASE_URL%/}
elif [ -n "${LOOM_VERSION:-}" ]; then
  base=$repository/releases/download/v${LOOM_VERSION#v}
else
  base=$repository/releases/latest/download
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

# SHA256SUMS lists every file of the release, so it gives the archive's name, with the version, and its checksum.
download "$base/SHA256SUMS" "$folder/SHA256SUMS"
line=$(grep -E "  loom-[^ /]*-$triple\.tar\.gz\$" "$folder/SHA256SUMS" | head -n 1) || true
[ -n "$line" ] || fail "the release at $base has no archive for $triple; choose another with LOOM_VERSION, or see $repository/releases"
expected=${line%% *}
archive=${line##* }

download "$base/$archive" "$folder/$archive"
found=$(sha256 "$folder/$archive")
[ "$found" = "$expected" ] ||
  fail "$archive has the checksum $found, but SHA256SUMS lists $expected; nothing was installed. Try again; if this persists, report it"

tar -xzf "$folder/$archive" -C "$folder" || fail "$archive can't be unpacked; install tar and gzip"
program=$folder/${archive%.tar.gz}/loom
[ -f "$program" ] || fail "$archive has no program in it; report this at $repository/issues"

to=${LOOM_INSTALL_DIR:-${HOME:?set HOME or LOOM_INSTALL_DIR}/.local/bin}
mkdir -p "$to" 2> /dev/null || fail "can't create $to; set LOOM_INSTALL_DIR to a folder that you may write to"
# Through a temporary name, so that a running program can be replaced.
{ cp "$program" "$to/.loom.$$" && chmod 755 "$to/.loom.$$" && mv -f "$to/.loom.$$" "$to/loom"; } 2> /dev/null ||
  { rm -f "$to/.loom.$$"; fail "can't write $to/loom; set LOOM_INSTALL_DIR to a folder that you may write to"; }

version=${archive#loom-}
echo "installed loom ${version%-"$triple".tar.gz} to $to/loom"
case :$PATH: in
  *":$to:"*) ;;
  *) echo "$to is not in PATH; add it, for example with: export PATH=\"$to:\$PATH\"" ;;
esac
