#include "server/api/text.h"

#include <openssl/evp.h>

#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cstdint>

#include "base/error.h"

namespace talon::server::api {

namespace {
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kHex = "0123456789abcdef";
}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: {
        const auto b = static_cast<unsigned char>(c);
        if (b < 0x20) {
          out += "\\u00";
          out += kHex[b >> 4];
          out += kHex[b & 15];
        } else {
          out += c;
        }
      }
    }
  }
}

namespace {

void append_value(std::string& out, const boost::json::value& value) {
  namespace json = boost::json;
  if (const json::object* object = value.if_object()) {
    char before = '{';
    for (const auto& entry : *object) {
      out += before;
      out += '"';
      append_json_escaped(out, entry.key());
      out += "\":";
      append_value(out, entry.value());
      before = ',';
    }
    out += object->empty() ? "{}" : "}";
  } else if (const json::array* array = value.if_array()) {
    char before = '[';
    for (const json::value& item : *array) {
      out += before;
      append_value(out, item);
      before = ',';
    }
    out += array->empty() ? "[]" : "]";
  } else if (const double* number = value.if_double()) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), *number).ptr;
    out.append(text.data(), end);
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

std::string json_text(const boost::json::value& value) {
  std::string out;
  append_value(out, value);
  return out;
}

void Base64::feed(std::string& out, std::string_view bytes) {
  const auto three = [&out](unsigned char a, unsigned char b, unsigned char c) {
    out += kAlphabet[a >> 2];
    out += kAlphabet[((a & 3) << 4) | (b >> 4)];
    out += kAlphabet[((b & 15) << 2) | (c >> 6)];
    out += kAlphabet[c & 63];
  };
  std::size_t i = 0;
  while (!pending_.empty() && pending_.size() < 3 && i < bytes.size()) {
    pending_ += bytes[i++];
  }
  if (pending_.size() == 3) {
    three(static_cast<unsigned char>(pending_[0]), static_cast<unsigned char>(pending_[1]),
          static_cast<unsigned char>(pending_[2]));
    pending_.clear();
  }
  for (; i + 3 <= bytes.size(); i += 3) {
    three(static_cast<unsigned char>(bytes[i]), static_cast<unsigned char>(bytes[i + 1]),
          static_cast<unsigned char>(bytes[i + 2]));
  }
  pending_.append(bytes.substr(i));
}

void Base64::finish(std::string& out) {
  if (pending_.empty()) {
    return;
  }
  const auto a = static_cast<unsigned char>(pending_[0]);
  const auto b = static_cast<unsigned char>(pending_.size() > 1 ? pending_[1] : 0);
  out += kAlphabet[a >> 2];
  out += kAlphabet[((a & 3) << 4) | (b >> 4)];
  out += pending_.size() > 1 ? kAlphabet[(b & 15) << 2] : '=';
  out += '=';
  pending_.clear();
}

std::string base64(std::string_view bytes) {
  std::string out;
  Base64 encoder;
  encoder.feed(out, bytes);
  encoder.finish(out);
  return out;
}

bool base64_decode(std::string_view text, std::string& out) {
  if (text.size() % 4 != 0) {
    return false;
  }
  out.clear();
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t bits = 0;
    int pad = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const char c = text[i + j];
      const auto at = kAlphabet.find(c);
      if (at != std::string_view::npos && pad == 0) {
        bits = (bits << 6) | static_cast<std::uint32_t>(at);
      } else if (c == '=' && j >= 2 && i + 4 == text.size()) {
        bits <<= 6;
        ++pad;
      } else {
        return false;
      }
    }
    out += static_cast<char>(bits >> 16);
    if (pad < 2) {
      out += static_cast<char>((bits >> 8) & 255);
    }
    if (pad < 1) {
      out += static_cast<char>(bits & 255);
    }
  }
  return true;
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  // Fails only when the library has no SHA-256, which it always has.
  TALON_ASSERT(
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1);
  std::string out;
  for (unsigned int i = 0; i < size; ++i) {
    out += kHex[digest[i] >> 4];
    out += kHex[digest[i] & 15];
  }
  return out;
}

}  // namespace talon::server::api
