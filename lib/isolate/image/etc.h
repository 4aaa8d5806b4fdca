#pragma once
// /etc of the image `host`: an allowlist of names (decision 27), each file copied, never linked,
// after it was looked at. What the allowlist lets through can still hold a secret that an
// administrator put there (a proxy with a password in apt.conf.d, an export in profile.d), so
// content is judged too; a file in doubt is left out and counted. The accounts and the name
// service files are ours, not the host's.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace talon::isolate::image {

// Whether `path` (relative to /etc) may be copied: the first component is on the allowlist and no
// component is on the list of names that hold secrets (*.key, private, auth.conf, …).
bool etc_allowed(std::string_view path);

// A URL with user information (scheme://name[:password]@host), also in comments.
bool has_url_credentials(std::string_view text);

// A private key (PEM, OpenSSH, PGP) or URL credentials.
bool holds_secret(std::string_view text);

// What of a file is copied (`keep` false: nothing). apt's one-line lists lose the
// lines and its deb822 files the stanzas that hold credentials; any other file that holds a
// secret, or a shell start-up file that sets something named like one, is dropped whole.
struct Filtered {
  bool keep = false;
  std::string text;
};
Filtered filter_etc_file(std::string_view path, std::string text);

// Lines of dpkg's statoverride (`user group mode path`) whose user and group exist in the image;
// dpkg refuses to run at all over an unknown one.
std::string filter_statoverride(std::string_view text);

struct EtcCounts {
  std::uint64_t files = 0;
  std::uint64_t symlinks = 0;
  std::uint64_t bytes = 0;
  std::uint64_t left_out = 0;  // allowed by name, but unreadable to others, special or a secret
};
// From the host's /etc (an open directory) into an empty directory.
Result<EtcCounts> copy_etc(int host_etc, int etc);

// The files that are ours. `shell` is the login shell of root and user.
std::string passwd_text(std::string_view shell);
std::string group_text();
std::string_view hosts_text();
std::string_view resolv_conf_text();
std::string_view nsswitch_text();

}  // namespace talon::isolate::image
