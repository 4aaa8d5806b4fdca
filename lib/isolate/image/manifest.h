#pragma once
// manifest.json of an image: one flat JSON object of strings and whole numbers, written once
// before the image is renamed into place. Numbers of its own that are no part of ImageInfo
// (what was left out and why) are written for people and ignored by the reader.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "isolate/image/image.h"

namespace talon::isolate::image {

// Beside ImageInfo: `method` is "hardlink", "reflink", "copy" (of files) or "unpack" (a tar).
struct Manifest {
  ImageInfo info;
  std::string method;
  std::vector<std::pair<std::string, std::uint64_t>> counts;  // e.g. {"left_out_special", 3}
};

std::string to_json(const Manifest& manifest);

// Unknown names are ignored; a missing name, generation or kind, or bad JSON, is an error.
Result<Manifest> parse_manifest(std::string_view text);

}  // namespace talon::isolate::image
