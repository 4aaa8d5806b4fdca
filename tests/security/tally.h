#pragma once
// Counts attacks and the columns they ran in. One line after each case and one after the run;
// tests/support/attacks.py adds up what a ctest run printed.

#include <string>

namespace talon::testing {

struct LeftOut;

// Of the case that runs.
void tally_ran(const std::string& column);
void tally_left_out(const LeftOut& out);

}  // namespace talon::testing
