#pragma once
// The keys that leave a terminal without ending it. Pure.

#include <string>
#include <string_view>

#include "base/error.h"

namespace talon::client {

class DetachKeys {
 public:
  // "ctrl-p,ctrl-q", "ctrl-a,d", "none". Errors: invalid_request.
  static Result<DetachKeys> parse(std::string_view text);

  // What of `typed` is for the other end. The beginning of the keys is held back until the next
  // key or release().
  std::string feed(std::string_view typed);
  bool holding() const { return matched_ > 0 && !done(); }
  std::string release();
  bool done() const { return !keys_.empty() && matched_ == keys_.size(); }

 private:
  std::string keys_;
  std::size_t matched_ = 0;
};

}  // namespace talon::client
