#pragma once
// Progress of making an image, on stderr: at once and in place on a terminal, else a line only
// when it takes longer than a second.

#include "isolate/image/image.h"

namespace talon::cli {

isolate::ImageProgress show_progress(const std::string& image);

}  // namespace talon::cli
