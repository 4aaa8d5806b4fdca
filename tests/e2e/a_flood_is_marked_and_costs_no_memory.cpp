// A process that prints faster than anybody reads. TALON_TEST_MIB is how much (10240 is the full
// length); what is dropped is counted where it is missing, all else is there byte by byte, and
// talond holds no more memory than before.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <iostream>

#include "support/daemon.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

constexpr std::uint64_t kRoom = 16u << 20;  // of memory, for buffers on the way

std::uint64_t flood_bytes() {
  const char* mib = std::getenv("TALON_TEST_MIB");
  return (mib != nullptr ? std::strtoull(mib, nullptr, 10) : 512) << 20;
}

// What `seq 1 …` prints, known at each place.
class Counted {
 public:
  // False when `text` is not what comes next.
  bool take(std::string_view text) {
    for (const char c : text) {
      if (c != line_[at_]) {
        return false;
      }
      step();
    }
    return true;
  }
  void skip(std::uint64_t bytes) {
    while (bytes != 0) {
      if (at_ == 0) {
        // Whole lines of one length at once.
        std::uint64_t same = 9;
        for (std::size_t digits = 1; digits + 1 < line_.size(); ++digits) {
          same = same * 10 + 9;
        }
        const std::uint64_t lines = std::min(bytes / line_.size(), same - number_);
        bytes -= lines * line_.size();
        number_ += lines;
        line_ = std::to_string(number_) + "\n";
      }
      if (bytes != 0) {
        step();
        --bytes;
      }
    }
  }
  std::uint64_t number() const { return number_; }  // of the line at hand

 private:
  void step() {
    if (++at_ == line_.size()) {
      at_ = 0;
      line_ = std::to_string(++number_) + "\n";
    }
  }
  std::uint64_t number_ = 1;
  std::string line_ = "1\n";
  std::size_t at_ = 0;
};

// How many lines of `seq 1 …` have about this many bytes.
std::uint64_t lines_of_bytes(std::uint64_t bytes) {
  Counted counted;
  counted.skip(bytes);
  return counted.number();
}

// Adds up a log of NDJSON events, piece by piece.
struct Reading {
  Counted expected;
  std::uint64_t kept = 0;
  std::uint64_t lost = 0;
  bool wrong = false;
  bool ended = false;
  std::string rest;

  void take(std::string_view piece) {
    rest += piece;
    std::size_t begin = 0;
    for (auto end = rest.find('\n'); end != std::string::npos; end = rest.find('\n', begin)) {
      event(std::string_view{rest}.substr(begin, end - begin));
      begin = end + 1;
    }
    rest.erase(0, begin);
  }
  void event(std::string_view line) {
    boost::system::error_code ec;
    const auto value = json::parse(line, ec);
    if (ec || !value.is_object()) {
      wrong = true;
      return;
    }
    const auto& object = value.get_object();
    const auto name = object.at("event").as_string();
    if (name == "stdout") {
      const auto& text = object.at("text").as_string();
      kept += text.size();
      wrong = wrong || !expected.take(text);
    } else if (name == "lost") {
      const auto bytes = object.at("bytes").to_number<std::uint64_t>();
      lost += bytes;
      expected.skip(bytes);
    } else if (name == "exit") {
      ended = true;
    }
  }
};

struct Flood {
  Daemon daemon;
  Client client = daemon.client();
  std::string id = make_sandbox(client);
  std::uint64_t last = lines_of_bytes(flood_bytes());
  std::string px;
  std::uint64_t before = daemon.use().rss_bytes;
  std::uint64_t most = before;

  void start() {
    px = spawn_in(client, id,
                  {{"argv", {"seq", "1", std::to_string(last)}}, {"log", {{"cap", "16MiB"}}}});
  }
  std::string path() const { return "/v1/sandboxes/" + id + "/processes/" + px; }
  void look() { most = std::max(most, daemon.use().rss_bytes); }
  bool runs() {
    look();
    return client.get(path()).text("state") != "exited";
  }
  std::uint64_t printed() const {
    return client.get(path()).at("result.usage.stdout_bytes").to_number<std::uint64_t>();
  }
  void report(const Reading& reading) const {
    std::cout << (printed() >> 20) << " MiB printed, " << (reading.kept >> 20) << " kept, "
              << (reading.lost >> 20) << " marked as lost; memory of talond " << (before >> 10)
              << " KiB before, " << (most >> 10) << " KiB at most\n";
  }
  void judge(const Reading& reading) const {
    CHECK_FALSE(reading.wrong);
    CHECK(reading.ended);
    CHECK(reading.lost > 0);
    CHECK(reading.kept + reading.lost == printed());
    CHECK(reading.expected.number() == last + 1);
    CHECK(most < before + kRoom);
    report(reading);
  }
};

// Reads a log to its end.
void read_all(Flood& flood, Connection& stream, Reading& reading) {
  while (const auto piece = stream.read_piece(Seconds(60))) {
    reading.take(*piece);
    flood.look();
  }
}

}  // namespace

TEST_CASE("a flood to nobody is kept to its cap, marked, and costs talond no memory") {
  Flood flood;
  flood.start();
  REQUIRE(eventually(Seconds(250), [&] { return !flood.runs(); }));
  Reply head;
  auto stream =
      flood.client.stream(flood.path() + "/logs", head, {{"Accept", "application/x-ndjson"}});
  REQUIRE(head.status == 200);
  Reading reading;
  read_all(flood, stream, reading);
  flood.judge(reading);
  CHECK(reading.kept >= 8u << 20);
}

TEST_CASE("a reader of a megabyte a second sees what a flood left it, each gap with its size") {
  Flood flood;
  flood.start();
  Reply head;
  auto stream = flood.client.stream(flood.path() + "/logs?follow=1", head,
                                    {{"Accept", "application/x-ndjson"}});
  REQUIRE(head.status == 200);
  Reading reading;
  // Slow is what makes the case: a megabyte, then a second in which nothing is read.
  for (bool more = true; more && flood.runs();) {
    const auto mark = reading.kept + (1u << 20);
    while (more && reading.kept < mark) {
      const auto piece = stream.read_piece(Seconds(60));
      more = piece.has_value();
      reading.take(piece.value_or(""));
    }
    if (flood.runs()) {
      nap(Seconds(1));
    }
  }
  read_all(flood, stream, reading);
  flood.judge(reading);
}
