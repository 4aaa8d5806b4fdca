#include "client/verbs.h"

#include <catch2/catch.hpp>

#include "client/address.h"
#include "client/client.h"
#include "client/session.h"

using namespace talon;
using namespace talon::client;
using List = std::vector<std::string>;

namespace {

Result<Words> words(std::string_view verb, const List& rest) {
  return parse(*find_verb(verb), rest);
}

std::string refusal(std::string_view verb, const List& rest) {
  const auto parsed = words(verb, rest);
  return parsed ? "" : parsed.error().message;
}

}  // namespace

TEST_CASE("Options stand anywhere before the command") {
  for (const List& rest :
       {List{"-i", "-t", "box", "--", "ls", "-l"}, List{"box", "-it", "ls", "-l"},
        List{"-it", "box", "ls", "-l"}, List{"--interactive", "box", "--tty", "--", "ls", "-l"}}) {
    const auto parsed = words("exec", rest);
    REQUIRE(parsed);
    CHECK(parsed->arguments == List{"box"});
    CHECK(parsed->command == List{"ls", "-l"});
    CHECK(parsed->has("interactive"));
    CHECK(parsed->has("tty"));
  }
}

TEST_CASE("The command is taken as it is") {
  CHECK(words("exec", {"box", "--", "--", "-o", "json", "--help"})->command ==
        List{"--", "-o", "json", "--help"});
  CHECK(words("exec", {"box", "sh", "-c", "x", "--", "y"})->command ==
        List{"sh", "-c", "x", "--", "y"});
  CHECK(words("spawn", {"box", "", "-"})->command == List{"", "-"});
  CHECK(words("exec", {"box"})->command.empty());
  CHECK(words("pty", {"box", "--"})->command.empty());
  // Without a command, -- only ends the options.
  CHECK(words("rm", {"a", "--", "-b"})->arguments == List{"a", "-b"});
}

TEST_CASE("Values stand behind their option or in it") {
  for (const List& rest : {List{"-o", "json"}, List{"-ojson"}, List{"--output", "json"},
                           List{"--output=json"}, List{"-o", "id", "-o", "json"}}) {
    CHECK(words("list", rest)->value("output") == "json");
  }
  CHECK(words("create", {"-e", "A=1", "-eB=2", "--env=C=3"})->values("env") ==
        List{"A=1", "B=2", "C=3"});
  CHECK(words("create", {"--name="})->has("name"));
  CHECK(words("list", {})->value("output").empty());
}

TEST_CASE("Wrong usage is said in a sentence") {
  CHECK(refusal("list", {"-x"}) == "-x is not an option of list");
  CHECK(refusal("list", {"-o"}) == "-o needs a value: FORMAT");
  CHECK(refusal("exec", {"--tty=yes", "a"}) == "--tty takes no value");
  CHECK(refusal("list", {"--out", "json"}) == "--out is not an option of list");
  CHECK(refusal("get", {}) == "something is missing; write get ID [PX]");
  CHECK(refusal("create", {"x"}) == "\"x\" is too much; write create ");
  CHECK(refusal("rm", {"a", ""}).starts_with("an empty word"));
  CHECK(refusal("list", {"-o", "xml"}) == "--output is table, json or id, not \"xml\"");
  // Help is given whatever else is wrong.
  CHECK(words("get", {"--help"})->help);
  CHECK(words("list", {"-h", "-x"})->help);
}

TEST_CASE("Every verb has a help with an example, and its options once") {
  for (const Verb& verb : verbs()) {
    INFO(verb.name);
    const std::string text = help_text("tsb", verb);
    CHECK((text.find("Example") != std::string::npos || verb.name == "version"));
    CHECK(is_client_verb(verb.name) == (verb.name != "version"));
    std::string letters;
    for (const Option& option : verb.options) {
      CHECK(text.find("--" + std::string{option.name}) != std::string::npos);
      if (option.letter != 0) {
        CHECK(letters.find(option.letter) == std::string::npos);
        letters += option.letter;
      }
    }
    std::size_t begin = 0;
    while (begin < text.size()) {
      const auto end = text.find('\n', begin);
      CHECK(end - begin <= 110);
      begin = end + 1;
    }
  }
  CHECK(help_text("talond", *find_verb("rm")).find("tsb ") == std::string::npos);
  CHECK_FALSE(is_client_verb("serve"));
  CHECK_FALSE(is_client_verb(""));
}

