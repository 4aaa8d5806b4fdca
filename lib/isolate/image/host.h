#pragma once
// The tree of the image `host` (decision 27), made from a host root into an empty directory.
// Atomicity, names and locks are ImageStore's; this is only what goes in.

#include "base/error.h"
#include "isolate/image/etc.h"
#include "isolate/image/image.h"
#include "isolate/image/tree.h"

namespace talon::isolate::image {

struct HostTree {
  TreeCounts usr;   // /usr and what of /bin /sbin /lib* is a directory (no merged /usr)
  TreeCounts dpkg;  // /var/lib/dpkg
  EtcCounts etc;
};

// `host_root` is an open directory, "/" but for tests; `root` the image's new root/.
Result<HostTree> make_host_tree(int host_root, int root, const ImageProgress& progress);

}  // namespace talon::isolate::image
