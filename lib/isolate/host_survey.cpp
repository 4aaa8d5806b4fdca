// What `talond doctor` and GET /v1/host look at, as it is.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "base/fd.h"
#include "base/limits.h"
#include "isolate/cgroup_tree.h"
#include "isolate/host.h"
#include "isolate/host_probe.h"

namespace talon::isolate {

namespace {

std::string line_of(const std::string& path) {
  auto text = read_file_at(AT_FDCWD, path, 1 << 16);
  if (!text) {
    return {};
  }
  text->erase(std::min(text->find('\n'), text->size()));
  return *text;
}

std::uint64_t number_of(const char* path) {
  const std::string line = line_of(path);
  std::uint64_t value = 0;
  std::from_chars(line.data(), line.data() + line.size(), value);
  return value;
}

Survey::Data survey_data(const std::string& configured, bool root) {
  Survey::Data data;
  data.dir = configured;
  std::error_code error;
  std::filesystem::path dir{configured};
  while (!std::filesystem::is_directory(dir, error) && dir.has_relative_path()) {
    dir = dir.parent_path();
  }
  data.found = dir;
  const auto fd = open_at(AT_FDCWD, data.found, O_RDONLY | O_DIRECTORY);
  struct statfs facts{};
  if (!fd || fstatfs(fd->get(), &facts) != 0) {
    data.error = fd ? errno : fd.error().sys;
    return data;
  }
  data.magic = static_cast<std::uint64_t>(facts.f_type);
  data.free_bytes = facts.f_bavail * static_cast<std::uint64_t>(facts.f_bsize);
  data.reflink = probe::reflink(fd->get());
  data.project_quota = probe::project_quota(fd->get());
  data.idmap_error = root ? probe::idmapped_mount(fd->get()) : EPERM;
  return data;
}

// "127.0.0.1:80" or "[::1]:80"; a unix socket or a text that is no address: nothing.
socklen_t parse_listen(const std::string& text, sockaddr_storage& out) {
  const auto colon = text.rfind(':');
  std::uint16_t port = 0;
  if (colon == std::string::npos ||
      std::from_chars(text.data() + colon + 1, text.data() + text.size(), port).ec != std::errc{}) {
    return 0;
  }
  std::string host = text.substr(0, colon);
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    return sizeof(*v4);
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    return sizeof(*v6);
  }
  return 0;
}

bool has_line(std::string_view text, std::string_view line) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (text.substr(0, end) == line) {
      return true;
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return false;
}

// `served`: the URLs, one a line, of a talond that was started with this run directory.
Survey::Listen survey_listen(const std::string& address, std::string_view served) {
  Survey::Listen out{.address = address};
  sockaddr_storage at{};
  const socklen_t size = parse_listen(address, at);
  if (size == 0) {
    return out;
  }
  const UniqueFd sock{socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int yes = 1;
  if (!sock || setsockopt(sock.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(sock.get(), reinterpret_cast<const sockaddr*>(&at), size) != 0) {
    out.error = errno;
    out.port = out.error != EADDRINUSE ? Survey::Port::refused
               : has_line(served, "http://" + address) || has_line(served, "https://" + address)
                   ? Survey::Port::ours
                   : Survey::Port::taken;
  }
  return out;
}

std::string find_chromium() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser",
                           "/usr/bin/google-chrome", "/usr/lib/chromium/chromium"}) {
    if (access(path, X_OK) == 0) {
      return path;
    }
  }
  return {};
}

std::string find_clash(std::uint64_t first, std::uint64_t last) {
  for (const char* path : {"/etc/subuid", "/etc/subgid"}) {
    const auto text = read_file_at(AT_FDCWD, path, 1 << 20);
    if (const std::string range = text ? clashing_range(*text, first, last) : std::string{};
        !range.empty()) {
      return std::string{path} + ": " + range;
    }
  }
  return {};
}

}  // namespace

std::string clashing_range(std::string_view text, std::uint64_t first, std::uint64_t last) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) {
      continue;
    }
    std::uint64_t from = 0;
    std::uint64_t count = 0;
    const char* stop = line.data() + line.size();
    const auto got = std::from_chars(line.data() + colon + 1, stop, from);
    if (got.ec != std::errc{} || got.ptr == stop ||
        std::from_chars(got.ptr + 1, stop, count).ec != std::errc{} || count == 0) {
      continue;
    }
    if (from <= last && from + count > first) {
      return std::string{line};
    }
  }
  return {};
}

Result<Survey> survey_host(const SurveyScope& scope) {
  Survey survey;
  TALON_TRY(facts, probe_host(scope.cgroup_path));
  survey.facts = std::move(facts);
  const bool root = survey.facts.root;
  if (const auto place = choose_cgroup_place(scope.cgroup_path, Place::look)) {
    survey.cgroup_place = *place;
  }
  survey.max_user_namespaces = number_of("/proc/sys/user/max_user_namespaces");
  survey.apparmor_restricts =
      number_of("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1;
  survey.max_pids =
      std::min(number_of("/proc/sys/kernel/pid_max"), number_of("/proc/sys/kernel/threads-max"));
  survey.pressure = !line_of("/proc/pressure/memory").empty();
  survey.tproxy_error = root ? probe::tproxy() : EPERM;
  timex clock{};
  survey.clock_synchronized = adjtimex(&clock) >= 0 && (clock.status & STA_UNSYNC) == 0;
  survey.clock_s = time(nullptr);
  survey.chromium = find_chromium();
  survey.data = survey_data(scope.data_dir, root);
  const auto served = read_file_at(AT_FDCWD, scope.run_dir + "/address", 1 << 16);
  for (const std::string& address : scope.listen) {
    survey.listen.push_back(survey_listen(address, served ? *served : ""));
  }
  survey.ids_first = scope.ids_base;
  survey.ids_last =
      scope.ids_base + std::uint64_t{scope.ids_count} * limits::kIdRange - (scope.ids_count != 0);
  survey.subid_clash = find_clash(survey.ids_first, survey.ids_last);
  return survey;
}

}  // namespace talon::isolate
