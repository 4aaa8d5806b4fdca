#pragma once
// The points of base/fault.h that a daemon has passed, from the file that it writes them into.

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace talon::test {

struct FaultPoint {
  std::string name;
  int passes = 0;
  bool fails = false;  // can be made to fail, not only to stop
};

// In the order of their first pass; of the lines behind the first `skip`.
inline std::vector<FaultPoint> points_in(const std::string& file, std::size_t skip = 0) {
  std::vector<FaultPoint> points;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (skip > 0) {
      --skip;
      continue;
    }
    const bool fails = line.ends_with(" fails");
    const std::string name = line.substr(0, line.find(' '));
    auto known = std::ranges::find(points, name, &FaultPoint::name);
    if (known == points.end()) {
      known = points.insert(points.end(), FaultPoint{.name = name});
    }
    ++known->passes;
    known->fails = known->fails || fails;
  }
  return points;
}

inline std::size_t lines_in(const std::string& file) {
  std::ifstream lines(file);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);) {
    ++count;
  }
  return count;
}

// "3 points: a b c", for the output of a test.
inline std::string told(const std::set<std::string>& names) {
  std::string text = std::to_string(names.size()) + " points:";
  for (const std::string& name : names) {
    text += " " + name;
  }
  return text;
}

}  // namespace talon::test