TEST_CASE("Completion offers what may stand there") {
  const auto offered = [](const List& line) { return complete(line); };
  CHECK(offered({"cre"}) == "create\tmake a sandbox\n");
  CHECK(offered({"list", "--lab"}).starts_with("--label\t"));
  CHECK(offered({"list", "-o", ""}) == "table\njson\nid\n");
  CHECK(offered({"logs", "--stream", "std"}) == "stdout\nstderr\n");
  CHECK(offered({"exec", "box", "--", "-"}).empty());
  CHECK(offered({"exec", "box", "ls", "-"}).empty());
  CHECK(offered({"help", "pt"}).starts_with("pty\t"));
  CHECK(offered({}).empty());
  CHECK(completion_script("ksh").empty());
}

TEST_CASE("TALON_URL, TALON_API_KEY and the socket say where talond is") {
  const std::string socket = "/run/talon/talond.sock";
  const auto local = parse_address("", "", socket, false);
  REQUIRE(local);
  CHECK(local->kind == Address::Kind::unix_socket);
  CHECK(local->host == socket);
  CHECK(parse_address("", "tk_1", socket, true)->host == socket);
  const auto beside = parse_address("", "tk_1", socket, false);
  CHECK(beside->host == "127.0.0.1");
  CHECK(beside->port == 7300);
  CHECK(beside->key == "tk_1");
  const auto tls = parse_address("https://talon.example/base/", "k", socket, true);
  REQUIRE(tls);
  CHECK(tls->kind == Address::Kind::tls);
  CHECK(tls->host == "talon.example");
  CHECK(tls->port == 443);
  CHECK(tls->prefix == "/base");
  const auto six = parse_address("http://[::1]:8080", "", socket, true);
  REQUIRE(six);
  CHECK(six->host == "::1");
  CHECK(six->port == 8080);
  CHECK(parse_address("unix:/x/y.sock", "", socket, true)->host == "/x/y.sock");
  for (const char* bad : {"127.0.0.1:7300", "ftp://x", "http://", "http://u:p@x", "http://x?q=1",
                          "http://x:0", "http://x:99999", "unix:relative"}) {
    INFO(bad);
    CHECK_FALSE(parse_address(bad, "", socket, true));
  }
  CHECK_FALSE(parse_address("", "a\nb", socket, true));
  CHECK_FALSE(parse_address("", "a b", socket, true));
}

TEST_CASE("Names that need no name server are resolved without one") {
  CHECK(*resolve("192.0.2.1") == List{"192.0.2.1"});
  CHECK(*resolve("2001:db8::1") == List{"2001:db8::1"});
  CHECK(*resolve("localhost") == List{"127.0.0.1", "::1"});
  CHECK(*resolve("a.localhost") == List{"127.0.0.1", "::1"});
}

TEST_CASE("A problem becomes an exit code") {
  const auto refused = [](int status, const std::string& body) {
    return judge(Reply{.status = status, .body = body}).error();
  };
  CHECK(judge(Reply{.status = 201, .body = "x"})->body == "x");
  CHECK(refused(404, R"({"code":"not_found","detail":"no"})").exit == 4);
  CHECK(refused(410, R"({"code":"gone","detail":"no"})").exit == 4);
  CHECK(refused(409, R"({"code":"wrong_state","detail":"no"})").exit == 1);
  CHECK(refused(409, R"({"code":"wrong_state","detail":"no"})").code == "wrong_state");
  CHECK(refused(502, "<html>").code == "not_reachable");
  CHECK(refused(502, "<html>").exit == 3);
}

TEST_CASE("Paths and lines carry no foreign bytes") {
  CHECK(percent_encode("a-Z_0.~") == "a-Z_0.~");
  CHECK(percent_encode("a b/\xc3\xa4?") == "a%20b%2F%C3%A4%3F");
  CHECK(printable("a\x1b[31mb\nc\xc3\xa4") == "a?[31mb?c\xc3\xa4");
}
