// What init keeps ready for the next exec: two pipes and a group, a few log files. None of it may
// show as an exec, be used twice, or be left over.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernel/init_support.h"
#include "kernel/sandbox_support.h"

namespace {

using namespace talon;
using namespace talon::test;

#define NEED_BOX(...)                       \
  if (auto why = why_not(); !why.empty()) { \
    WARN("SKIP: " << why);                  \
    return;                                 \
  }                                         \
  InitBox box{__VA_ARGS__};                 \
  REQUIRE(box.up())

std::string read_text(const std::string& path) {
  std::ifstream in{path};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::size_t spare_logs(const std::string& dir) {
  return static_cast<std::size_t>(std::ranges::count_if(
      std::filesystem::directory_iterator{dir},
      [](const auto& entry) { return entry.path().filename().string().starts_with(".spare"); }));
}

TEST_CASE("an exec takes the group that was made before it, and one is made for the next") {
  NEED_BOX();
  if (!box.has_cgroups()) {
    WARN("SKIP: needs cgroup2");
    return;
  }
  REQUIRE(InitBox::eventually([&] { return box.exec_groups().size() == 1; }));
  const std::string ready = box.exec_groups().front();
  CHECK(read_text(box.group() + "/x/" + ready + "/cgroup.procs").empty());
  CHECK(box.journal().size() == 1);  // init_start: nothing was started
  CHECK(box.log_files() == std::vector<std::string>{"journal"});

  box.shell("pxone", "exec sleep 600");
  auto one = box.wait_type(wire::Type::started, "pxone");
  REQUIRE(one);
  CHECK(std::to_string(one->as<wire::Started>().group) == ready);
  CHECK_FALSE(read_text(box.group() + "/x/" + ready + "/cgroup.procs").empty());
  box.shell("pxtwo", "exec sleep 600");
  auto two = box.wait_type(wire::Type::started, "pxtwo");
  REQUIRE(two);
  CHECK(two->as<wire::Started>().group != one->as<wire::Started>().group);

  // The right one is killed, and its group goes.
  CHECK(box.signal("pxone", SIGKILL, wire::Scope::all) == 0);
  REQUIRE(box.wait_exit("pxone"));
  CHECK(InitBox::eventually([&] { return box.exec_groups().size() == 2; }));
  const auto left = box.exec_groups();
  CHECK(std::ranges::find(left, ready) == left.end());
  CHECK(box.signal("pxtwo", 0, wire::Scope::process) == 0);
  CHECK(box.signal("pxtwo", SIGKILL, wire::Scope::all) == 0);
  REQUIRE(box.wait_exit("pxtwo"));
  CHECK(InitBox::eventually([&] { return box.exec_groups().size() == 1; }));
}

TEST_CASE("a burst of execs uses up what is ready and loses nothing") {
  NEED_BOX();
  for (int i = 0; i < 20; ++i) {
    box.shell("px" + std::to_string(i), "echo $$; echo err >&2");
  }
  for (int i = 0; i < 20; ++i) {
    const std::string px = "px" + std::to_string(i);
    auto exit = box.wait_exit(px);
    REQUIRE(exit);
    CHECK(exit->code == 0);
    REQUIRE(box.wait_type(wire::Type::ended, px));
    const auto entries = box.entries(px);
    REQUIRE(entries.size() == 4);
    CHECK(box.output(px, wire::Kind::err) == "err\n");
    CHECK(entries.back().kind == wire::Kind::end);
  }
  CHECK(box.log_files().size() == 21);
  CHECK(box.journal().size() == 41);
  // Never more than a few, and none is anybody's log.
  CHECK(InitBox::eventually([&] { return spare_logs(box.dir() + "/logs") == 6; }));
  if (box.has_cgroups()) {
    CHECK(InitBox::eventually([&] { return box.exec_groups().size() == 1; }));
  }
}

TEST_CASE("an exec whose log's name is taken is refused, and the other log stays") {
  NEED_BOX();
  REQUIRE(box.run("pxfirst", "true"));  // the next one finds everything ready
  REQUIRE(InitBox::eventually([&] { return spare_logs(box.dir() + "/logs") != 0; }));
  UniqueFd mine(::openat(box.logs(), "pxtaken.0", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::write(mine.get(), "mine", 4) == 4);
  box.shell("pxtaken", "exec sleep 600");
  auto failed = box.wait_type(wire::Type::exec_failed, "pxtaken");
  REQUIRE(failed);
  CHECK(failed->as<wire::ExecFailed>().error == EEXIST);
  CHECK(failed->as<wire::ExecFailed>().stage == static_cast<std::uint32_t>(wire::Stage::log));
  CHECK(read_text(box.dir() + "/logs/pxtaken.0") == "mine");
  auto exit = box.run("pxafter", "echo fine");
  REQUIRE(exit);
  CHECK(box.output("pxafter") == "fine\n");
  if (box.has_cgroups()) {
    CHECK(InitBox::eventually([&] { return box.exec_groups().size() == 1; }));
  }
}

TEST_CASE("a pause and a second connection leave what is ready as it is") {
  NEED_BOX();
  REQUIRE(box.run("pxfirst", "true"));
  box.request(wire::Type::mark, wire::Mark{.paused = 1, .reserved = 0});
  REQUIRE(box.wait_type(wire::Type::done));
  box.shell("pxno", "true");
  auto refused = box.wait_type(wire::Type::exec_failed, "pxno");
  REQUIRE(refused);
  CHECK(refused->as<wire::ExecFailed>().error == EBUSY);
  box.request(wire::Type::mark, wire::Mark{.paused = 0, .reserved = 0});
  REQUIRE(box.wait_type(wire::Type::done));

  UniqueFd second = box.connect();
  wire::Hello hello{};
  std::memcpy(hello.nonce, kNonce, sizeof kNonce);
  REQUIRE(InitBox::send(second.get(), wire::Type::hello, 9, &hello, sizeof hello));
  auto ok = InitBox::receive(second.get(), std::chrono::seconds(20));
  REQUIRE(ok);
  CHECK(ok->as<wire::HelloOk>().live_execs == 0);
  ExecOptions options;
  options.argv = {"/bin/sh", "-c", "echo second"};
  box.exec("pxsecond", options, second.get());
  REQUIRE(box.wait_exit("pxsecond"));  // every connection hears of it
  CHECK(box.output("pxsecond") == "second\n");
  if (box.has_cgroups()) {
    CHECK(InitBox::eventually([&] { return box.exec_groups().size() == 1; }));
  }
}

TEST_CASE("pipes that were made for one user are not another's") {
  NEED_BOX();
  REQUIRE(box.run("pxroot", "true"));
  for (const char* uid : {"65534", "0", "1"}) {
    const std::string px = std::string{"pxu"} + uid;
    auto exit = box.run(px, "stat -L -c '%u %a' /dev/fd/1", {.user = uid});
    REQUIRE(exit);
    CHECK(exit->code == 0);
    CHECK(box.output(px) == std::string{uid} + " 666\n");
  }
}

}  // namespace

namespace talon::testing {

TEST_CASE("an exec sees the passwd and group files as they are now") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const auto edit = [&](const std::string& text) {
    REQUIRE(lab.run(box, {"/bin/sh", "-c", text}, "0").code == 0);
  };
  const auto id_of_eve = [&] { return lab.run(box, {"/bin/sh", "-c", "id -u; id -G"}, "eve").out; };
  edit("echo 'eve:*:1234:1234::/tmp:/bin/sh' >>/etc/passwd");
  CHECK(id_of_eve() == "1234\n1234\n");
  CHECK(id_of_eve() == "1234\n1234\n");
  edit("sed -i s/1234/4321/g /etc/passwd");
  CHECK(id_of_eve() == "4321\n4321\n");
  // In place, with no change of size; and in the other file.
  edit("printf 'eve:*:4322:4321::/tmp:/bin/sh\\n' >/etc/passwd");
  CHECK(id_of_eve() == "4322\n4321\n");
  edit("echo 'club:*:77:eve' >>/etc/group");
  CHECK(id_of_eve() == "4322\n4321 77\n");
  edit("rm /etc/passwd");
  CHECK(lab.run(box, {"/bin/true"}, "0").code == 0);
  lab.destroy(box);
}

}  // namespace talon::testing
