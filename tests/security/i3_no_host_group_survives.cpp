// I3: supplementary groups of whoever started the daemon do not reach a sandbox.

#include <grp.h>
#include <unistd.h>

#include <fstream>

#include "security/attack.h"

using namespace talon::testing;

namespace {

// The daemon as an operator with many groups would start it.
class HostGroups {
 public:
  HostGroups() {
    before_.resize(64);
    const int n = getgroups(64, before_.data());
    before_.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    const gid_t many[] = {0, 4, 6, 20, 27, 999, 5000};
    ok_ = setgroups(std::size(many), many) == 0;
  }
  ~HostGroups() { setgroups(before_.size(), before_.data()); }
  HostGroups(const HostGroups&) = delete;
  HostGroups& operator=(const HostGroups&) = delete;
  bool ok() const { return ok_; }

 private:
  std::vector<gid_t> before_;
  bool ok_ = false;
};

}  // namespace

TEST_CASE("I3: an exec has its user's own groups and no other, init has none") {
  TALON_NEED_SANDBOXES();
  const HostGroups groups;
  REQUIRE(groups.ok());
  from_every_side(
      [](Attacker& a) {
        CHECK(a.look({"ids"})["groups"] == (a.root() ? "0" : "44 1000"));
        CHECK(a.look({"status", "1"})["Groups"] == "");
        CHECK(a.attempt({"setgroups"}) == (a.root() ? "OK" : "EPERM"));
      },
      {.image = [](const auto& image) {
        std::ofstream{image / "etc/group", std::ios::app} << "video:x:44:user\nbig:x:70000:user\n";
      }});
  CHECK(outside({"ids"}).at(0)["groups"] == "0 4 6 20 27 999 5000");  // the control
}
