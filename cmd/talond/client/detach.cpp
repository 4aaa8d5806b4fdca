#include "client/detach.h"

#include <utility>

namespace talon::client {

Result<DetachKeys> DetachKeys::parse(std::string_view text) {
  DetachKeys out;
  if (text == "none") {
    return out;
  }
  const std::string whole{text};
  while (true) {
    const auto comma = text.find(',');
    const std::string_view key = text.substr(0, comma);
    const char last = key.empty() ? '\0' : key.back();
    if (key.size() == 6 && key.starts_with("ctrl-") && last >= 'a' && last <= 'z') {
      out.keys_ += static_cast<char>(last - 'a' + 1);
    } else if (key.size() == 1 && last > ' ' && last < 0x7f) {
      out.keys_ += last;
    } else {
      return fail(Code::invalid_request,
                  "--detach-keys needs keys such as ctrl-p,ctrl-q or ctrl-a,d "
                  "or none, not \"" +
                      whole + "\"");
    }
    if (comma == std::string_view::npos) {
      return out;
    }
    text.remove_prefix(comma + 1);
  }
}

std::string DetachKeys::feed(std::string_view typed) {
  std::string out;
  for (const char key : typed) {
    if (done()) {
      break;
    }
    if (!keys_.empty() && key != keys_[matched_]) {
      out += release();
    }
    if (!keys_.empty() && key == keys_[matched_]) {
      ++matched_;
    } else {
      out += key;
    }
  }
  return out;
}

std::string DetachKeys::release() { return keys_.substr(0, std::exchange(matched_, 0)); }

}  // namespace talon::client
