#include "fuzz/log_reader_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  talon::fuzz::log_reader_input(data, size);
  return 0;
}
