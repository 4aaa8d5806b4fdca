// `talond doctor`: facts in, rows out; and one look at the machine that the tests run on.

#include <dirent.h>
#include <linux/magic.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <set>

#include "base/limits.h"
#include "isolate/host.h"

using namespace talon;
using namespace talon::isolate;
using Status = Finding::Status;

namespace {

// A host on which every row is ok.
Survey good() {
  Survey survey;
  HostFacts& facts = survey.facts;
  facts.kernel = "6.12.1";
  facts.kernel_major = 6;
  facts.kernel_minor = 12;
  facts.machine = "x86_64";
  facts.root = facts.user_namespaces = facts.overlayfs = facts.idmapped_tmpfs = facts.seccomp =
      true;
  facts.landlock_abi = 6;
  facts.nofile_hard = 1 << 20;
  facts.cgroup_mount = "/sys/fs/cgroup";
  facts.controllers = {"cpu", "io", "memory", "pids"};
  survey.cgroup_place = "/sys/fs/cgroup";
  survey.max_user_namespaces = 15'000;
  survey.max_pids = 1 << 22;
  survey.pressure = true;
  survey.clock_synchronized = true;
  survey.clock_s = 1'800'000'000;
  survey.chromium = "/usr/bin/chromium";
  survey.data = {.dir = "/var/lib/talon",
                 .found = "/var/lib/talon",
                 .error = 0,
                 .magic = XFS_SUPER_MAGIC,
                 .free_bytes = 100ull << 30,
                 .reflink = true,
                 .idmap_error = 0,
                 .project_quota = true};
  survey.listen = {{.address = "127.0.0.1:7300", .port = Survey::Port::free, .error = 0}};
  survey.ids_first = limits::kIdBase;
  survey.ids_last = limits::kIdBase + 10;
  return survey;
}

Finding row(const Survey& survey, const std::string& name) {
  const auto rows = diagnose(survey);
  const auto at = std::ranges::find(rows, name, &Finding::name);
  REQUIRE(at != rows.end());
  return *at;
}

// One change to a good host, and what the row says then.
struct Case {
  const char* row;
  Status status;
  const char* says;  // in value, effect or fix
  std::function<void(Survey&)> change;
};

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* dir = opendir("/proc/self/fd");
  REQUIRE(dir != nullptr);
  while (readdir(dir) != nullptr) {
    ++count;
  }
  closedir(dir);
  return count;
}

}  // namespace

TEST_CASE("kernel versions compare by number, not by text") {
  const HostFacts facts = good().facts;
  CHECK(facts.at_least(6, 3));
  CHECK(facts.at_least(6, 12));
  CHECK_FALSE(facts.at_least(6, 13));
  CHECK(facts.at_least(5, 99));
  CHECK_FALSE(facts.at_least(7, 0));
}

TEST_CASE("doctor: on a host that has all, every row is ok, says so in a sentence, needs no fix") {
  const auto rows = diagnose(good());
  std::set<std::string> names;
  for (const Finding& finding : rows) {
    INFO(finding.name);
    CHECK(finding.status == Status::ok);
    CHECK_FALSE(finding.value.empty());
    CHECK(finding.effect.ends_with('.'));
    CHECK(finding.fix.empty());
    CHECK(names.insert(finding.name).second);
  }
  CHECK(worst(rows) == Status::ok);
}

