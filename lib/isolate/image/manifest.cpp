#include "isolate/image/manifest.h"

#include <charconv>
#include <optional>

#include "base/log.h"

namespace talon::isolate::image {

namespace {

void member(std::string& out, std::string_view name, std::string_view value) {
  out += out.size() > 1 ? ",\n  " : "\n  ";
  append_json_string(out, name);
  out += ": ";
  append_json_string(out, value);
}

void member(std::string& out, std::string_view name, std::uint64_t value) {
  out += out.size() > 1 ? ",\n  " : "\n  ";
  append_json_string(out, name);
  out += ": " + std::to_string(value);
}

// A reader for exactly what to_json writes: one object, strings and whole numbers (RFC 8259
// escapes; \u only below U+0800, which is all that append_json_string makes).
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool take(char c) {
    space();
    if (at_ < text_.size() && text_[at_] == c) {
      ++at_;
      return true;
    }
    return false;
  }
  bool peek(char c) {
    space();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool at_end() {
    space();
    return at_ == text_.size();
  }
  std::optional<std::uint64_t> number() {
    space();
    std::uint64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, bad] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (bad != std::errc{}) {
      return std::nullopt;
    }
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }
  std::optional<std::string> string();

 private:
  void space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  bool unicode(std::string& out);
  std::string_view text_;
  std::size_t at_ = 0;
};

bool Reader::unicode(std::string& out) {
  unsigned value = 0;
  if (at_ + 4 > text_.size()) {
    return false;
  }
  const char* begin = text_.data() + at_;
  const auto [end, bad] = std::from_chars(begin, begin + 4, value, 16);
  if (bad != std::errc{} || end != begin + 4 || value >= 0x800) {
    return false;
  }
  at_ += 4;
  if (value < 0x80) {
    out += static_cast<char>(value);
  } else {
    out += static_cast<char>(0xc0 | (value >> 6));
    out += static_cast<char>(0x80 | (value & 0x3f));
  }
  return true;
}

std::optional<std::string> Reader::string() {
  if (!take('"')) {
    return std::nullopt;
  }
  std::string out;
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') {
      return out;
    }
    if (static_cast<unsigned char>(c) < 0x20) {
      return std::nullopt;
    }
    if (c != '\\') {
      out += c;
      continue;
    }
    if (at_ == text_.size()) {
      return std::nullopt;
    }
    switch (text_[at_++]) {
      case '"': out += '"'; break;
      case '\\': out += '\\'; break;
      case '/': out += '/'; break;
      case 'b': out += '\b'; break;
      case 'f': out += '\f'; break;
      case 'n': out += '\n'; break;
      case 'r': out += '\r'; break;
      case 't': out += '\t'; break;
      case 'u':
        if (!unicode(out)) {
          return std::nullopt;
        }
        break;
      default: return std::nullopt;
    }
  }
  return std::nullopt;
}

bool store(Manifest& m, std::string_view name, std::string value) {
  if (name == "name") {
    m.info.name = std::move(value);
  } else if (name == "kind") {
    m.info.kind = std::move(value);
  } else if (name == "source") {
    m.info.source = std::move(value);
  } else if (name == "created_at") {
    m.info.created_at = std::move(value);
  } else if (name == "method") {
    m.method = std::move(value);
  }
  return true;
}

bool store(Manifest& m, std::string_view name, std::uint64_t value) {
  if (name == "generation") {
    if (value == 0 || value > 0xffffffff) {
      return false;
    }
    m.info.generation = static_cast<std::uint32_t>(value);
  } else if (name == "files") {
    m.info.files = value;
  } else if (name == "bytes") {
    m.info.bytes = value;
  } else {
    m.counts.emplace_back(name, value);
  }
  return true;
}

}  // namespace

std::string to_json(const Manifest& m) {
  std::string out = "{";
  member(out, "name", m.info.name);
  member(out, "generation", m.info.generation);
  member(out, "kind", m.info.kind);
  member(out, "source", m.info.source);
  member(out, "created_at", m.info.created_at);
  member(out, "method", m.method);
  member(out, "files", m.info.files);
  member(out, "bytes", m.info.bytes);
  for (const auto& [name, value] : m.counts) {
    member(out, name, value);
  }
  return out + "\n}\n";
}

Result<Manifest> parse_manifest(std::string_view text) {
  Manifest m;
  m.info.generation = 0;
  Reader in{text};
  bool good = in.take('{');
  for (bool more = good && !in.peek('}'); more; more = good && in.take(',')) {
    const auto name = in.string();
    good = name && in.take(':');
    if (!good) {
      break;
    }
    if (in.peek('"')) {
      auto value = in.string();
      good = value && store(m, *name, std::move(*value));
    } else {
      const auto value = in.number();
      good = value && store(m, *name, *value);
    }
  }
  if (!good || !in.take('}') || !in.at_end()) {
    return fail(Code::internal, "manifest.json is not valid");
  }
  if (m.info.name.empty() || m.info.kind.empty() || m.info.generation == 0) {
    return fail(Code::internal, "manifest.json lacks name, kind or generation");
  }
  return m;
}

}  // namespace talon::isolate::image
