#!/usr/bin/env bash
# `./dev demo`: the README's story, run for real, every curl line printed as one would type it.
# The data directory stays (build/demo-data), so that the second run finds the host image made.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

bin=build/release/talond
data=${DEMO_DATA:-$PWD/build/demo-data}
run=$(mktemp -d /tmp/talon-demo.XXXXXX)
pid='' sandbox=''
started=$(date +%s%N)

title() { printf '\n\033[1m-- %s\033[0m\n' "$*"; }
die() { printf 'demo: %s\n' "$*" >&2; exit 1; }

finish() {
  local rc=$?
  trap - EXIT INT TERM
  if [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; then
    kill -TERM "$pid"
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  fi
  [ $rc = 0 ] || { echo "demo: failed; talond said:" >&2; tail -n 20 "$run/talond.log" >&2 || true; }
  rm -rf "$run"
  exit $rc
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# shown METHOD PATH [JSON]: prints the line, sends it, leaves the answer in $answer, status in $status.
shown() {
  local method=$1 path=$2 body=${3:-} line
  line="curl -s -H \"Authorization: Bearer \$KEY\""
  local args=(-sS --max-time 120 -H "Authorization: Bearer $KEY" -o "$run/answer" -w '%{http_code}')
  case "$method" in
    GET) ;;
    POST) [ -n "$body" ] || { args+=(-X POST); line+=" -X POST"; } ;;
    *) args+=(-X "$method"); line+=" -X $method" ;;
  esac
  if [ -n "$body" ]; then args+=(--json "$body"); line+=" --json '${body//\'/\'\\\'\'}'"; fi
  printf '\033[36m$ %s "$URL%s"\033[0m\n' "$line" "$path"
  status=$(curl "${args[@]}" "$URL$path") || die "no answer from $URL$path"
  answer=$(cat "$run/answer")
}
expect() { [ "$status" = "$1" ] || die "expected $1, got $status: $answer"; }
# inside COMMAND: runs a shell text in the sandbox and prints what it wrote.
inside() {
  shown POST "/v1/sandboxes/$sandbox/run" "$(jq -nc --arg c "$1" '{command: $c}')"
  expect 200
  jq -j '.stdout + .stderr' <<<"$answer" | sed 's/^/    /'
  [ "$(jq -r .exit_code <<<"$answer")" = 0 ] || die "exit code $(jq -r .exit_code <<<"$answer")"
}

title "Start the daemon"
mkdir -p "$data"
echo "\$ talond serve --listen 127.0.0.1:0 --data-dir $data --run-dir $run --stop-sandboxes"
first=no; compgen -G "$data/images/host-*" >/dev/null || first=yes
"$bin" serve --listen 127.0.0.1:0 --data-dir "$data" --run-dir "$run" --stop-sandboxes >"$run/talond.log" 2>&1 &
pid=$!
for _ in $(seq 1200); do
  [ -s "$run/address" ] && [ -s "$data/keys/admin.key" ] && break
  kill -0 "$pid" 2>/dev/null || die "talond ended"
  sleep 0.1
done
[ -s "$run/address" ] || die "talond did not start listening within two minutes"
URL=$(head -n 1 "$run/address"); case "$URL" in http*) ;; *) URL="http://$URL" ;; esac
KEY=$(cat "$data/keys/admin.key")
echo "\$ URL=\$(cat $run/address)                     # $URL"
echo "\$ KEY=\$(cat $data/keys/admin.key)"
mounts_before=$(grep -c talon /proc/self/mountinfo || true)

