#!/usr/bin/env bash
# talon-init is freestanding: it imports nothing, needs no loader, and stays small, because each
# sandbox has one. Usage: init_elf.sh ELF
set -euo pipefail
elf=$1 limit=$((64 * 1024)) rc=0
[ -f "$elf.debug" ] || { echo "$elf.debug is missing"; exit 1; }

undefined=$(nm --undefined-only "$elf.debug" | awk '{print $NF}')
if [ -n "$undefined" ]; then echo "undefined symbols (the allowlist is empty): $undefined"; rc=1; fi

size=$(stat -c %s "$elf")
if [ "$size" -gt "$limit" ]; then echo "talon-init is $size bytes, at most $limit"; rc=1; fi

headers=$(readelf -lW "$elf")
if grep -qE 'INTERP|DYNAMIC' <<<"$headers"; then echo "talon-init has INTERP or DYNAMIC"; rc=1; fi
# A segment that is writable and executable, or an executable stack, would undo W^X for PID 1.
if grep -qE ' RWE ' <<<"$headers"; then echo "talon-init has a writable and executable segment"; rc=1; fi

# No constructors: nothing runs before _start, so nothing may need to.
if readelf -SW "$elf.debug" | grep -qE '\.(init_array|ctors|tbss|tdata)'; then
  echo "talon-init has constructors or thread-local data"; rc=1
fi
echo "talon-init: $size bytes, undefined symbols: ${undefined:-none}"
exit $rc
