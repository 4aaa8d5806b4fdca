// An import that is stopped or fails at any of its points (base/fault.h) leaves the image whole or
// not at all, and the next import of the same name goes well.
#include <catch2/catch.hpp>

#include <filesystem>

#include "e2e/fault_points.h"
#include "e2e/run_support.h"
#include "support/machine.h"

using namespace talon::test;
namespace json = boost::json;

namespace {

RunResult import_image(const Daemon& daemon, const std::string& tree, const std::string& fault,
                       const std::string& trace = "") {
  std::vector<std::string> words{"/usr/bin/env",
                                 "TALON_TEST_FAULT=" + fault,
                                 "TALON_TEST_FAULT_TRACE=" + trace,
                                 Daemon::test_binary(),
                                 "image",
                                 "import",
                                 "tiny",
                                 tree,
                                 "--data-dir",
                                 daemon.data()};
  RunProcess process{words, false};
  process.close_stdin();
  return process.finish(Seconds(60));
}

}  // namespace

TEST_CASE("an image import that is stopped or fails at any point is done again") {
  Daemon::Options options;
  options.image = false;
  options.start = false;
  Daemon daemon(options);
  const auto tree = daemon.run() + ".tree";
  const auto trace = daemon.run() + ".points";
  std::filesystem::create_directories(tree + "/etc");
  std::ofstream(tree + "/etc/marker") << "whole\n";
  const auto first = import_image(daemon, tree, "", trace);
  INFO(first.err);
  REQUIRE(first.code == 0);
  const auto images = daemon.data() + "/images";
  const auto names = [&images] {
    std::vector<std::string> all = machine::entries(images);
    std::erase_if(all, [](const std::string& name) { return !name.starts_with("tiny-"); });
    return all;
  };
  const auto leftovers = [&images] {
    std::vector<std::string> all = machine::entries(images);
    std::erase_if(all, [](const std::string& name) { return name.starts_with("tiny-"); });
    return all;
  };
  const auto clean = leftovers();  // the lock and the like
  std::set<std::string> walked;
  for (const FaultPoint& point : points_in(trace)) {
    for (const auto* kind : {"stop:", "fail:", "full:"}) {
      if (!point.fails && std::string{kind} != "stop:") {
        continue;
      }
      INFO(kind << point.name);
      const auto cut = import_image(daemon, tree, kind + point.name);
      CHECK(cut.code != 0);
      if (std::string{kind} != "stop:") {
        CHECK(cut.err.find("fault point " + point.name) != std::string::npos);
      }
      for (const auto& name : names()) {
        INFO(name);
        CHECK(machine::read_file(images + "/" + name + "/root/etc/marker") == "whole\n");
        CHECK_FALSE(machine::read_file(images + "/" + name + "/manifest.json").empty());
      }
      const auto again = import_image(daemon, tree, "");
      INFO(again.err);
      CHECK(again.code == 0);
      CHECK(leftovers() == clean);
      walked.insert(point.name);
    }
  }
  WARN(told(walked));
  CHECK(walked.contains("image.rename"));
  CHECK(walked.contains("image.fsync"));
  machine::remove_tree(tree);
  machine::remove_tree(trace);
}