title "What this machine can enforce"
# The node's own facts are for its admin: root, over the unix socket.
printf '\033[36m$ curl -s --unix-socket %s/talond.sock http://localhost/v1/host\033[0m\n' "$run"
answer=$(curl -sS --max-time 30 --unix-socket "$run/talond.sock" http://localhost/v1/host)
group=$(jq -r '.cgroup.path // empty' <<<"$answer")
jq . <<<"$answer" | head -n 60 | sed 's/^/    /'

title "Create a sandbox with limits, and wait until it runs"
[ $first = no ] || echo "(the first sandbox from image \`host\` waits for the snapshot of /usr to be made)"
limits='{"image":"host","name":"demo","env":{"GREETING":"hello"},"resources":{"memory":"512MiB","cpu":1,"pids":256}}'
shown POST "/v1/sandboxes?wait=running" "$limits"
if [ "$status" = 422 ]; then
  jq -r '"    " + (.status|tostring) + " " + .code + ": " + .detail' <<<"$answer"
  echo "    The kernel of this machine cannot hold what was asked for, and talond does not pretend."
  echo "    Without limits that were asked for, the sandbox is made, and says what is not enforced:"
  shown POST "/v1/sandboxes?wait=running" '{"image":"host","name":"demo","env":{"GREETING":"hello"}}'
fi
expect 201
sandbox=$(jq -r .id <<<"$answer")
jq '{id, state, image, resources, limits}' <<<"$answer" | sed 's/^/    /'

title "Compile and run a C program inside"
if [ -e /usr/bin/gcc ] || [ -e /usr/bin/cc ]; then
  inside 'cat > hello.c <<END
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) { printf("%s from C, pid %d, uid %d\n", getenv("GREETING"), getpid(), getuid()); }
END
cc -O2 -o hello hello.c && ./hello && pwd && ls -l'
else
  echo "    This machine's /usr has no C compiler, so the sandbox has none either; skipped."
fi

title "Run a Python script inside"
if [ -e /usr/bin/python3 ]; then
  inside '/usr/bin/python3 -c "
import os, platform
print(\"Python\", platform.python_version(), \"on\", platform.node())
print(sum(i * i for i in range(1000)), sorted(os.listdir(\"/\")))"'
else
  echo "    This machine's /usr has no python3, so the sandbox has none either; skipped."
fi

title "Its namespaces, identity and limits"
inside 'id; grep -E "^(CapEff|NoNewPrivs|Seccomp):" /proc/self/status; cat /proc/self/uid_map; readlink /proc/self/ns/mnt /proc/self/ns/pid /proc/self/ns/net /proc/self/ns/user; ps -e 2>/dev/null || ls -d /proc/[0-9]*'
echo "    the host's own:"
readlink /proc/self/ns/mnt /proc/self/ns/pid /proc/self/ns/net /proc/self/ns/user | sed 's/^/    /'
shown GET "/v1/sandboxes/$sandbox/stats"
expect 200
jq . <<<"$answer" | sed 's/^/    /'

title "An end is never confused with another: a timeout is not an exit code"
shown POST "/v1/sandboxes/$sandbox/run" '{"command":"echo partial; sleep 60","timeout":"1s"}'
expect 200
jq -c '{exit_code, signal, timed_out, oom, stdout}' <<<"$answer" | sed 's/^/    /'

title "Delete it, and look for what is left"
shown DELETE "/v1/sandboxes/$sandbox"
expect 204
shown GET "/v1/sandboxes/$sandbox"
expect 410
jq -c . <<<"$answer" | sed 's/^/    /'

cgroot=$(awk '{for (i = 7; i <= NF; i++) if ($i == "-") {if ($(i+1) == "cgroup2") print $5}}' /proc/self/mountinfo | head -n 1)
left=''
for _ in $(seq 50); do
  left=''
  # A process of the sandbox: one whose cgroup names it.
  for f in /proc/[0-9]*/cgroup; do
    if grep -qs "$sandbox" "$f"; then left+="process ${f%/cgroup} "; fi
  done
  if grep -q "$sandbox" /proc/self/mountinfo; then left+="mount "; fi
  [ "$(grep -c talon /proc/self/mountinfo || true)" = "$mounts_before" ] || left+="mounts "
  if [ -n "$cgroot" ] && [ -n "$(find "$cgroot" -name "$sandbox" -print -quit 2>/dev/null)" ]; then left+="cgroup "; fi
  if [ -e "$data/sandboxes/$sandbox" ] || [ -e "$run/$sandbox" ]; then left+="directory "; fi
  if [ -n "$(ls -A "$data/trash" 2>/dev/null)" ]; then left+="trash "; fi
  [ -n "$left" ] || break
  sleep 0.1
done
[ -z "$left" ] || die "left behind: $left"
echo "    nothing: no process, no mount, no cgroup, no directory of $sandbox"

title "Stop the daemon"
kill -TERM "$pid"; wait "$pid" || die "talond ended with $?"
pid=''
for what in "$group" "$run/talond.sock"; do
  if [ -n "$what" ] && [ -e "$what" ]; then die "left behind by the daemon: $what"; fi
done
echo "    gone, and its cgroup and socket with it"
printf '\nThe demo took %d ms after the build. Its data directory stays for the next run: %s\n' \
  $((($(date +%s%N) - started) / 1000000)) "$data"
