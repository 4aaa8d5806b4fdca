// The account and name service files of the image `host`: Debian's base system users (base-passwd)
// with no password field that could match, and one ordinary user.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "isolate/image/etc.h"

namespace talon::isolate::image {

namespace {

struct User {
  std::string_view name;
  unsigned uid;
  unsigned gid;
  std::string_view home;
};
constexpr std::array kUsers = std::to_array<User>({
    {"daemon", 1, 1, "/usr/sbin"},
    {"bin", 2, 2, "/bin"},
    {"sys", 3, 3, "/dev"},
    {"sync", 4, 65534, "/bin"},
    {"games", 5, 60, "/usr/games"},
    {"man", 6, 12, "/var/cache/man"},
    {"lp", 7, 7, "/var/spool/lpd"},
    {"mail", 8, 8, "/var/mail"},
    {"news", 9, 9, "/var/spool/news"},
    {"uucp", 10, 10, "/var/spool/uucp"},
    {"proxy", 13, 13, "/bin"},
    {"www-data", 33, 33, "/var/www"},
    {"backup", 34, 34, "/var/backups"},
    {"list", 38, 38, "/var/list"},
    {"irc", 39, 39, "/run/ircd"},
    {"_apt", 42, 65534, "/nonexistent"},
    {"nobody", 65534, 65534, "/nonexistent"},
});

struct Group {
  std::string_view name;
  unsigned gid;
};
constexpr std::array kGroups = std::to_array<Group>({
    {"root", 0},      {"daemon", 1},  {"bin", 2},     {"sys", 3},         {"adm", 4},
    {"tty", 5},       {"disk", 6},    {"lp", 7},      {"mail", 8},        {"news", 9},
    {"uucp", 10},     {"man", 12},    {"proxy", 13},  {"kmem", 15},       {"dialout", 20},
    {"fax", 21},      {"voice", 22},  {"cdrom", 24},  {"floppy", 25},     {"tape", 26},
    {"sudo", 27},     {"audio", 29},  {"dip", 30},    {"www-data", 33},   {"backup", 34},
    {"operator", 37}, {"list", 38},   {"irc", 39},    {"src", 40},        {"shadow", 42},
    {"utmp", 43},     {"video", 44},  {"sasl", 45},   {"plugdev", 46},    {"staff", 50},
    {"games", 60},    {"users", 100}, {"user", 1000}, {"nogroup", 65534},
});

bool known_user(std::string_view name) {
  return name == "root" || name == "user" || name.starts_with('#') ||
         std::ranges::any_of(kUsers, [&](const User& u) { return u.name == name; });
}
bool known_group(std::string_view name) {
  return name.starts_with('#') ||
         std::ranges::any_of(kGroups, [&](const Group& g) { return g.name == name; });
}

}  // namespace

// The password field is `*`, not `x`: there is no shadow file, and PAM then asks for none.
std::string passwd_text(std::string_view shell) {
  std::string out = "root:*:0:0:root:/root:" + std::string{shell} + "\n";
  for (const User& u : kUsers) {
    out += std::string{u.name} + ":*:" + std::to_string(u.uid) + ":" + std::to_string(u.gid) + ":" +
           std::string{u.name} + ":" + std::string{u.home} +
           (u.name == "sync" ? ":/bin/sync\n" : ":/usr/sbin/nologin\n");
  }
  return out + "user:*:1000:1000:user:/home/user:" + std::string{shell} + "\n";
}

std::string group_text() {
  std::string out;
  for (const Group& g : kGroups) {
    out += std::string{g.name} + ":*:" + std::to_string(g.gid) + ":\n";
  }
  return out;
}

std::string_view hosts_text() {
  return "127.0.0.1 localhost sandbox\n"
         "::1 localhost ip6-localhost ip6-loopback\n";
}

// The address that every egress policy steers to talond; under `deny` nothing answers there.
std::string_view resolv_conf_text() {
  return "nameserver 198.18.0.1\n"
         "options timeout:2 attempts:2\n";
}

std::string_view nsswitch_text() {
  return "passwd: files\ngroup: files\nshadow: files\ngshadow: files\nhosts: files dns\n"
         "networks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n";
}

std::string filter_statoverride(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1);
    const std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    const std::size_t first = line.find(' ');
    const std::size_t second = first == line.npos ? first : line.find(' ', first + 1);
    if (second != line.npos && known_user(line.substr(0, first)) &&
        known_group(line.substr(first + 1, second - first - 1))) {
      out += line;
    }
  }
  return out;
}

}  // namespace talon::isolate::image
