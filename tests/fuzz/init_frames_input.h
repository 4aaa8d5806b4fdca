#pragma once
// One input for everything that talon-init parses: a frame, the string table of an exec request,
// a passwd file. Run by the fuzz target and, over random bytes, by the unit tests.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "isolate/init/parse.h"

namespace talon::fuzz {

template <class T>
void try_payload(const std::uint8_t* data, std::size_t size) {
  T value;
  if (init::take_payload(data, static_cast<std::uint32_t>(size), value)) {
    if constexpr (requires { value.px; }) {
      if (std::memchr(value.px, 0, sizeof value.px) == nullptr) {
        std::abort();
      }
    }
  }
}

inline void init_frames_input(const std::uint8_t* data, std::size_t size) {
  wire::Header head{};
  std::memcpy(&head, data, size < sizeof head ? size : sizeof head);
  if (init::good_header(head, size)) {
    data += sizeof head;
    size -= sizeof head;
  }
  try_payload<wire::Exec>(data, size);
  try_payload<wire::Signal>(data, size);
  try_payload<wire::EndExec>(data, size);
  try_payload<wire::Resize>(data, size);
  try_payload<wire::Flow>(data, size);
  try_payload<wire::Mark>(data, size);
  wire::Exec exec;
  if (init::take_exec(data, static_cast<std::uint32_t>(size), exec) &&
      ((exec.flags & wire::kExecInline) != 0) != (size > sizeof exec)) {
    std::abort();
  }
  wire::StdinData stdin_data;
  if (init::take_stdin(data, static_cast<std::uint32_t>(size), stdin_data) &&
      stdin_data.length > size) {
    std::abort();
  }

  // An exact copy: reading one byte past its end is seen by the address sanitizer.
  const auto copy = std::make_unique<unsigned char[]>(size);
  std::memcpy(copy.get(), data, size);
  const init::StringTable table(copy.get(), size);
  const std::uint32_t offset = size > 4 ? data[0] % 16u : 0;
  std::vector<const char*> strings(size + 2);
  if (table.take(offset, static_cast<std::uint32_t>(size > 0 ? data[size - 1] % 8 : 0),
                 strings.data())) {
    for (std::size_t i = 0; strings[i] != nullptr; ++i) {
      if (std::strlen(strings[i]) >= size) {
        std::abort();
      }
    }
  }
  init::Field fields[init::kFields];
  std::size_t at = 0;
  while (at < size) {
    const std::size_t before = at;
    init::split_line(reinterpret_cast<const char*>(copy.get()), size, at, fields);
    if (at <= before || at > size) {
      std::abort();
    }
    (void)init::lists_name(fields[3], "user", 4);
  }
}

}  // namespace talon::fuzz
