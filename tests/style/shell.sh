#!/usr/bin/env bash
# Every script of the tree parses. Usage: shell.sh ROOT
set -euo pipefail
cd "$1"
rc=0 n=0
while IFS= read -r file; do
  case "$(head -n 1 "$file")" in
    '#!'*bash) bash -n "$file" || rc=1 ;;
    '#!/bin/sh') sh -n "$file" || rc=1 ;;
    '#!'*python3) python3 -c 'import ast,sys; ast.parse(open(sys.argv[1]).read())' "$file" || rc=1 ;;
    *) continue ;;
  esac
  n=$((n + 1))
done < <(find dev .ci tests packaging -type f \( -perm -u+x -o -name '*.sh' -o -name '*.py' \))
echo "shell: $n scripts parse"
exit $rc
