// Decision 10: a daemon that comes later finds the sandbox again, and only the right one.

#include <catch2/catch.hpp>

#include <poll.h>
#include <unistd.h>

#include <chrono>

#include "kernel/sandbox_support.h"

using namespace talon;
using namespace talon::testing;
using namespace std::chrono_literals;

TEST_CASE("a sandbox outlives its daemon and is adopted") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  auto spec = lab.spec();
  spec.on_orphan = isolate::OnOrphan::stay;
  Box box = lab.create(spec);
  CHECK(lab.sh(box, "echo before > /tmp/f").code == 0);
  const isolate::Identity identity = box->identity();
  box.sandbox.reset();     // the daemon's descriptors go
  lab.restart_launcher();  // and its spawner

  auto adopted = lab.launcher().adopt(identity);
  INFO((adopted ? "" : adopted.error().message));
  REQUIRE(adopted.has_value());
  box.sandbox = std::move(*adopted);
  CHECK(lab.run(box, {"/bin/cat", "/tmp/f"}).out == "before\n");
  // The event descriptor is the one that init counts on.
  std::uint64_t count = 0;
  CHECK(read(box->event_fd(), &count, sizeof(count)) == sizeof(count));
  CHECK(count > 0);
  // Its ids are not given to another sandbox.
  Box other = lab.create();
  CHECK(other->identity().lease != identity.lease);
  lab.destroy(other);
  lab.destroy(box);
}

TEST_CASE("adoption refuses a wrong nonce, start time, boot or a dead sandbox") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box box = lab.create();
  const isolate::Identity good = box->identity();

  isolate::Identity bad = good;
  bad.nonce.assign(32, '0');
  CHECK_FALSE(lab.launcher().adopt(bad).has_value());
  bad = good;
  bad.start_time += 1;
  CHECK(lab.launcher().adopt(bad).error().code == Code::not_found);
  bad = good;
  bad.boot_id = "other";
  CHECK(lab.launcher().adopt(bad).error().code == Code::gone);
  bad = good;
  bad.host_pid = getpid();
  CHECK_FALSE(lab.launcher().adopt(bad).has_value());
  bad = good;
  bad.lease += 1;
  CHECK_FALSE(lab.launcher().adopt(bad).has_value());
  CHECK(lab.run(box, {"/bin/echo", "alive"}).out == "alive\n");

  REQUIRE(box->kill(10s).has_value());
  CHECK_FALSE(lab.launcher().adopt(good).has_value());
  CHECK(box->remove().has_value());
}

TEST_CASE("sweep ends what is not kept and leaves the rest") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  Box kept = lab.create();
  Box lost = lab.create();
  const auto report = lab.launcher().sweep({kept->identity().id});
  CHECK(report.size() == 2);  // its cgroup and its run directory
  pollfd wait{lost->pid_fd(), POLLIN, 0};
  CHECK(poll(&wait, 1, 10'000) == 1);
  CHECK(lab.run(kept, {"/bin/echo", "ok"}).out == "ok\n");
  CHECK(lost->remove().has_value());
  lab.destroy(kept);
}

TEST_CASE("on_orphan die: the sandbox ends with its last connection") {
  TALON_NEED_SANDBOXES();
  Lab lab;
  auto spec = lab.spec();
  spec.on_orphan = isolate::OnOrphan::die;
  Box box = lab.create(spec);
  REQUIRE(lab.run(box, {"/bin/true"}).code == 0);
  const int pidfd = dup(box->pid_fd());
  const isolate::Identity identity = box->identity();
  box.sandbox.reset();
  pollfd wait{pidfd, POLLIN, 0};
  CHECK(poll(&wait, 1, 10'000) == 1);
  close(pidfd);
  CHECK(lab.launcher().sweep({}).size() == 2);
}
