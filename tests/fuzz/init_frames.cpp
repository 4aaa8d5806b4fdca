#include "fuzz/init_frames_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  talon::fuzz::init_frames_input(data, size);
  return 0;
}
