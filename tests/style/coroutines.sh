#!/usr/bin/env bash
# The coroutine rule: co_await stands alone. In a statement with co_await there is no ?:, no braced
# list and no capturing lambda, because g++ 12 destroys such temporaries twice, and a distribution
# may build with it. clang-query finds every known bad form.
#   coroutines.sh BUILD_DIR            lib/ and cmd/ must be clean
#   coroutines.sh --fixture FILE       each line marked `// BAD: word` must be flagged with the word,
#                                      and no other line
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
query=$(command -v clang-query-19 || true)
[ -n "$query" ] || { echo "SKIP: clang-query-19 is not installed (clang-tools-19)"; exit 0; }

base='exprWithCleanups(hasDescendant(coawaitExpr())'
run_query() {  # prints file:line:word; a file that does not compile is a fault too
  "$query" -c 'set output diag' -c 'set bind-root false' \
    -c "m $base,hasDescendant(conditionalOperator().bind(\"ternary\")))" \
    -c "m $base,hasDescendant(initListExpr().bind(\"braces\")))" \
    -c "m $base,hasDescendant(lambdaExpr(hasDescendant(fieldDecl())).bind(\"capturing-lambda\")))" \
    "$@" 2>&1 | sed -nE 's/^([^ ]+):([0-9]+):[0-9]+: note: "(ternary|braces|capturing-lambda)" binds here.*/\1:\2:\3/p;
      s/^([^ ]+):([0-9]+):[0-9]+: (fatal )?error: (.*)/\1:\2:does not compile: \4/p' | sort -u
}
export -f run_query
export query base

if [ "$1" = --fixture ]; then
  expected=$(grep -nE '// BAD: ' "$2" | sed -E 's/^([0-9]+):.*\/\/ BAD: ([a-z-]+).*/\1:\2/' | sort)
  found=$(run_query "$2" -- -std=c++23 | sed -E 's/^.*:([0-9]+:[a-z-]+)$/\1/' | sort)
  if [ -z "$expected" ] || [ "$expected" != "$found" ]; then
    echo "fixture: expected (<) and found (>) differ"; diff <(echo "$expected") <(echo "$found"); exit 1
  fi
  echo "fixture: $(wc -l <<<"$expected") bad statements, all flagged, nothing else"
  exit 0
fi

build=$1
[ -f "$build/compile_commands.json" ] || { echo "$build has no compile_commands.json"; exit 1; }
mapfile -t files < <(grep -rlE '\bco_(await|return)\b' lib cmd --include='*.cpp' || true)
[ ${#files[@]} -gt 0 ] || { echo "no file with co_await was found"; exit 1; }
faults=$(printf '%s\n' "${files[@]}" |
  xargs -P "$(nproc)" -I{} bash -c 'run_query -p "$1" "$2"' _ "$build" {} | grep -E "^$PWD/(lib|cmd)/" | sort -u || true)
if [ -n "$faults" ]; then
  echo "co_await does not stand alone (docs: CONTRIBUTING.md, Coroutines):"; echo "$faults"; exit 1
fi
echo "coroutines: ${#files[@]} files clean"
