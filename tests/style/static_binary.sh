#!/usr/bin/env bash
# The release binary runs on any Linux: nothing NEEDED, no loader, position independent, and it
# answers in an empty root. Usage: static_binary.sh TALOND
set -euo pipefail
bin=$1 rc=0
[ -x "$bin" ] || { echo "SKIP: $bin is not built (./dev build)"; exit 0; }

if readelf -dW "$bin" | grep NEEDED; then echo "the binary needs shared libraries"; rc=1; fi
if readelf -lW "$bin" | grep INTERP; then echo "the binary has a program interpreter"; rc=1; fi
if grep -qa TALON_TEST_FAULT "$bin"; then echo "the binary has fault points (base/fault.h)"; rc=1; fi
file -b "$bin" | grep -q 'static-pie linked' || { echo "not static-pie: $(file -b "$bin")"; rc=1; }
readelf -lW "$bin" | grep -q GNU_RELRO || { echo "no RELRO"; rc=1; }
if readelf -lW "$bin" | grep -E 'GNU_STACK.* RWE'; then echo "executable stack"; rc=1; fi

if [ "$(id -u)" != 0 ]; then echo "SKIP: chroot needs root"; exit $rc; fi
root=$(mktemp -d /tmp/talon-style.XXXXXX)
trap 'rm -rf "$root"' EXIT
cp "$bin" "$root/talond"
answer=$(chroot "$root" /talond version) || { echo "talond version failed in an empty root"; rc=1; }
grep -q '[0-9]\.[0-9]' <<<"$answer" || { echo "no version in: $answer"; rc=1; }
echo "size $(stat -c %s "$bin") bytes; in an empty root: $answer"
exit $rc
