#include "isolate/image/etc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "isolate/image/tree.h"

namespace talon::isolate::image {

namespace {

constexpr std::size_t kEtcFileMax = 8u << 20;  // ca-certificates.crt is 0.2 MB, ld.so.cache 0.1

// A trailing * stands for any rest. Nothing here is ours to guess: what is not named stays out.
constexpr std::array kAllowed = std::to_array<std::string_view>({
    "adduser.conf",
    "alternatives",
    "apt",
    "bash.bashrc",
    "bash_completion*",
    "ca-certificates*",
    "debconf.conf",
    "debian_version",
    "deluser.conf",
    "dictionaries-common",
    "dpkg",
    "ethertypes",
    "fonts",
    "gai.conf",
    "glvnd",
    "groff",
    "gtk-2.0",
    "gtk-3.0",
    "host.conf",
    "inputrc",
    "issue",
    "java*",
    "ld.so.*",
    "locale*",
    "localtime",
    "login.defs",
    "magic*",
    "manpath.config",
    "mime.types",
    "networks",
    "os-release",
    "pam.conf",
    "pam.d",
    "perl",
    "profile",
    "profile.d",
    "protocols",
    "python3*",
    "rpc",
    "services",
    "sgml",
    "shells",
    "skel",
    "ssl",
    "terminfo",
    "timezone",
    "ucf.conf",
    "vim",
    "xattr.conf",
    "xdg",
    "xml",
});

constexpr std::array kNeverNames = std::to_array<std::string_view>({
    "private", "auth.conf",        "auth.conf.d", "opasswd",    "shadow",
    "gshadow", "sudoers",          "ssh",         "machine-id", "credentials",
    ".netrc",  ".git-credentials", ".ssh",        ".aws",       ".docker",
    ".gnupg",  ".npmrc",           ".pypirc",     ".config",    ".bash_history",
});
constexpr std::array kNeverEndings = std::to_array<std::string_view>({
    ".key",
    ".p12",
    ".pfx",
    ".keytab",
    ".password",
    ".passwd",
    "~",
    ".swp",
});

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.ends_with('*')) {
    return name.starts_with(pattern.substr(0, pattern.size() - 1));
  }
  return pattern == name;
}

bool never(std::string_view name) {
  return std::ranges::find(kNeverNames, name) != kNeverNames.end() || name.starts_with("id_") ||
         std::ranges::any_of(kNeverEndings, [&](auto end) { return name.ends_with(end); });
}

// export AWS_SECRET_ACCESS_KEY=…, http_proxy_password=…, GITHUB_TOKEN=…
bool sets_secret(std::string_view text) {
  std::string lower{text};
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view word :
       {"secret", "token", "passwd", "password", "api_key", "apikey", "access_key", "credential"}) {
    for (std::size_t at = lower.find(word); at != std::string::npos;
         at = lower.find(word, at + 1)) {
      std::size_t end = at + word.size();
      while (end < lower.size() &&
             (std::isalnum(static_cast<unsigned char>(lower[end])) != 0 || lower[end] == '_')) {
        ++end;
      }
      if (end < lower.size() && lower[end] == '=') {
        return true;
      }
    }
  }
  return false;
}

// Keeps the parts of `text`, split by lines or (deb822) by blank lines, that hold no credentials.
std::string without_credentials(std::string_view text, bool stanzas) {
  std::string out;
  std::string part;
  const auto flush = [&] {
    if (!has_url_credentials(part)) {
      out += part;
    }
    part.clear();
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1);
    const std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    const bool blank = line.find_first_not_of(" \t\r\n") == std::string_view::npos;
    part += line;
    if (!stanzas || blank) {
      flush();
    }
  }
  flush();
  return out;
}

struct Copier {
  EtcCounts counts;

  Result<> dir(int src, int dst, const std::string& rel, int depth);
  Result<> symlink(int src, int dst, const std::string& name);
  Result<> file(int src, int dst, const std::string& rel, const std::string& name);
  Result<> subdir(int src, int dst, const std::string& rel, const std::string& name, int depth);
};

