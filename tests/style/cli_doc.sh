#!/usr/bin/env bash
# docs/cli.md says what --help says. Usage: cli_doc.sh TSB DOC [--write]
set -euo pipefail
tsb=$1 doc=$2
text=$(
  echo '# The command line client'
  echo
  echo '<!-- Written by tests/style/cli_doc.sh TSB docs/cli.md --write from the texts of --help. -->'
  echo
  printf '```\n%s\n```\n' "$("$tsb" --help)"
  "$tsb" __complete '' | cut -f 1 | grep -vx help | while read -r verb; do
    printf '\n## %s\n\n```\n%s\n```\n' "$verb" "$("$tsb" "$verb" --help)"
  done
)
if [ "${3:-}" = --write ]; then
  printf '%s\n' "$text" > "$doc"
elif ! diff -u "$doc" <(printf '%s\n' "$text"); then
  echo "$doc is not what --help says; run $0 $tsb $doc --write"
  exit 1
fi
