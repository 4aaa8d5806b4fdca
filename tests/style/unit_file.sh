#!/bin/sh
# The systemd unit: systemd takes every line of it, and what the sandboxes' lives hang on is there.
# Usage: unit_file.sh SOURCE_DIR
set -eu
unit=$1/packaging/talond.service
failed=0
for line in Delegate=yes KillMode=process OOMPolicy=continue RuntimeDirectoryPreserve=yes \
  StateDirectoryMode=0700 RuntimeDirectoryMode=0700 NoNewPrivileges=yes LimitCORE=0; do
  grep -qx "$line" "$unit" || { echo "$unit: no line $line" >&2; failed=1; }
done
# A sandbox inherits these, or its daemon no longer sees the host's mounts.
if grep -nE '^(MemoryDenyWriteExecute|SystemCallArchitectures|SystemCallFilter|RestrictSUIDSGID|LockPersonality|RestrictNamespaces|Protect|Private|ReadOnly|ReadWrite|Inaccessible|TemporaryFileSystem|BindPaths|RootDirectory)' "$unit" >&2; then
  echo "$unit: lines that break sandboxes" >&2
  failed=1
fi
if command -v systemd-analyze >/dev/null; then
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  # The program need not be installed here.
  sed 's|^ExecStart=/usr/bin/talond|ExecStart=/bin/true|' "$unit" >"$dir/talond.service"
  if ! systemd-analyze verify "$dir/talond.service" >"$dir/out" 2>&1 ||
    grep -F 'talond.service:' "$dir/out" >&2; then
    cat "$dir/out" >&2
    failed=1
  fi
fi
exit "$failed"
