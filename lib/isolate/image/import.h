#pragma once
// Filling a new root tree from a directory or from a tar archive.

#include <cstdint>

#include "base/error.h"
#include "isolate/image/image.h"
#include "isolate/image/tree.h"

namespace talon::isolate::image {

// Free space that an import leaves on the disk, so that the daemon's own writes go on.
inline constexpr std::uint64_t kImportKeepFree = 128ull << 20;

// `fd`: the archive (plain, gzip or zstd), read from its start. Whiteouts are ordinary files.
// The error names the entry.
Result<TreeCounts> unpack_tar(int fd, int root, const ImageProgress& progress);

}  // namespace talon::isolate::image