TEST_CASE("doctor: each row in each state that it can have") {
  using S = Survey;
  const std::vector<Case> cases{
      {"root", Status::missing, "sudo", [](S& s) { s.facts.root = false; }},
      {"kernel", Status::missing, "6.1", [](S& s) { s.facts.kernel_major = 5; }},
      {"user namespaces", Status::degraded,
       "sysctl -w user.max_user_namespaces=", [](S& s) { s.max_user_namespaces = 100; }},
      {"user namespaces", Status::missing,
       "sysctl -w user.max_user_namespaces=", [](S& s) { s.facts.user_namespaces = false; }},
      {"AppArmor user namespaces", Status::ok, "restricted",
       [](S& s) { s.apparmor_restricts = true; }},
      {"cgroup v2", Status::missing, "Delegate=yes",
       [](S& s) { s.facts.cgroup_problem = "read-only"; }},
      {"cgroup v2", Status::missing, "mount -t cgroup2",
       [](S& s) {
         s.facts.cgroup_problem = "cgroup v2 is not mounted";
         s.facts.cgroup_mount.clear();
       }},
      {"controller memory", Status::degraded, "resources.memory",
       [](S& s) { s.facts.controllers = {"cpu"}; }},
      {"controller pids", Status::degraded, "422", [](S& s) { s.facts.controllers = {"cpu"}; }},
      {"controller cpu", Status::ok, "resources.cpu", [](S& s) { s.facts.controllers = {"cpu"}; }},
      {"controller io", Status::degraded, "resources.io",
       [](S& s) { s.facts.controllers = {"cpu"}; }},
      {"overlayfs", Status::missing, "modprobe overlay", [](S& s) { s.facts.overlayfs = false; }},
      {"idmapped tmpfs", Status::degraded, "6.3", [](S& s) { s.facts.idmapped_tmpfs = false; }},
      {"seccomp", Status::missing, "CONFIG_SECCOMP_FILTER", [](S& s) { s.facts.seccomp = false; }},
      {"landlock", Status::degraded, "lsm=landlock", [](S& s) { s.facts.landlock_abi = 0; }},
      {"pressure (PSI)", Status::degraded, "psi=1", [](S& s) { s.pressure = false; }},
      {"nft tproxy", Status::degraded, "No such file", [](S& s) { s.tproxy_error = ENOENT; }},
      {"data directory", Status::degraded, "1 GiB", [](S& s) { s.data.free_bytes = 500ull << 20; }},
      {"data directory", Status::missing, "507", [](S& s) { s.data.free_bytes = 1 << 20; }},
      {"data directory", Status::missing, "a volume",
       [](S& s) { s.data.magic = OVERLAYFS_SUPER_MAGIC; }},
      {"data directory", Status::missing, "Permission denied", [](S& s) { s.data.error = EACCES; }},
      {"idmapped mounts", Status::missing, "Invalid argument",
       [](S& s) { s.data.idmap_error = EINVAL; }},
      {"reflink", Status::degraded, "xfs", [](S& s) { s.data.reflink = false; }},
      {"project quota", Status::degraded, "prjquota", [](S& s) { s.data.project_quota = false; }},
      {"project quota", Status::degraded, "tune2fs -O project,quota",
       [](S& s) {
         s.data.project_quota = false;
         s.data.magic = EXT4_SUPER_MAGIC;
       }},
      {"open files limit", Status::degraded, "LimitNOFILE",
       [](S& s) { s.facts.nofile_hard = 1024; }},
      {"process limit", Status::degraded, "kernel.pid_max", [](S& s) { s.max_pids = 32'768; }},
      {"clock", Status::degraded, "not synchronised", [](S& s) { s.clock_synchronized = false; }},
      {"clock", Status::degraded, "Certificates", [](S& s) { s.clock_s = 100; }},
      {"listen 127.0.0.1:7300", Status::ok, "A running talond",
       [](S& s) { s.listen[0].port = S::Port::ours; }},
      {"listen 127.0.0.1:7300", Status::missing, "in use",
       [](S& s) { s.listen[0].port = S::Port::taken; }},
      {"listen 127.0.0.1:7300", Status::missing, "Cannot assign",
       [](S& s) {
         s.listen[0].port = S::Port::refused;
         s.listen[0].error = EADDRNOTAVAIL;
       }},
      {"id ranges", Status::degraded, "joe:1000000000:65536",
       [](S& s) { s.subid_clash = "/etc/subuid: joe:1000000000:65536"; }},
      {"chromium", Status::degraded, "apt-get install chromium", [](S& s) { s.chromium.clear(); }},
  };
  const auto all = diagnose(good());
  for (const Case& c : cases) {
    Survey survey = good();
    c.change(survey);
    const Finding finding = row(survey, c.row);
    INFO(c.row << ": " << c.says);
    CHECK(finding.status == c.status);
    CHECK((finding.value + "\n" + finding.effect + "\n" + finding.fix).find(c.says) !=
          std::string::npos);
    CHECK(finding.effect.ends_with('.'));
    // What is not ok names what to do, and only that; the other rows stay as they were, but for
    // the controllers, which are taken away together.
    CHECK(finding.fix.empty() == (c.status == Status::ok));
    const auto rows = diagnose(survey);
    CHECK(worst(rows) >= c.status);
    REQUIRE(rows.size() == all.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].name != c.row && !rows[i].name.starts_with("controller ")) {
        INFO(rows[i].name);
        CHECK(rows[i].status == all[i].status);
      }
    }
  }
}

TEST_CASE("doctor: ranges of subordinate ids are compared as numbers, other lines are skipped") {
  const std::string text = "# no range\njoe:100000:65536\nann:999999999:1\nbob:x:1\nlate:2000:0\n";
  CHECK(clashing_range(text, 1'000'000'000, 1'000'065'536).empty());
  CHECK(clashing_range(text, 999'999'999, 999'999'999) == "ann:999999999:1");
  CHECK(clashing_range(text, 165'535, 165'535) == "joe:100000:65536");
  CHECK(clashing_range(text, 165'536, 165'536).empty());
  CHECK(clashing_range("joe:5:10", 14, 20) == "joe:5:10");
  CHECK(clashing_range("", 0, ~0ull).empty());
}

TEST_CASE("doctor: a look at this machine finds facts and leaves nothing") {
  const std::size_t before = open_descriptors();
  const auto survey = survey_host({.cgroup_path = "",
                                   .data_dir = "/nonexistent/data",
                                   .run_dir = "/nonexistent/run",
                                   .listen = {"127.0.0.1:0", "192.0.2.1:80", "unix:/x"},
                                   .ids_base = limits::kIdBase,
                                   .ids_count = limits::kIdLeases});
  REQUIRE(survey.has_value());
  CHECK(open_descriptors() == before);
  CHECK(survey->facts.kernel_major >= 5);
  CHECK_FALSE(survey->facts.machine.empty());
  CHECK(survey->facts.boot_id.size() == 36);
  CHECK(survey->facts.nofile_hard > 0);
  CHECK(survey->max_pids > 0);
  CHECK(survey->data.found == "/");
  CHECK(survey->data.error == 0);
  CHECK(survey->data.magic != 0);
  REQUIRE(survey->listen.size() == 3);
  CHECK(survey->listen[0].port == Survey::Port::free);
  CHECK(survey->listen[1].port == Survey::Port::refused);  // TEST-NET-1, nobody's address
  CHECK(survey->listen[1].error == EADDRNOTAVAIL);
  CHECK(survey->listen[2].port == Survey::Port::free);
  CHECK(survey->ids_last == 1'000'000'000ull + 4096ull * 65'537 - 1);
  CHECK((survey->facts.root || survey->tproxy_error == EPERM));
}
