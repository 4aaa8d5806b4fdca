#include <catch2/catch.hpp>

#include <algorithm>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

// All of a row but its value: free space changes between two looks.
std::string said(const json::value& row) {
  std::string out;
  for (const char* field : {"name", "status", "effect", "fix"}) {
    out += std::string{row.at(field).as_string()} + "\n";
  }
  return out;
}

}  // namespace

TEST_CASE("doctor and the api say the same of the host") {
  Daemon daemon;
  const Reply reply = daemon.local().get("/v1/host");
  REQUIRE(reply.status == 200);
  auto args = daemon.serve_args();
  args.front() = "doctor";
  args.emplace_back("--json");
  const auto ran = Daemon::run_talond(args, Seconds(30));
  INFO(ran.output);
  const json::value doctor = json::parse(ran.output);
  const json::array& ours = doctor.at("findings").as_array();
  const json::value host = reply.at("findings");
  const json::array& theirs = host.as_array();
  CHECK(ours.size() > 20);
  REQUIRE(ours.size() == theirs.size());
  bool degraded = false;
  bool missing = false;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CHECK(said(ours[i]) == said(theirs[i]));
    const json::string& status = ours[i].at("status").as_string();
    degraded = degraded || status == "degraded";
    missing = missing || status == "missing";
  }
  // A daemon serves here, so nothing that it needs is missing.
  CHECK_FALSE(missing);
  CHECK(ran.code == (degraded ? 1 : 0));
}
