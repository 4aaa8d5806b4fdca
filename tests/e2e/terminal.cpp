#include "e2e/terminal.h"

#include <catch2/catch.hpp>

#include <sstream>

namespace talon::test {

namespace json = boost::json;

std::string make_pty(const Client& client, const std::string& id, const json::object& body) {
  const auto made = client.post("/v1/sandboxes/" + id + "/pty", body);
  INFO(made.body);
  REQUIRE(made.status == 201);
  return made.text("id");
}

Socket open_shell(const Client& client, const std::string& id, json::object body) {
  body["argv"] = json::array{"bash", "--norc"};
  body["env"] = json::object{{"PS1", kPrompt}};
  const auto px = make_pty(client, id, body);
  Socket socket(client, pty_path(id, px) + "?write=1");
  REQUIRE(socket.open());
  return socket;
}

std::vector<CastEvent> cast_events(const std::string& cast) {
  std::vector<CastEvent> events;
  std::istringstream lines(cast);
  std::string line;
  REQUIRE(std::getline(lines, line));
  boost::system::error_code ec;
  const auto head = json::parse(line, ec);
  REQUIRE_FALSE(ec);
  CHECK(head.at("version") == 2);
  while (std::getline(lines, line)) {
    const auto value = json::parse(line, ec);
    INFO(line.substr(0, 200));
    REQUIRE_FALSE(ec);
    const auto& array = value.as_array();
    REQUIRE(array.size() == 3);
    events.push_back({array[0].to_number<double>(), std::string(array[1].as_string())[0],
                      std::string(array[2].as_string())});
  }
  return events;
}

std::string cast_output(const std::string& cast) {
  std::string output;
  for (const CastEvent& event : cast_events(cast)) {
    output += event.code == 'o' ? event.data : "";
  }
  return output;
}

}  // namespace talon::test