Result<> Copier::dir(int src, int dst, const std::string& rel, int depth) {
  if (depth > 16) {
    ++counts.left_out;
    return {};
  }
  TALON_TRY(entries, list_dir(src));
  for (const Entry& e : entries) {
    const std::string path = rel.empty() ? e.name : rel + "/" + e.name;
    if (!etc_allowed(path)) {
      continue;
    }
    struct stat st;
    if (fstatat(src, e.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    Result<> done;
    if (S_ISLNK(st.st_mode)) {
      done = symlink(src, dst, e.name);
    } else if (S_ISREG(st.st_mode)) {
      done = file(src, dst, path, e.name);
    } else if (S_ISDIR(st.st_mode)) {
      done = subdir(src, dst, path, e.name, depth);
    } else {
      ++counts.left_out;
    }
    if (!done) {
      return std::unexpected(std::move(done).error().in("/etc/" + path));
    }
  }
  return {};
}

Result<> Copier::symlink(int src, int dst, const std::string& name) {
  std::array<char, 4097> target;
  const ssize_t n = readlinkat(src, name.c_str(), target.data(), target.size() - 1);
  if (n < 0) {
    return {};
  }
  target[static_cast<std::size_t>(n)] = '\0';
  if (symlinkat(target.data(), dst, name.c_str()) != 0) {
    return fail_sys(errno, "symlink");
  }
  ++counts.symlinks;
  return {};
}

Result<> Copier::file(int src, int dst, const std::string& rel, const std::string& name) {
  auto from = open_beneath(src, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  struct stat st{};
  if (!from || fstat(from->get(), &st) != 0 || !S_ISREG(st.st_mode) ||
      (st.st_mode & S_IROTH) == 0 || static_cast<std::size_t>(st.st_size) > kEtcFileMax) {
    ++counts.left_out;
    return {};
  }
  std::string text(static_cast<std::size_t>(st.st_size), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = read(from->get(), text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return fail_sys(errno, "read");
    }
    if (n == 0) {
      break;
    }
    have += static_cast<std::size_t>(n);
  }
  text.resize(have);
  const Filtered filtered = filter_etc_file(rel, std::move(text));
  if (!filtered.keep) {
    ++counts.left_out;
    return {};
  }
  TALON_TRY(to, open_at(dst, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  TALON_CHECK(write_all(to.get(), filtered.text));
  const std::array<timespec, 2> times{st.st_atim, st.st_mtim};
  if (fchmod(to.get(), st.st_mode & 0755) != 0 || futimens(to.get(), times.data()) != 0) {
    return fail_sys(errno, "mode");
  }
  ++counts.files;
  counts.bytes += filtered.text.size();
  return {};
}

Result<> Copier::subdir(int src, int dst, const std::string& rel, const std::string& name,
                        int depth) {
  auto from = open_subdir(src, name);
  struct stat st{};
  constexpr mode_t kOthers = S_IROTH | S_IXOTH;
  if (!from || fstat(from->get(), &st) != 0 || (st.st_mode & kOthers) != kOthers) {
    ++counts.left_out;
    return {};
  }
  if (mkdirat(dst, name.c_str(), 0700) != 0) {
    return fail_sys(errno, "make directory");
  }
  TALON_TRY(to, open_subdir(dst, name));
  if (fchmod(to.get(), 0755) != 0) {
    return fail_sys(errno, "mode");
  }
  return dir(from->get(), to.get(), rel, depth + 1);
}

}  // namespace

bool etc_allowed(std::string_view path) {
  const std::string_view first = path.substr(0, path.find('/'));
  if (std::ranges::none_of(kAllowed, [&](auto p) { return matches(p, first); })) {
    return false;
  }
  if (first == "ssl" && path != "ssl" && path != "ssl/openssl.cnf" && path != "ssl/certs" &&
      !path.starts_with("ssl/certs/")) {
    return false;
  }
  for (std::string_view rest = path; !rest.empty();) {
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    if (never(rest.substr(0, slash))) {
      return false;
    }
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  return true;
}

bool has_url_credentials(std::string_view text) {
  for (std::size_t at = text.find("://"); at != std::string_view::npos;
       at = text.find("://", at + 3)) {
    const std::string_view rest = text.substr(at + 3);
    const std::string_view authority = rest.substr(0, rest.find_first_of("/?# \t\r\n\"'`<>"));
    const std::size_t sign = authority.find('@');
    if (sign != std::string_view::npos && sign > 0) {
      return true;
    }
  }
  return false;
}

bool holds_secret(std::string_view text) {
  // Cut in two, so that this program does not hold the marker itself.
  static const std::string kKey = std::string{"PRIVATE KEY"} + "-----";
  static const std::string kPgp = std::string{"PRIVATE KEY"} + " BLOCK-----";
  return text.find(kKey) != std::string_view::npos || text.find(kPgp) != std::string_view::npos ||
         has_url_credentials(text);
}

Filtered filter_etc_file(std::string_view path, std::string text) {
  if (path == "apt/sources.list" || path.starts_with("apt/sources.list.d/")) {
    if (path.ends_with(".list")) {
      return {true, without_credentials(text, false)};
    }
    if (path.ends_with(".sources")) {
      return {true, without_credentials(text, true)};
    }
  }
  const bool shell =
      path.starts_with("profile") || path.starts_with("skel/") || path == "bash.bashrc";
  if (holds_secret(text) || (shell && sets_secret(text))) {
    return {};
  }
  return {true, std::move(text)};
}

Result<EtcCounts> copy_etc(int host_etc, int etc) {
  Copier copier;
  TALON_CHECK(copier.dir(host_etc, etc, "", 0));
  return copier.counts;
}

}  // namespace talon::isolate::image
