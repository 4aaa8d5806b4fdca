#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include "security/tally.h"

#include <iostream>
#include <map>
#include <set>

#include "security/attack.h"

namespace talon::testing {

namespace {

struct Tally {
  std::set<std::string> ran;
  std::map<std::string, std::string> left_out;  // column -> why
  std::string none;                             // why no column at all
  std::size_t attacks = 0;
  std::size_t runs = 0;
};

Tally& tally() {
  static Tally counts;
  return counts;
}

class Listener : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo&) override {
    tally().ran.clear();
    tally().left_out.clear();
    tally().none.clear();
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    Tally& t = tally();
    ++t.attacks;
    t.runs += t.ran.size();
    std::cout << "attack: " << stats.testInfo.name << "\n  columns:";
    for (const Column& column : kColumns) {
      std::cout << (t.ran.contains(column.name) ? std::string{" "} + column.name : "");
    }
    std::cout << (t.none.empty() ? "" : " none, " + t.none) << '\n';
    for (const auto& [column, why] : t.left_out) {
      std::cout << "  without " << column << ": " << why << '\n';
    }
  }

  void testRunEnded(const Catch::TestRunStats&) override {
    std::cout << "attacks: " << tally().attacks << ", runs in columns: " << tally().runs << '\n';
  }
};
CATCH_REGISTER_LISTENER(Listener)

}  // namespace

void tally_ran(const std::string& column) { tally().ran.insert(column); }
void tally_left_out(const LeftOut& out) { tally().left_out[out.column] = out.why; }
void no_column(const std::string& why) { tally().none = why; }

}  // namespace talon::testing
