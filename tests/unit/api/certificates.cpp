// Death certificates: what an end is told from, and that they outlive what ended.
#include <catch2/catch.hpp>

#include <csignal>

#include "fake_isolator.h"
#include "harness.h"
#include "server/node/codec.h"

using namespace talon;
using namespace talon::test;
namespace node = talon::server::node;
namespace json = boost::json;

namespace {

wire::ExitInfo killed_by(int signal, std::uint32_t flags = 0) {
  wire::ExitInfo info{};
  info.code = -1;
  info.signal = signal;
  info.flags = flags;
  return info;
}

std::string reason_of(const wire::ExitInfo& info) { return node::certificate_of(info, 1).reason; }

std::string reason(const Reply& reply) {
  return std::string{reply.json().at("certificate").at("reason").as_string()};
}

json::value lines_of(const std::string& output) {
  node::Certificate why;
  why.last_output = output;
  return json::parse(node::encode(why)).at("last_lines");
}

// What was printed last is read beside the answer: it is there a moment later.
bool has_lines(Harness& h, const std::string& path, const std::string& lines) {
  return h.until([&] {
    const json::value body = h.call("GET", path).json();
    const auto* found = body.at("certificate").as_object().if_contains("last_lines");
    return found != nullptr && json::serialize(*found) == lines;
  });
}

}  // namespace

TEST_CASE("an exec's end has one reason, the one that explains the others") {
  wire::ExitInfo exited{};
  CHECK(reason_of(exited) == "exit");
  exited.code = 3;
  const auto why = node::certificate_of(exited, 7);
  CHECK(why.exit_code == 3);
  CHECK_FALSE(why.signal);
  CHECK(why.at_ms == 7);
  CHECK(reason_of(killed_by(SIGSEGV)) == "signal");
  CHECK(reason_of(killed_by(SIGSYS)) == "seccomp");
  CHECK(reason_of(killed_by(SIGTERM, wire::kKilled)) == "user");
  CHECK(reason_of(killed_by(SIGKILL, wire::kTimedOut)) == "timeout");
  CHECK(reason_of(killed_by(SIGKILL, wire::kOutputLimit)) == "output_limit");
  CHECK(reason_of(killed_by(SIGKILL, wire::kOom)) == "oom");
  // A timeout's TERM may run into the memory limit: that is then what killed it.
  CHECK(reason_of(killed_by(SIGKILL, wire::kOom | wire::kTimedOut)) == "oom");
  wire::ExitInfo missing{};
  missing.code = 127;
  missing.flags = wire::kNotStarted;
  missing.exec_errno = ENOENT;
  CHECK(reason_of(missing) == "error");
  // That the call is not known is said, not left out.
  CHECK(node::certificate_of(killed_by(SIGSYS), 1).detail.find("audit log") != std::string::npos);
}

TEST_CASE("the biggest process is named for an oom only, and its name is made text") {
  wire::ExitInfo info = killed_by(SIGKILL, wire::kOom);
  info.peak_bytes = 64 << 20;
  info.biggest_bytes = 60 << 20;
  std::memcpy(info.biggest_name,
              "node\xff"
              "15chars!!!",
              16);  // no NUL at all
  const json::value certificate = json::parse(node::encode(node::certificate_of(info, 1)));
  CHECK(certificate.at("biggest_process").at("name") ==
        "node\uFFFD"
        "15chars!!!");
  CHECK(certificate.at("biggest_process").at("bytes") == 60 << 20);
  CHECK(certificate.at("peak_memory_bytes") == 64 << 20);
  CHECK(node::result_object(info).at("usage").at("biggest_process").at("bytes") == 60 << 20);
  info.flags = 0;
  CHECK(node::encode(node::certificate_of(info, 1)).find("node") == std::string::npos);
  CHECK_FALSE(node::result_object(info).at("usage").as_object().contains("biggest_process"));
}

TEST_CASE("the last lines are whole, few, and text") {
  CHECK(lines_of("a\nb\n") == json::array{"a", "b"});
  CHECK(lines_of("a\n\nb") == json::array{"a", "", "b"});
  CHECK(lines_of("x\xff\n") == json::array{"x\uFFFD"});
  std::string many;
  for (int i = 0; i < 30; ++i) {
    many += std::to_string(i) + "\n";
  }
  const json::value few = lines_of(many);
  CHECK(few.as_array().size() == node::kLastLines);
  CHECK(few.as_array().front() == "10");
  // More than is kept: the cut first line goes, a line longer than all of it stays with its end.
  const json::value cut = lines_of(std::string(node::kLastBytes - 1, 'x') + "\nlast\n");
  CHECK(cut == json::array{"last"});
  const json::value one = lines_of(std::string(9000, 'y') + "z");
  REQUIRE(one.as_array().size() == 1);
  CHECK(one.as_array()[0].as_string().size() == node::kLastBytes);
  CHECK(one.as_array()[0].as_string().back() == 'z');
}

