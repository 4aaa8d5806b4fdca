#!/bin/sh
# Inside the VM, by busybox: the `vm` label, and the kernel and security cases whose payload is
# busybox or the probe. Usage: suite.sh [all | vm | kernel | security]...
[ $# -gt 0 ] || set -- vm kernel security
[ "$1" != all ] || set -- vm kernel security
failed=
cases_all=0
skipped_all=0
for label in "$@"; do
  # Not in here: what needs images, programs or files of a host; a case that holds init for 120 times
  # 30000 failed path searches, which takes minutes under emulation.
  case $label in
    kernel) filter='~[image]~[host]' ;;
    security) filter='~F4: a child of init that is stopped before its execve*' ;;
    *) filter= ;;
  esac
  begin=$(cut -d. -f1 /proc/uptime)
  echo "== vm: $label"
  # A filter that matches nothing is a failure (-w NoTests).
  timeout -s KILL 1500 "/vm/${label}_tests" -w NoTests ${filter:+"$filter"} >/tmp/out 2>&1
  rc=$?
  skipped=$(grep -c 'SKIP:' /tmp/out)
  # Skipping is for machines without the controllers: in here it would be a test that never runs.
  [ "$label" != vm ] || [ "$skipped" = 0 ] || rc=1
  [ $rc = 0 ] && tail -n 4 /tmp/out || cat /tmp/out
  grep -E 'SKIP:|observed:' /tmp/out | sort | uniq -c
  # "All tests passed (N assertions in M test cases)" or "test cases: M | …"
  cases=$(tail -n 4 /tmp/out | sed -n 's/.* in \([0-9]*\) test case.*/\1/p; s/^test cases: *\([0-9]*\).*/\1/p')
  cases_all=$((cases_all + ${cases:-0}))
  skipped_all=$((skipped_all + skipped))
  echo "== vm: $label: rc=$rc, ${cases:-0} cases, $skipped skipped, $(($(cut -d. -f1 /proc/uptime) - begin)) s"
  [ $rc = 0 ] || failed="$failed $label"
done
# What the tests made they took away: the root group holds the harness's own group only.
left=$(find /sys/fs/cgroup -mindepth 1 -type d ! -name payload)
[ -z "$left" ] || { echo "left behind: $left"; failed="$failed cgroups"; }
echo "vm: Linux $(uname -r): $cases_all test cases, $skipped_all skipped, failed:${failed:- nothing}"
[ -z "$failed" ]
