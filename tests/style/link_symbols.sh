#!/usr/bin/env bash
# What a static glibc warns about at link time (lld does not print those warnings, so the symbols
# are read instead): functions that load the host's NSS modules, locales or converters into the
# process. Asio's resolver and libcrypto's BIO bring getaddrinfo, gethostbyname and dlopen with
# what these need, libarchive brings iconv_open; nothing of ours calls them (banned.py). Any other
# is a new dependency on the host. Usage: link_symbols.sh TALOND
set -euo pipefail
bin=$1
[ -x "$bin" ] || { echo "SKIP: $bin is not built (./dev build)"; exit 0; }
allowed='^(getaddrinfo|gethostby(name|name_r|name2_r|name3_[a-z]+|addr_r)|getservby(name|port)_r|dlopen|dlmopen|iconv_open)$'
watched='^(dlopen|dlmopen|getaddrinfo|gethostby.*|getpw.*|getgr(nam|gid|ent).*|getservby.*|getnetby.*|getprotoby.*|initgroups|getgrouplist|getspnam.*|iconv_open)$'
names=$(nm "$bin" 2>/dev/null | awk '$2 ~ /[TtWwi]/ {print $3}' | sort -u)
[ -n "$names" ] || { echo "the binary has no symbols to read"; exit 1; }
found=$(grep -E "$watched" <<<"$names" || true)
new=$(grep -vE "$allowed" <<<"$found" || true)
echo "host-dependent functions linked in: $(tr '\n' ' ' <<<"$found")"
if [ -n "${new//[$'\n ']/}" ]; then echo "not on the allowlist: $new"; exit 1; fi