TEST_CASE("the certificate of an exec: its reason, who asked, its last lines") {
  Harness h;
  const std::string base = "/v1/sandboxes/" + h.make() + "/processes";
  const Reply live = h.call("POST", base, R"({"argv":["out","one\n","two\n","hang"]})");
  CHECK(live.json().at("certificate").is_null());
  const std::string path = base + "/" + live.text("id");
  REQUIRE(h.call("POST", path + "/signal", R"({"signal":"TERM"})").status == 204);
  REQUIRE(h.until([&] { return h.call("GET", path).text("state") == "exited"; }));
  const json::value ended = h.call("GET", path).json();
  CHECK(ended.at("certificate").at("reason") == "user");
  CHECK(ended.at("certificate").at("signal") == SIGTERM);
  CHECK_FALSE(ended.at("certificate").at("by").as_string().empty());
  CHECK(has_lines(h, path, R"(["one","two"])"));
}

TEST_CASE("certificates outlive the sandbox: its own and those of its processes") {
  Harness h;
  const std::string id = h.make();
  const std::string path = "/v1/sandboxes/" + id;
  const std::string ended =
      h.call("POST", path + "/run", R"({"argv":["out","bye\n","exit","3"]})").text("id");
  REQUIRE(has_lines(h, path + "/processes/" + ended, R"(["bye"])"));
  const std::string live =
      h.call("POST", path + "/processes", R"({"argv":["out","tick\n","hang"]})").text("id");
  REQUIRE(h.call("DELETE", path).status == 204);

  const Reply gone = h.call("GET", path);
  CHECK(gone.status == 410);
  CHECK(reason(gone) == "user");
  CHECK(gone.json().at("certificate").at("last_process") == json::value(live));
  CHECK(gone.json().at("certificate").at("last_lines") == json::array{"tick"});

  const Reply first = h.call("GET", path + "/processes/" + ended);
  CHECK(first.status == 410);
  CHECK(first.text("id") == ended);
  CHECK(reason(first) == "exit");
  CHECK(first.json().at("certificate").at("exit_code") == 3);
  CHECK(first.json().at("certificate").at("last_lines") == json::array{"bye"});
  REQUIRE(h.until([&] {
    const Reply second = h.call("GET", path + "/processes/" + live);
    return second.status == 410 && second.json().at("certificate").is_object();
  }));
  const Reply second = h.call("GET", path + "/processes/" + live);
  CHECK(reason(second) == "user");
  CHECK(second.body.find("it ended with its sandbox: deleted by a call") != std::string::npos);
  CHECK(h.call("GET", path + "/processes/px00000000000000000000").status == 404);
  CHECK(h.call("GET", path + "/processes/" + ended + "/logs").status == 410);
}

TEST_CASE("an init that died says how, and its execs say that it took them along") {
  Harness h;
  const std::string id = h.make();
  const std::string path = "/v1/sandboxes/" + id;
  const std::string px =
      h.call("POST", path + "/processes", R"({"argv":["out","x","hang"]})").text("id");
  h.fake().live[id]->die(SIGKILL);
  REQUIRE(h.until([&] { return h.call("GET", path).text("state") == "stopped"; }));
  const json::value why = h.call("GET", path).json().at("certificate");
  CHECK(why.at("reason") == "signal");
  CHECK(why.at("signal") == SIGKILL);
  CHECK(reason(h.call("GET", path + "/processes/" + px)) == "signal");

  const std::string other = "/v1/sandboxes/" + h.make();
  h.fake().live[other.substr(other.rfind('/') + 1)]->die(2 << 8);
  REQUIRE(h.until([&] { return h.call("GET", other).text("state") == "stopped"; }));
  CHECK(h.call("GET", other).json().at("certificate").at("exit_code") == 2);
}

TEST_CASE("what was deleted long ago is taken away at the start") {
  Harness h;
  const std::string id = h.make();
  const std::string path = "/v1/sandboxes/" + id;
  const std::string px = h.call("POST", path + "/run", R"({"argv":["exit","0"]})").text("id");
  REQUIRE(h.call("DELETE", path).status == 204);
  REQUIRE(h.store().write([&](store::Db& db) -> Result<> {
    TALON_TRY(row, store::get_sandbox(db, "", id));
    row.ended_ms = *row.ended_ms - 91ll * 24 * 3600 * 1000;
    return store::update_sandbox(db, row);
  }));
  const std::string young = "/v1/sandboxes/" + h.make();
  REQUIRE(h.call("DELETE", young).status == 204);
  h.restart();
  REQUIRE(h.until([&] { return h.call("GET", path).status == 404; }));
  CHECK(h.call("GET", path + "/processes/" + px).status == 404);
  CHECK(h.call("GET", young).status == 410);
}
